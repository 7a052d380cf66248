"""Owns tasks: the only place that starts any. What they do is their owners' business.

A TaskGroup must be entered and left by one task, so each Supervisor has a root task that
does, and that outlives the calls of start() and close(). Tests:
tests/unit/core/test_supervisor.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from enum import Enum, auto
from typing import Final, TypeVar

from aiokq.core.errors import Closed
from aiokq.core.user_errors import closed_here

T = TypeVar("T")

logger = logging.getLogger("aiokq.core")

STILL_RUNNING_SECONDS: Final = 0.1
"""Until a call that was handed to another loop asks whether that loop still runs."""


class State(Enum):
    """Of a Supervisor; it moves down the list only."""

    NEW = auto()
    """Made, touches no loop yet."""
    OPEN = auto()
    """start() was called: takes tasks."""
    FAILED = auto()
    """A child raised: the others are being cancelled, no new ones are taken."""
    CLOSED = auto()
    """close() was called, or the root task was cancelled with the loop."""


class Supervisor:
    """A group of background tasks that live and fail together.

    A child retries what it expects by itself. An exception that leaves a child is a bug, or
    the end of the owner: `on_failure` is called with the first one, at once, and the other
    children are cancelled. A CancelledError that leaves a child which nobody cancelled is one, too.

    Args:
        name: of the owner, for task names and logs.
        on_failure: called once, on the loop, in the failing child; must not block. It is where
            the owner fails its waiters.
    """

    def __init__(
        self, name: str, *, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self.name = name
        self._pid = os.getpid()
        self._on_failure = on_failure
        self._state = State.NEW
        self._failed: BaseException | None = None
        self._group: asyncio.TaskGroup | None = None
        self._root: asyncio.Task[None] | None = None
        self._entered: asyncio.Future[None] | None = None
        self._children: set[asyncio.Task[object]] = set()

    @property
    def failed(self) -> BaseException | None:
        """The first exception that left a child; later ones are chained to it."""
        return self._failed

    @property
    def state(self) -> State:
        return self._state

    async def start(self) -> None:
        """Binds to the running loop. Harmless if started.

        Raises:
            Closed: it was closed, perhaps meanwhile; cancelling the call that began to start it
                does that, too.
        """
        begins = self._state is State.NEW
        if begins:
            loop = asyncio.get_running_loop()
            self._entered = loop.create_future()
            self._state = State.OPEN
            self._root = loop.create_task(self._hold(), name=f"{self.name}: root")
            self._root.add_done_callback(self._root_entered)  # closed before its first step
        if self._entered is not None:
            try:
                # Shielded: the cancellation of one is not that of others who start it as well.
                await asyncio.shield(self._entered)
            except asyncio.CancelledError:
                if begins:
                    await self.close()
                raise
        if self._state is not State.OPEN:
            raise self._closed_error()

    def spawn(self, coro: Coroutine[object, None, T], *, name: str) -> asyncio.Task[T]:
        """Starts a child.

        Context: loop, sync.

        Raises:
            Closed: not started, failed or closed; `coro` is closed then, so nothing warns.
        """
        if self._state is not State.OPEN or self._group is None:
            coro.close()
            raise self._closed_error()
        task = self._group.create_task(self._guard(coro), name=f"{self.name}: {name}")
        self._children.add(task)
        task.add_done_callback(self._children.discard)
        # A task cancelled before its first step never enters _guard, which then could not
        # close `coro`: Python would warn that it was never awaited.
        task.add_done_callback(lambda _: coro.close())
        return task

    async def close(self, timeout: float | None = None) -> None:
        """Cancels the children and waits for them. Harmless twice and concurrently.

        Cancelling it ends the wait, not the closing.

        Args:
            timeout: seconds to wait for children that will not end; they are logged and left.
        """
        current = asyncio.current_task()
        if current in self._children:
            raise RuntimeError(f"{self.name}: a child cannot wait for itself to be closed")
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
                await asyncio.get_running_loop().create_future()  # until cancelled
        except asyncio.CancelledError:
            pass  # close(), or the loop's end: the children were cancelled and are done
        except BaseExceptionGroup as failures:
            # _guard has seen each of them; this is the first time they are all there.
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
            # Nobody cancelled it: what it awaited was, or a callback raised this.
            failure = RuntimeError("cancelled from inside, by what it awaited or called")
            failure.__cause__ = error  # before it is logged
            self._fail(failure)
            raise failure from error
        except GeneratorExit as error:
            if closed_here(error):
                raise  # it is being forgotten, with a loop that was closed before it
            failure = RuntimeError("ended by a GeneratorExit that what it called raised")
            failure.__cause__ = error
            self._fail(failure)
            raise failure from error
        except BaseException as error:
            if isinstance(error, Closed) and self._state is not State.OPEN:
                # It tried to start a task, and was told of the end before its cancellation came.
                raise asyncio.CancelledError from error
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        # A forked child that leaves its parent's loop may still run a step of the parent's tasks,
        # in which asyncio finds no running loop. Nothing has failed for the parent.
        if self._failed is not None or os.getpid() != self._pid:
            return
        self._failed = error
        if self._state is State.OPEN:
            self._state = State.FAILED
        try:
            logger.error("task failed: supervisor=%s", self.name, exc_info=error)
        finally:  # a handler of the log may raise: the waiters must fail all the same
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        if self._on_failure is not None:
            try:
                self._on_failure(error)
            except Exception:
                logger.exception("on_failure failed: supervisor=%s", self.name)

    def _closed_error(self) -> Closed:
        if self._state is State.NEW:
            return Closed(f"{self.name} is not started: use `async with`, or await start()")
        error = Closed(
            f"{self.name} has failed: {self._failed!r}; make a new one"
            if self._failed is not None
            else f"{self.name} is closed: make a new one"
        )
        error.__cause__ = self._failed
        return error


async def handed_over(
    call: Callable[[], Coroutine[object, None, T]],
    loop: asyncio.AbstractEventLoop,
    *,
    name: str,
    gone: Callable[[], Exception],
) -> T:
    """Runs `call` on another loop, in whatever thread runs that one, and waits for its outcome.

    Cancelling it cancels the call, and does not wait for it.

    Args:
        gone: makes the error to raise where that loop does not run, or stops before the call has
            ended. The call is then cancelled, should the loop run again.
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
        # Nothing tells of a loop that stops: it is asked now and then.
        while not (await asyncio.wait([waiting], timeout=STILL_RUNNING_SECONDS))[0]:
            if not loop.is_running():
                raise gone()
        return waiting.result()
    finally:
        if waiting.done():
            # These hold what is raised, whose traceback holds this frame: a cycle.
            running.clear()
            del waiting, outcome
        else:
            waiting.cancel()  # and with it the outcome: what has not begun never will
            _call_soon(loop, withdraw)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> bool:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:  # it is closed
        return False
    return True


async def shielded(coro: Coroutine[object, None, T], *, name: str = "cleanup") -> T:
    """Finishes `coro` even if the caller is cancelled; the cancellation is raised afterwards.

    For closing what must not be left half closed. Bound its time inside.
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
            logger.error("failed while being cancelled: task=%s", name, exc_info=failure)
            raise cancelled from failure
        raise cancelled
    finally:
        del cancelled  # a frame that holds the exception that holds the frame


def unwrap(
    group: BaseExceptionGroup[BaseException], *, first: BaseException | None = None
) -> BaseException:
    """The cause out of an exception group: one leaf, the others chained to its `__context__`.

    No ExceptionGroup leaves the public API.

    Args:
        first: the leaf that came first in time, if known.
    """
    # Set as every exception has it: a foreign class may refuse attributes.
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


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
