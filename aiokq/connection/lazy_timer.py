"""LazyTimer: a timer that a connection can arm cheaply for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["LazyTimer"]


class LazyTimer:
    """A timer that is rescheduled only if it must fire earlier.

    Each request arms the timer with the deadline of the request. Deadlines mostly increase.
    Therefore arming usually takes one comparison and creates no asyncio timer. When the timer
    fires, it calls `check`.

    Args:
        loop: the running loop; its `time()` is the clock.
        check: called with the loop's time; returns the next time to fire, or `None` for never.
    """

    __slots__ = ("_check", "_handle", "_loop", "_when")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, check: Callable[[float], float | None]
    ) -> None:
        self._loop = loop
        self._check = check
        self._handle: asyncio.TimerHandle | None = None
        self._when = 0.0

    def arm(self, when: float) -> None:
        """Schedule `check` for `when`, unless it is already scheduled for an earlier time."""
        if self._handle is not None:
            if self._when <= when:
                return
            self._handle.cancel()
        self._when = when
        self._handle = self._loop.call_at(when, self._fire)

    def cancel(self) -> None:
        """Stop the timer until it is armed again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        when = self._check(self._loop.time())
        if when is not None:
            self.arm(when)
