"""SimLoop, an event loop in virtual time; it owns no sockets, threads or signals.

When nothing is ready the clock jumps to the next timer. When there is no timer either, nothing
can ever happen again: that is a deadlock, and raised as one.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_MS = 1_700_000_000_000
"""What SimClock's timestamps start from (November 2023)."""

STEPS_PER_INSTANT = 200_000
"""Rounds of the loop without time going on that are taken for an endless loop."""


class SimDeadlock(AssertionError):
    """Nothing is ready and no timer is set: whoever still waits does so for ever."""


class SimLivelock(AssertionError):
    """Callbacks follow each other without end while no time goes by."""


class SimTimeout(AssertionError):
    """The virtual time allowed for the simulation is used up."""


class SimTask(asyncio.Task[T]):
    """A task with a hash that is the same in every run.

    asyncio keeps tasks in sets (TaskGroup cancels them in the set's order); by their
    addresses they would come in another order each time.
    """

    _numbers = itertools.count()

    def __init__(self, coro: Coroutine[Any, Any, T], **keywords: Any) -> None:
        self._number = next(self._numbers)
        if keywords.get("name") is None:
            keywords["name"] = f"Task-{self._number}"  # asyncio's numbers count on between runs
        super().__init__(coro, **keywords)

    def __hash__(self) -> int:
        return self._number


class _JumpingSelector:
    """Where a real loop sleeps until a socket or a timer is ready, this one moves the clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop._pass(timeout)
        return []


class SimLoop(asyncio.BaseEventLoop):
    """See the module.

    Args:
        limit: virtual seconds after which SimTimeout is raised.
    """

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, *, limit: float = 24 * 3600.0) -> None:
        super().__init__()
        self._now = 0.0
        self._limit = limit
        self._steps = 0
        self._selector = _JumpingSelector(self)
        self._clock_resolution = 1e-9
        self.errors: list[dict[str, Any]] = []
        """What would have been logged by asyncio: lost exceptions, failing callbacks."""
        self.set_exception_handler(lambda _, context: self.errors.append(context))
        self.set_task_factory(self._make_task)
        SimTask._numbers = itertools.count()

    def time(self) -> float:
        return self._now

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **keywords: Any,
    ) -> asyncio.Task[T]:
        return SimTask(coro, loop=loop, **keywords)  # type: ignore[arg-type]

    def _pass(self, timeout: float | None) -> None:
        if timeout is None:
            raise SimDeadlock(self._deadlock())
        if timeout <= 0:
            self._steps += 1
            if self._steps > STEPS_PER_INSTANT:
                raise SimLivelock(f"no end of callbacks at {self._now:.6f} s: {self._pending()}")
            return
        self._steps = 0
        # The very time of the timer: adding the difference up would round.
        self._now = max(self._now, min(self._scheduled[0].when(), self._now + timeout))
        if self._now > self._limit:
            raise SimTimeout(f"still running after {self._limit} virtual seconds")

    def _deadlock(self) -> str:
        return f"at {self._now:.6f} s nothing can happen any more; waiting: {self._pending()}"

    def _pending(self) -> str:
        names = []
        for task in sorted(asyncio.all_tasks(self), key=hash):
            stack = task.get_stack(limit=1)
            where = f" at {stack[0].f_code.co_name}:{stack[0].f_lineno}" if stack else ""
            names.append(f"{task.get_name()}{where}")
        return "; ".join(names) or "no task"

    def run_in_executor(
        self, executor: object, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """In place: a thread would bring chance in."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    async def getaddrinfo(self, *args: Any, **keywords: Any) -> Any:
        raise RuntimeError("the simulation has no real network: use environment.network")

    async def create_connection(self, *args: Any, **keywords: Any) -> Any:
        raise RuntimeError("the simulation has no real network: use environment.network")

    async def create_server(self, *args: Any, **keywords: Any) -> Any:
        raise RuntimeError("the simulation has no real network: use environment.network")

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: nothing happens outside."""

    def _write_to_self(self) -> None:
        """Nobody else could wake it."""


class SimClock:
    """The loop's time as core.clock.Clock."""

    def __init__(self, loop: SimLoop, *, epoch_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def timestamp_ms(self) -> int:
        return self._epoch_ms + int(self._loop.time() * 1000)
