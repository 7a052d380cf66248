"""Changes of many partitions let other tasks run, by number and by time."""

from __future__ import annotations

import asyncio

from aiokq.broker.metadata.publisher.pace import PARTITIONS_PER_TURN, Pace
from tests.unit.broker.harness import Broker


class Ticks:
    """Counts how often the loop runs other tasks."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def stop(self) -> int:
        self._task.cancel()
        return self.count


class SlowClock:
    """A clock on which time passes only as the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def timestamp_ms(self) -> int:
        return 1_700_000_000_000


async def test_other_tasks_run_after_a_number_of_partitions() -> None:
    """On a fast disk the time alone would let many partitions through."""
    pace, ticks = Pace(SlowClock()), Ticks()
    for _ in range(10 * PARTITIONS_PER_TURN):
        await pace.handled()
    assert 8 <= ticks.stop() <= 12


async def test_other_tasks_run_after_a_time() -> None:
    """On a slow disk each partition takes long."""
    clock = SlowClock()
    pace, ticks = Pace(clock), Ticks()
    for _ in range(20):
        clock.now += 0.003
        await pace.handled()
    assert 8 <= ticks.stop() <= 12


async def test_a_topic_with_many_partitions_on_a_slow_disk_delays_others_little() -> None:
    """Regression: other requests waited for 32 partitions, up to a second."""
    async with Broker() as broker:
        clock = SlowClock()
        broker.node.storage.publisher._clock = clock
        mkdir = broker.files.mkdirs

        def slow_mkdirs(path: str) -> None:
            clock.now += 0.01
            mkdir(path)

        broker.files.mkdirs = slow_mkdirs
        ticks = Ticks()
        await broker.create("t", 100)
        assert ticks.stop() >= 95
        ticks = Ticks()
        await broker.node.metadata.create_partitions(broker.node.topics.get("t"), 200)
        assert ticks.stop() >= 95
