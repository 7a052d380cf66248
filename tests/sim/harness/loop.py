"""SimLoop: an event loop in virtual time, without sockets, threads or signals.

When nothing is ready, the clock jumps to the next timer. When there is no timer either, the
simulation cannot continue, and the loop raises SimDeadlock.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_MS = 1_700_000_000_000
"""SimClock's first timestamp (November 2023), in ms."""

STEPS_PER_INSTANT = 200_000
"""Loop iterations without progress of the virtual time after which SimLivelock is raised."""


RESOLUTION = 1e-9
"""Timers that are due within this many seconds are due now."""


class SimDeadlock(AssertionError):
    """Nothing is ready and no timer is set, so the waiting tasks would wait forever."""


class SimLivelock(AssertionError):
    """Callbacks schedule each other endlessly while the time stands still."""


class SimTimeout(AssertionError):
    """The virtual time allowed for the simulation is used up."""


class SimTask(asyncio.Task[T]):
    """A task whose hash is the same in every run.

    asyncio keeps tasks in sets, and TaskGroup cancels them in the order of its set. Hashes of
    addresses would give another order in each run.
    """

    _numbers = itertools.count()

    def __init__(self, coro: Coroutine[Any, Any, T], **keywords: Any) -> None:
        self._number = next(self._numbers)
        if keywords.get("name") is None:
            keywords["name"] = f"Task-{self._number}"  # the same in each run
        super().__init__(coro, **keywords)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time; see the module docstring.

    Args:
        limit: virtual seconds after which SimTimeout is raised.
    """

    _scheduled: list[Any]
    """TimerHandles; typeshed does not know their attributes."""
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, *, limit: float = 24 * 3600.0) -> None:
        super().__init__()
        self._now = 0.0
        self._limit = limit
        self._steps = 0
        self.iterations = 0
        """How often callbacks were run."""
        self._at: list[tuple[int, int, Callable[[], object]]] = []
        self._asked = itertools.count()
        self.errors: list[dict[str, Any]] = []
        """Reports that asyncio would have logged: unretrieved exceptions, failed callbacks."""
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

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def at_step(self, count: int, callback: Callable[[], object]) -> None:
        """Call `callback` between two iterations of the loop, `count` from now.

        Most of the virtual time passes while nothing happens. A fault after a number of iterations
        happens between any two awaits of the programs.
        """
        heapq.heappush(self._at, (self.iterations + count, next(self._asked), callback))

    def _run_once(self) -> None:
        """Run what is ready; advance the clock to the next timer if nothing is.

        asyncio's method does the same with a selector, in twice the time: simulations consist of
        thousands of short iterations.
        """
        if self._timer_cancelled_count > max(100, len(self._scheduled) // 2):
            self._drop_cancelled()
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        if ready or self._stopping:
            self._steps += 1
            if self._steps > STEPS_PER_INSTANT:
                raise SimLivelock(f"no end of callbacks at {self._now:.6f} s: {self._pending()}")
        elif not scheduled:
            raise SimDeadlock(self._deadlock())
        elif (when := scheduled[0].when()) > self._now:
            self._steps = 0
            self._now = when
            if when > self._limit:
                raise SimTimeout(f"still running after {self._limit} virtual seconds")
        now = self._now + RESOLUTION
        while scheduled and scheduled[0].when() < now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        self.iterations += 1
        while self._at and self._at[0][0] <= self.iterations:
            heapq.heappop(self._at)[2]()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> None:
        """Free the timers that were cancelled: with long timeouts there would be thousands."""
        left = []
        for handle in self._scheduled:
            if handle._cancelled:
                handle._scheduled = False
            else:
                left.append(handle)
        heapq.heapify(left)
        self._scheduled = left
        self._timer_cancelled_count = 0

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
        """Run `func` inline, because a thread would make the order of events random."""
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
        """Do nothing: there are no events from outside."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no other threads that could wake the loop."""


class SimClock:
    """The loop's time as core.clock.Clock."""

    def __init__(self, loop: SimLoop, *, epoch_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def timestamp_ms(self) -> int:
        return self._epoch_ms + int(self._loop.time() * 1000)
