"""PauseBackoff: how long the engine `bruce` waits before it restarts its dispatchers.

Tests: tests/unit/gateway/bruce/test_pausing.py.

Source: Dory, `pause rate limiter`: the first delay is 0, and each later delay is a base, which
doubles, times a random factor. A delay below the shortest pause is raised to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["PauseBackoff"]


class PauseBackoff:
    """The delays of pauses, or of requests for metadata.

    The first delay is `floor`. Each later delay is a base times a random factor from 0.5 to 1.5,
    minus the time since the last delay ended, but at least `floor`. The base is `initial` for the
    second delay, and doubles with each further delay, at most `max_doublings` times. After
    ``initial * 2 ** (max_doublings + 2)`` seconds without a delay, the next delay is the first one
    again.

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
        """How often the base of the last delay was doubled; -1 if that was the first delay."""
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
