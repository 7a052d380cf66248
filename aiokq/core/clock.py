"""`Clock`, the interface to wall-clock and monotonic time; the event loop provides the timers."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the current time; a simulation has a clock of its own."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. The value never decreases."""
        ...

    def timestamp_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, the unit of record timestamps."""
        ...

    def thread_time(self) -> float:
        """Return the CPU seconds of the calling thread; in a simulation, the virtual time."""
        ...


class SystemClock:
    __slots__ = ()

    # The functions themselves, not methods that call them, because each request reads the clock
    # often.
    monotonic = staticmethod(time.monotonic)
    thread_time = staticmethod(time.thread_time)

    def timestamp_ms(self) -> int:
        return time.time_ns() // 1_000_000
