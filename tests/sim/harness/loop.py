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
from typing import Any, TypeVar, TypeVarTuple, cast

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_new = object.__new__

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

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, **keywords: Any
    ) -> None:
        self._number = next(self._numbers)
        # The default name is the same in each run.
        super().__init__(coro, name=name or f"Task-{self._number}", **keywords)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time; see the module docstring.

    A simulation consists of thousands of short callbacks. What each of them needs is written for
    speed: it does what asyncio does outside its debug mode, with fewer calls.

    Args:
        limit: virtual seconds after which SimTimeout is raised.
    """

    _scheduled: list[Any]
    """A heap of (time, number, TimerHandle); timers for the same time fire in their order."""
    _ready: deque[Any]
    """Handles; typeshed does not know their attributes."""
    _closed: bool
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
        self._timers = itertools.count()
        SimTask._numbers = itertools.count()

    def time(self) -> float:
        return self._now

    def work(self, seconds: float) -> None:
        """Let time pass during a callback, as a computation does."""
        self._now += seconds

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that are set."""
        return [timer for _, _, timer in self._scheduled if not timer.cancelled()]

    def create_task(
        self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **keywords: Any
    ) -> asyncio.Task[T]:
        if self._closed:
            coro.close()
            raise RuntimeError("Event loop is closed")
        return SimTask(coro, loop=self, **keywords)  # type: ignore[arg-type]

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle: Any = _new(asyncio.Handle)
        self._fill(handle, callback, args, context)
        self._ready.append(handle)
        return cast("asyncio.Handle", handle)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer: Any = _new(asyncio.TimerHandle)
        self._fill(timer, callback, args, context)
        timer._when = when
        timer._scheduled = True
        heapq.heappush(self._scheduled, (when, next(self._timers), timer))
        return cast("asyncio.TimerHandle", timer)

    def _fill(
        self,
        handle: Any,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        """Set the attributes of a new handle, as its constructor does."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle._context = contextvars.copy_context() if context is None else context
        handle._loop = self
        handle._callback = callback
        handle._args = args
        handle._cancelled = False
        handle._repr = handle._source_traceback = None

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
        while scheduled and scheduled[0][2]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)[2]._scheduled = False
        if ready or self._stopping:
            self._steps += 1
            if self._steps > STEPS_PER_INSTANT:
                raise SimLivelock(f"no end of callbacks at {self._now:.6f} s: {self._pending()}")
        elif not scheduled:
            raise SimDeadlock(self._deadlock())
        elif (when := scheduled[0][0]) > self._now:
            self._steps = 0
            self._now = when
            if when > self._limit:
                raise SimTimeout(f"still running after {self._limit} virtual seconds")
        now = self._now + RESOLUTION
        while scheduled and scheduled[0][0] < now:
            timer = heapq.heappop(scheduled)[2]
            timer._scheduled = False
            ready.append(timer)
        self.iterations += 1
        while self._at and self._at[0][0] <= self.iterations:
            heapq.heappop(self._at)[2]()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._report(handle, error)

    def _report(self, handle: Any, error: BaseException) -> None:
        """Report that a callback failed."""
        self.call_exception_handler(
            {
                "message": f"Exception in callback {handle._callback!r}",
                "exception": error,
                "handle": handle,
            }
        )

    def _drop_cancelled(self) -> None:
        """Free the timers that were cancelled: with long timeouts there would be thousands."""
        left = []
        for entry in self._scheduled:
            if entry[2]._cancelled:
                entry[2]._scheduled = False
            else:
                left.append(entry)
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

    def thread_time(self) -> float:
        return self._loop.time()
