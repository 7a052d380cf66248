"""Helpers of the compaction tests: a log directory in memory and a cleaner."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.log.cleaner.cleaner import LogCleaner
from aiokq.broker.log.cleaner.statistics import Statistics
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_state import Origin
from aiokq.core.counters import BrokerCounters
from aiokq.core.environment import Environment
from aiokq.core.files import Files
from aiokq.core.offload import InlineOffload, Offload
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import TRANSACTIONAL_MASK, BatchHeader, iter_headers
from aiokq.records.record import RawRecord, encode_batch
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, TP, fetched, records, replica_of

DAY_MS = 86_400_000


class SteppedClock:
    """A clock that only a test advances."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def timestamp_ms(self) -> int:
        return self.now_ms


def compacted(**changes: object) -> LogConfig:
    """The config of a compacted topic that has a dense index, and is cleaned if little is dirty."""
    defaults = {
        "cleanup_policy": ("compact",),
        "segment_bytes": 1_000_000,
        "index_interval_bytes": 100,
        "min_cleanable_dirty_ratio": 0.0,
    }
    return LogConfig()._replace(**{**defaults, **changes})


class CleanedLog:
    """A partition's log, and a cleaner for it.

    Args:
        settings: settings of the broker, with ``_`` for ``.``.

    Attributes:
        unclean: set by tests that expect the log to be marked as uncleanable.
    """

    def __init__(
        self,
        files: Files | None = None,
        config: LogConfig | None = None,
        *,
        offload: Offload | None = None,
        clock: SteppedClock | None = None,
        path: str = "/data",
        **settings: object,
    ) -> None:
        self.clock = clock or SteppedClock()
        self.unclean = False
        self.files = files or MemoryFiles(now_ms=self.clock.timestamp_ms)
        self.counters = BrokerCounters()
        self.directory = LogDirectory.open(
            self.files, path, crc32c=crc32c, random=random.Random(1), now=self.clock.monotonic
        )
        self.directory.begin()
        self.log: PartitionLog = self.directory.open_partition(
            TP, None, config or compacted(), now_ms=self.clock.now_ms
        )
        self.replica = replica_of(self.log)
        offload = offload or InlineOffload()
        self.cleaner = LogCleaner(
            Environment(self.clock, random.Random(2), None, self.files, offload),
            lambda: broker_settings(settings),
            lambda: [self.directory],
            swapped=lambda: None,
            cold_reads=ColdReads(offload),
            counters=self.counters,
        )

    def put(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        roll: bool = False,
        timestamp_ms: int | None = None,
        origin: Origin = Origin.REPLICATION,
        **options: object,
    ) -> int:
        """Append one batch of keys and values; return the offset of its first record."""
        time = self.clock.now_ms if timestamp_ms is None else timestamp_ms
        data = encode_batch(
            [RawRecord(n, time, key, value) for n, (key, value) in enumerate(pairs)],
            crc32c=crc32c,
            **options,
        )
        return self.append(data, roll=roll, origin=origin)

    def append(
        self, data: bytes, *, roll: bool = False, origin: Origin = Origin.REPLICATION
    ) -> int:
        result = self.replica.append(
            memoryview(data), list(iter_headers(data)), now_ms=self.clock.now_ms, origin=origin
        )
        if roll:
            self.roll()
        return result.base_offset

    def transact(
        self, producer_id: int, sequence: int, *pairs: tuple[bytes, bytes | None], epoch: int = 0
    ) -> int:
        """Append a batch of a transaction, which stays open."""
        return self.put(
            *pairs,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL_MASK,
        )

    def end(self, producer_id: int, kind: ControlType, *, epoch: int = 0) -> int:
        """Append the marker that ends a producer's transaction."""
        return self.append(
            encode_marker(
                EndTransactionMarker(kind, 0),
                producer_id=producer_id,
                producer_epoch=epoch,
                timestamp_ms=self.clock.now_ms,
                crc32c=crc32c,
            )
        )

    def roll(self) -> None:
        """Start a new segment, so that earlier records may be cleaned."""
        self.log.roll(self.clock.now_ms)

    async def clean(self) -> Statistics | None:
        """Run the cleaner once if the log needs it."""
        statistics = await self.cleaner.clean_dirtiest()
        assert self.unclean or not self.counters.uncleanable_partitions.value
        return statistics

    async def clean_again(self) -> None:
        """Run the cleaner as if the whole log were dirty."""
        self.directory.checkpoints.cleaned_offsets.note(TP, self.log.log_start_offset)
        await self.clean()

    @property
    def headers(self) -> list[BatchHeader]:
        """The headers of all batches, empty ones included."""
        return list(iter_headers(fetched(self.log, self.log.log_start_offset)))

    @property
    def records(self) -> list[RawRecord]:
        """All records including control records, with the CRC of each batch checked."""
        return records(fetched(self.log, self.log.log_start_offset))

    @property
    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of every record."""
        return [(r.offset, r.key, r.value) for r in self.records]

    @property
    def latest(self) -> dict[bytes | None, bytes | None]:
        """The newest value of each key, without tombstones."""
        found = {record.key: record.value for record in self.records}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def names(self) -> Sequence[str]:
        """The names in the partition's directory."""
        return self.files.listdir(self.log.directory)
