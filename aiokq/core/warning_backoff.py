"""Owns how often the same trouble is worth a line in the log; what is logged is the caller's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["WarningBackoff"]

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two warnings about the same; the pause doubles from the first to the longest."""


class _Run:
    __slots__ = ("latest", "next_at", "pause", "times")

    def __init__(self, now: float) -> None:
        self.times = 0
        self.pause = FIRST_PAUSE
        self.next_at = now
        self.latest = now


class WarningBackoff:
    """Tells warnings that say something new from those that an outage repeats every second.

    Args:
        now: seconds; any clock that goes on.
    """

    __slots__ = ("_now", "_runs")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._runs: dict[object, _Run] = {}

    def note(self, what: object) -> tuple[int, int]:
        """It happened: the level to log it with (WARNING or DEBUG), and how often it has by now.

        Args:
            what: makes two of them the same, as the kind of error; hashable, and there must be few
            different ones.
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
        """All is well again: what comes next is new."""
        self._runs.clear()
