"""Owns how fast compaction reads and writes: bytes per second, of all its tasks together.

Source: Kafka ``Throttler.java``. Tests: ``tests/unit/broker/log/test_cleaner_run.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Throttle"]


class Throttle:
    """Makes those who spent bytes wait until they were due.

    Args:
        bytes_per_second: asked each time.
        now: seconds, the loop's clock or one that goes with it.
    """

    def __init__(self, bytes_per_second: Callable[[], float], now: Callable[[], float]) -> None:
        self._rate = bytes_per_second
        self._now = now
        self._free_at = 0.0

    def portion(self, most: int) -> int:
        """How many bytes to spend before the next wait: of a tenth of a second, or ``most``."""
        return max(1, min(most, int(min(self._rate() / 10, most))))

    async def spent(self, size: int) -> None:
        """Wait until these bytes are paid for; without a limit only the loop has its turn."""
        now = self._now()
        self._free_at = max(now, self._free_at) + size / self._rate()
        await asyncio.sleep(max(self._free_at - now, 0.0))
