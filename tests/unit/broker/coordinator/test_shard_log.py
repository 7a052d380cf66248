"""Reading the log of a shard after compaction."""

from __future__ import annotations

import asyncio

from aiokq.broker.coordinator.shard_log import ShardLog
from aiokq.broker.coordinator.timers import Timers
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.log_reading import LogRead
from aiokq.core.offload import InlineOffload
from tests.unit.broker.coordinator.counter import CounterShard


class CompactedLog:
    """A log that ends at offset 10, and whose records before that were all compacted away."""

    log_start_offset, log_end_offset, failed = 0, 10, False

    def __init__(self):
        self.reads = 0

    def read(self, offset, max_bytes, *, upper_bound):
        self.reads += 1
        assert self.reads < 3
        return LogRead([], 0)


class OnePartition:
    name = "__consumer_offsets-0"

    def __init__(self):
        self.log = CompactedLog()


async def test_a_log_whose_last_records_were_compacted_away_is_loaded():
    """Regression: the load never ended, and groups got COORDINATOR_LOAD_IN_PROGRESS for ever."""
    async with asyncio.timeout(5):
        log = ShardLog(OnePartition(), None, ColdReads(InlineOffload()), 0, commit_timeout=5)
        assert await log.replay(CounterShard(Timers(), 0)) == 0
