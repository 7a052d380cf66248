"""Supervisor: starts and owns background tasks.

The module also has functions that run a call on another loop, protect cleanup from cancellation,
and report exception groups and objects that were not closed.

A TaskGroup must be entered and exited by the same task. The callers of start() and close() may be
different tasks, so each Supervisor has a root task for its TaskGroup. Tests:
tests/unit/core/test_supervisor.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from enum import Enum, auto
from typing import Final, ParamSpec, TypeVar

from aiokq.core.errors import Closed
from aiokq.core.user_errors import closed_here

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("aiokq.core")

STILL_RUNNING_SECONDS: Final = 0.1
"""Seconds between two checks by `handed_over` that the other loop is still running."""


class State(Enum):
    """States of a Supervisor; a state changes only to a later state in this list."""

    NEW = auto()
    """Created, not bound to a loop."""
    OPEN = auto()
    """start() was called, and tasks are accepted."""
    FAILED = auto()
    """A child raised. The other children are being cancelled, and new children are refused."""
    CLOSED = auto()
    """close() was called, or the root task was cancelled when the loop was shut down."""


class Supervisor:
    """A group of background tasks that run and fail together.

    A child handles and retries the errors that it expects. The first other exception that leaves a
    child fails the supervisor: `on_failure` is called immediately with the exception, and the other
    children are cancelled. A CancelledError of a child that was not cancelled has the same effect.

    Args:
        name: name of the owner, for task names and logs.
        on_failure: called once, on the loop, in the failing child; must not block. The owner fails
            its waiters there.
        on_cancelled: called once, on the loop, if something other than `close` cancels the tasks,
            such as the shutdown of the loop; must neither block nor raise. The owner fails its
            waiters there, because no background task runs any more.
    """

    def __init__(
        self,
        name: str,
        *,
        on_failure: Callable[[BaseException], None] | None = None,
        on_cancelled: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._pid = os.getpid()
        self._on_failure = on_failure
        self._on_cancelled = on_cancelled
        self._state = State.NEW
        self._failed: BaseException | None = None
        self._group: asyncio.TaskGroup | None = None
        self._root: asyncio.Task[None] | None = None
        self._entered: asyncio.Future[None] | None = None
        self._children: set[asyncio.Task[object]] = set()

    @property
    def failed(self) -> BaseException | None:
        """The first exception of a child, with later exceptions chained; None before a failure."""
        return self._failed

    @property
    def state(self) -> State:
        return self._state

    async def start(self) -> None:
        """Bind to the running loop. May be called again.

        Only the first call binds the supervisor; cancelling that call closes the supervisor.

        Raises:
            Closed: the supervisor has failed, or was closed, possibly during this call.
        """
        begins = self._state is State.NEW
        if begins:
            loop = asyncio.get_running_loop()
            self._entered = loop.create_future()
            self._state = State.OPEN
            self._root = loop.create_task(self._hold(), name=f"{self.name}: root")
            # The callback completes `_entered` if the root task is cancelled before its first step.
            self._root.add_done_callback(self._root_entered)
        if self._entered is not None:
            try:
                # Shielded: cancelling one caller must not cancel other callers of start().
                await asyncio.shield(self._entered)
            except asyncio.CancelledError:
                if begins:
                    await self.close()
                raise
        if self._state is not State.OPEN:
            raise self._closed_error()

    def spawn(self, coro: Coroutine[object, None, T], *, name: str) -> asyncio.Task[T]:
        """Start a child task.

        Context: the event loop; does not wait.

        Raises:
            Closed: the supervisor is not started, has failed or is closed. `coro` is then closed,
                so that Python does not warn that it was never awaited.
        """
        if self._state is not State.OPEN or self._group is None:
            coro.close()
            raise self._closed_error()
        task = self._group.create_task(self._guard(coro), name=f"{self.name}: {name}")
        self._children.add(task)

        def ended(task: asyncio.Task[T]) -> None:
            self._children.discard(task)
            # A task that is cancelled before its first step never awaits `coro`. Close `coro`, so
            # that Python does not warn that it was never awaited.
            coro.close()

        task.add_done_callback(ended)
        return task

    def guarded(self, callback: Callable[P, None], *, name: str) -> Callable[P, None]:
        """Return a function that calls `callback`; an exception of `callback` fails the supervisor.

        Pass the returned function to the event loop in place of `callback`. asyncio only logs the
        exception of a callback, and the owner would continue although the callback has not done its
        work.
        """

        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                callback(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  fails the supervisor
                try:
                    self.spawn(_raised(error), name=name)
                except Closed:  # the supervisor has failed or is closed
                    logger.error("callback failed: supervisor=%s", self.name, exc_info=error)

        return run

    async def close(self, timeout: float | None = None) -> None:
        """Cancel the children and wait for them. May be called twice and concurrently.

        If the call is cancelled, it stops waiting, but the children stay cancelled.

        Args:
            timeout: seconds to wait for children that do not end, which are then logged and left
                running; None to wait without a limit.

        Raises:
            RuntimeError: the call is made by a child.
        """
        current = asyncio.current_task()
        if current in self._children:
            raise RuntimeError(f"{self.name}: a child task cannot close its own supervisor")
        if self._state is not State.FAILED:
            self._state = State.CLOSED
        root = self._root
        if root is None or root.done():
            return
        root.cancel()
        await asyncio.wait([root], timeout=timeout)
        if not root.done():
            logger.warning(
                "tasks did not end when cancelled: supervisor=%s tasks=%s",
                self.name,
                sorted(task.get_name() for task in self._children),
            )

    async def __aenter__(self) -> Supervisor:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _root_entered(self, _: object = None) -> None:
        assert self._entered is not None
        if not self._entered.done():
            self._entered.set_result(None)

    async def _hold(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._root_entered()
                try:
                    await asyncio.get_running_loop().create_future()  # wait until cancelled
                except asyncio.CancelledError:
                    if self._state is State.OPEN:
                        # Neither close() nor a failure cancelled this task. New children are
                        # refused from now on, because the group would cancel them before their
                        # first step, or raise RuntimeError.
                        self._state = State.CLOSED
                        if self._on_cancelled is not None:
                            self._on_cancelled()
                    raise
        except asyncio.CancelledError:
            pass  # close() or the shutdown of the loop cancelled this task; all children are done
        except BaseExceptionGroup as failures:
            # _guard has reported the first failure. Later failures are chained to it.
            self._failed = unwrap(failures, first=self._failed)
        finally:
            self._group = None
            if self._state is State.OPEN:
                self._state = State.CLOSED

    async def _guard(self, coro: Coroutine[object, None, T]) -> T:
        try:
            return await coro
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._state is not State.OPEN or task is None or task.cancelling():
                raise
            # Nobody cancelled the child: an awaitable or a callback raised CancelledError.
            failure = RuntimeError("cancelled by an awaitable or a callback, not by its owner")
            failure.__cause__ = error  # set before _fail() logs the failure
            self._fail(failure)
            raise failure from error
        except GeneratorExit as error:
            if closed_here(error):
                raise  # the loop was closed, and this task is garbage-collected
            failure = RuntimeError("ended by a GeneratorExit that called code raised")
            failure.__cause__ = error
            self._fail(failure)
            raise failure from error
        except BaseException as error:
            if isinstance(error, Closed) and self._state is not State.OPEN:
                # The supervisor has ended, and the child tried to start a task before its own
                # cancellation arrived.
                raise asyncio.CancelledError from error
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        # A forked process that leaves its parent's loop may still run a step of the parent's tasks.
        # asyncio then finds no running loop and raises RuntimeError, which is not a failure of the
        # supervisor.
        if self._failed is not None or os.getpid() != self._pid:
            return
        self._failed = error
        if self._state is State.OPEN:
            self._state = State.FAILED
        try:
            logger.error("task failed: supervisor=%s", self.name, exc_info=error)
        finally:  # a log handler may raise, but the waiters must fail nevertheless
            self._report(error)

    def _report(self, error: BaseException) -> None:
        if self._on_failure is not None:
            try:
                self._on_failure(error)
            except Exception:
                logger.exception("on_failure failed: supervisor=%s", self.name)

    def _closed_error(self) -> Closed:
        if self._state is State.NEW:
            return Closed(f"{self.name} is not started: use `async with`, or await start()")
        error = Closed(
            f"{self.name} has failed: {self._failed!r}; create a new one"
            if self._failed is not None
            else f"{self.name} is closed: create a new one"
        )
        error.__cause__ = self._failed
        return error


async def _raised(error: Exception) -> None:
    raise error


async def handed_over(
    call: Callable[[], Coroutine[object, None, T]],
    loop: asyncio.AbstractEventLoop,
    *,
    name: str,
    gone: Callable[[], Exception],
) -> T:
    """Run `call` on another loop, in the thread that runs that loop, and wait for its outcome.

    Cancelling the wait cancels the call without waiting for its end.

    Args:
        gone: returns the error to raise if the loop is not running, if the loop stops before the
            call has ended, or if the call is cancelled on the loop. If the loop stops, the call is
            cancelled when the loop runs again.
    """
    outcome: Future[T] = Future()
    running: list[asyncio.Task[T]] = []

    def begin() -> None:
        if outcome.set_running_or_notify_cancel():
            running.append(loop.create_task(call(), name=name))
            running[0].add_done_callback(end)

    def end(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            outcome.set_exception(gone())
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def withdraw() -> None:
        for task in running:
            task.cancel()

    if not loop.is_running() or not _call_soon(loop, begin):
        raise gone()
    waiting = asyncio.wrap_future(outcome)
    try:
        # A loop that stops sends no notification, so its state is polled.
        while not (await asyncio.wait([waiting], timeout=STILL_RUNNING_SECONDS))[0]:
            if not loop.is_running():
                raise gone()
        return waiting.result()
    finally:
        if waiting.done():
            # These variables refer to the raised exception, whose traceback refers to this frame.
            # Delete them to break the reference cycle.
            running.clear()
            del waiting, outcome
        else:
            waiting.cancel()  # also cancels `outcome`: a call that has not begun never starts
            _call_soon(loop, withdraw)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> bool:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:  # the loop is closed
        return False
    return True


async def shielded(
    coro: Coroutine[object, None, T],
    *,
    name: str = "cleanup",
    expected: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Finish `coro` even if the caller is cancelled; the cancellation is raised afterwards.

    For cleanup that must not be interrupted. `coro` should have a timeout of its own. If `coro`
    fails after the cancellation, the error is logged and becomes the cause of the CancelledError.

    Args:
        expected: classes of errors that are not logged after a cancellation, because they concern
            only the caller or were logged by `coro`.
    """
    task = asyncio.get_running_loop().create_task(coro, name=name)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    try:
        if not task.cancelled() and (failure := task.exception()) is not None:
            if not isinstance(failure, expected):
                logger.error("failed while being cancelled: task=%s", name, exc_info=failure)
            raise cancelled from failure
        raise cancelled
    finally:
        del cancelled  # breaks a cycle of frame and exception


def unwrap(
    group: BaseExceptionGroup[BaseException], *, first: BaseException | None = None
) -> BaseException:
    """Return one exception of a group, with the other exceptions chained to its `__context__`.

    Used because the public API raises no ExceptionGroup.

    Args:
        first: the exception to return; None to return the first exception of the group.
    """
    # `__context__` is set with BaseException's own method, because a foreign class may forbid
    # setting attributes.
    leaves = list(_leaves(group))
    if first is not None:
        leaves = [first, *(leaf for leaf in leaves if leaf is not first)]
    chained: set[int] = set()
    tail = leaves[0]
    for leaf in leaves:
        if id(leaf) in chained:
            continue
        if chained:
            BaseException.__setattr__(tail, "__context__", leaf)
        tail = leaf
        chained.add(id(tail))
        while tail.__context__ is not None:
            if id(tail.__context__) in chained:
                BaseException.__setattr__(tail, "__context__", None)
                break
            tail = tail.__context__
            chained.add(id(tail))
    return leaves[0]


def warn_unclosed(owner: object) -> None:
    """Warn from `owner.__del__` that `owner` was not closed."""
    warnings.warn(
        f"{owner!r} was not closed: use `async with`, or await close()",
        ResourceWarning,
        stacklevel=3,  # shows the code that dropped the last reference
        source=owner,
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
