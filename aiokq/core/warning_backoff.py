"""WarningBackoff: decides how often a repeated failure is logged as a warning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["WarningBackoff"]

FIRST_PAUSE: Final = 1.0
"""Seconds between the first two warnings about one failure; doubled with each warning."""

LONGEST_PAUSE: Final = 60.0
"""Maximum number of seconds between two warnings about one failure that goes on."""


class _Run:
    __slots__ = ("latest", "next_at", "pause", "times")

    def __init__(self, now: float) -> None:
        self.times = 0
        self.pause = FIRST_PAUSE
        self.next_at = now
        self.latest = now


class WarningBackoff:
    """Chooses the log level of repeated failures: WARNING at growing intervals, DEBUG in between.

    Args:
        now: returns seconds on a monotonic clock.
    """

    __slots__ = ("_now", "_runs")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._runs: dict[object, _Run] = {}

    def note(self, what: object) -> tuple[int, int]:
        """Count a failure; return the level to log it with (WARNING or DEBUG) and the count so far.

        The count and the interval start again after two minutes without a failure.

        Args:
            what: hashable key; failures with equal keys are counted together. There must be few
                different keys, because each is kept until `over`.
        """
        now = self._now()
        run = self._runs.get(what)
        if run is None or now - run.latest > 2 * LONGEST_PAUSE:
            run = self._runs[what] = _Run(now)
        run.times += 1
        run.latest = now
        if now < run.next_at:
            return logging.DEBUG, run.times
        run.next_at = now + run.pause
        run.pause = min(2 * run.pause, LONGEST_PAUSE)
        return logging.WARNING, run.times

    def over(self) -> None:
        """Forget all failures, because operation is normal again."""
        self._runs.clear()
