"""Owns one timer of a connection that is cheap to arm for each request; not what it times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["LazyTimer"]


class LazyTimer:
    """A timer that is moved only when it must fire earlier.

    A request arms it with its deadline; as deadlines mostly grow, that is one comparison and no
    new timer. When it fires, `check(now)` does what is due and returns when to look next.

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
        """See to it that `check` runs at `when` or before."""
        if self._handle is not None:
            if self._when <= when:
                return
            self._handle.cancel()
        self._when = when
        self._handle = self._loop.call_at(when, self._fire)

    def cancel(self) -> None:
        """Never fire again, unless armed again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        when = self._check(self._loop.time())
        if when is not None:
            self.arm(when)
