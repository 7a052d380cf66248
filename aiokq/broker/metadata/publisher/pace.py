"""``Pace``: lets other tasks run while many partitions are created, changed or deleted.

How long one partition takes depends on the disk: creating its files takes from less than a
millisecond to tens of milliseconds. So the time per turn is limited, not only the number of
partitions.

Tests: ``tests/unit/broker/metadata/publisher/test_pace.py``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.core.clock import Clock

__all__ = ["PARTITIONS_PER_TURN", "SECONDS_PER_TURN", "Pace"]

PARTITIONS_PER_TURN: Final = 32
"""Number of handled partitions after which other tasks run."""

SECONDS_PER_TURN: Final = 0.005
"""Seconds after which other tasks run, even if fewer partitions were handled.

A request needs a few iterations of the loop from its receipt to its response, and may have to wait
this long in each of them.
"""


class Pace:
    """Counts the partitions and the time of one job since other tasks last ran."""

    __slots__ = ("_began", "_clock", "_partitions")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._partitions = 0
        self._began = clock.monotonic()

    async def handled(self, partitions: int = 1) -> None:
        """Count partitions that were handled; let other tasks run when a limit is reached."""
        self._partitions += partitions
        if (
            self._partitions >= PARTITIONS_PER_TURN
            or self._clock.monotonic() - self._began >= SECONDS_PER_TURN
        ):
            await asyncio.sleep(0)
            self._partitions = 0
            self._began = self._clock.monotonic()
