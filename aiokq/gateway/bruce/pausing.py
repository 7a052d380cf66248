"""PauseBackoff: how long the engine `bruce` waits before it restarts its dispatchers.

Tests: tests/unit/gateway/bruce/test_pausing.py.

Source: Dory, `pause rate limiter`: the first delay is 0, later ones are random and double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["PauseBackoff"]


class PauseBackoff:
    """The delays of pauses, or of requests for metadata.

    The first delay is `floor`. A later delay is random, from half of the base to one and a half of
    it, less the time since the last delay ended, and at least `floor`. The base is `initial`, and
    doubles with each delay, `max_doublings` times. After a time without delays of ``initial * 2 **
    (max_doublings + 2)`` the delays start again with `floor`.

    Args:
        initial, floor: seconds.
    """

    def __init__(
        self, initial: float, max_doublings: int, floor: float, random: random.Random
    ) -> None:
        self._initial = initial
        self._max_doublings = max_doublings
        self._floor = floor
        self._random = random
        self._doublings = -1
        """Doublings of the base of the last delay; -1 if the last delay was the first."""
        self._ended: float | None = None
        """When the last delay ended, in monotonic seconds; None before the first delay."""

    def next(self, now: float) -> float:
        """Return the seconds to wait from `now` on."""
        quiet = self._initial * 2.0 ** (self._max_doublings + 2)
        if self._ended is None or now - self._ended >= quiet:
            self._doublings = -1
            delay = 0.0
        else:
            self._doublings = min(self._doublings + 1, self._max_doublings)
            base = self._initial * 2.0**self._doublings
            delay = base * self._random.uniform(0.5, 1.5) - max(0.0, now - self._ended)
        delay = max(self._floor, delay)
        self._ended = now + delay
        return delay
