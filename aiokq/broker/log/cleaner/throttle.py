"""The throttle of compaction: a limit of the bytes per second of all cleaner tasks together.

Source: Kafka ``Throttler.java``. Tests: ``tests/unit/broker/log/test_cleaner_run.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Throttle"]


class Throttle:
    """Limits the rate of reads and writes: a caller waits after it has read or written bytes.

    Args:
        bytes_per_second: returns the current limit.
        now: returns the time of the loop's clock, in seconds.
    """

    def __init__(self, bytes_per_second: Callable[[], float], now: Callable[[], float]) -> None:
        self._rate = bytes_per_second
        self._now = now
        self._free_at = 0.0

    def portion(self, most: int) -> int:
        """Return how many bytes may be processed in 0.1 seconds: at least 1, at most ``most``."""
        return max(1, min(most, int(min(self._rate() / 10, most))))

    async def spent(self, size: int) -> None:
        """Count `size` processed bytes, and wait as the rate requires; always yield to the loop."""
        now = self._now()
        self._free_at = max(now, self._free_at) + size / self._rate()
        await asyncio.sleep(max(self._free_at - now, 0.0))
