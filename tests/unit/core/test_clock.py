"""The system's clock."""

from __future__ import annotations

import asyncio
import time

from aiokq.core.clock import SystemClock


async def test_monotonic_agrees_with_the_loop():
    """Deadlines are computed with the clock, and timers are set on the loop."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    now = SystemClock().monotonic()
    assert before <= now <= loop.time()


def test_timestamps_are_milliseconds_of_the_epoch():
    """A wrong unit would give records timestamps in 1970."""
    assert abs(SystemClock().timestamp_ms() - time.time() * 1000) < 60_000
