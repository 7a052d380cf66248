"""`Clock`, the interface to wall-clock and monotonic time; timers are the event loop's."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Handed in, so that a simulation decides what time it is."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back. Equal to the loop's `time()`."""
        ...

    def timestamp_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as in a record's timestamp."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.monotonic()

    def timestamp_ms(self) -> int:
        return time.time_ns() // 1_000_000
