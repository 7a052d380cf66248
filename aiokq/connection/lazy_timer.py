"""LazyTimer: a timer of a connection that is cheap to arm for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["LazyTimer"]


class LazyTimer:
    """A timer that is rescheduled only if it must fire earlier.

    Each request arms it with its deadline. Deadlines mostly increase, so that this is one
    comparison and no new timer. When the timer fires, `check(now)` does what is due and returns the
    next time to fire.

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
        """Make `check` run at `when` or earlier."""
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
