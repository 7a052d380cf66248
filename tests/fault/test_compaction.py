"""Compaction of many keyed records during reads and writes, with real files and threads."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from pathlib import Path

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.log.batch_reading import read_batches
from aiokq.broker.log.cleaner.cleaner import LogCleaner
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.connection.network import system_environment
from aiokq.core.counters import BrokerCounters
from aiokq.core.files import OsFiles
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.fastpath.consume import Cursor
from aiokq.records.codecs import RecordCodecs
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch
from tests.peers.memory import resident_bytes
from tests.unit.broker.log.samples import replica_of

TP = TopicPartition("crowd", 0)
CODECS = RecordCodecs()
KEYS_PER_RECORD = 0.05
BATCH = 100


class Crowd:
    """A log, a writer, readers and a cleaner."""

    def __init__(self, path: Path, count: int, seed: int) -> None:
        self.count = count
        self.rng = random.Random(seed)
        self.environment = system_environment()
        self.config = LogConfig()._replace(
            cleanup_policy=("compact",),
            segment_bytes=max(count * 12, 1 << 20),
            min_cleanable_dirty_ratio=0.2,
            file_delete_delay_ms=0,
        )
        self.directory = LogDirectory.open(
            OsFiles(), str(path), crc32c=crc32c, random=random.Random(1), now=time.monotonic
        )
        self.directory.begin()
        self.log: PartitionLog = self.directory.open_partition(
            TP, None, self.config, now_ms=self.now_ms()
        )
        self.replica = replica_of(self.log)
        self.model: dict[bytes, tuple[int, bytes | None]] = {}
        self.runs = 0
        self.ran = asyncio.Event()
        self.peak = 0
        self.cold_reads = ColdReads(self.environment.offload)
        self.cleaner = LogCleaner(
            self.environment,
            lambda: broker_settings({"log.cleaner.dedupe.buffer.size": 4_000_000}),
            lambda: [self.directory],
            swapped=lambda: None,
            cold_reads=self.cold_reads,
            counters=BrokerCounters(),
        )

    def now_ms(self) -> int:
        return self.environment.clock.timestamp_ms()

    async def write(self, waits: int = 0) -> None:
        """Append the records; at `waits` evenly spread points, wait for a run of the cleaner."""
        keys = max(int(self.count * KEYS_PER_RECORD), 1)
        batches = self.count // BATCH
        pauses = {batches * (n + 1) // (waits + 1) for n in range(waits)}
        for number in range(batches):
            if number in pauses:
                await self.compacted()
            batch = []
            for n in range(BATCH):
                key = b"key-%d" % self.rng.randrange(keys)
                value = None if self.rng.random() < 0.1 else self.rng.randbytes(24)
                batch.append(RawRecord(n, self.now_ms(), key, value))
            data = encode_batch(batch, crc32c=crc32c, codec=self.rng.choice((0, 0, 0, 4)))
            base = self.replica.append(
                memoryview(data), list(iter_headers(data)), now_ms=self.now_ms()
            ).base_offset
            for n, record in enumerate(batch):
                assert record.key is not None
                self.model[record.key] = (base + n, record.value)
            await asyncio.sleep(0)
        self.log.roll(self.now_ms())

    async def compacted(self) -> None:
        """Roll the log and wait for a run of the cleaner, however slow the machine is."""
        self.log.roll(self.now_ms())
        self.ran.clear()
        await self.ran.wait()

    async def read(self, pause: float) -> dict[bytes, tuple[int, bytes | None]]:
        """Read from the beginning to the end of the log; return the last record of each key."""
        found: dict[bytes, tuple[int, bytes | None]] = {}
        offset = 0
        while offset < self.count:
            look = functools.partial(self.log.read, offset, 1 << 20)
            read = await self.cold_reads.read(look)
            if not read.size:
                offset = max(offset, min(self.log.log_end_offset, self.count))
                await asyncio.sleep(0.002)
                continue
            data = await self.environment.offload.run(
                lambda fragments: b"".join(f.read() for f in fragments), read.fragments
            )
            cursor = Cursor("crowd", 0, data, start_offset=offset, codecs=CODECS)
            for record in cursor:
                assert record.offset >= offset, "an offset that was seen came again"
                found[record.key] = (record.offset, record.value)
                offset = record.offset + 1
            offset = max(offset, cursor.position)
            await asyncio.sleep(pause)
        return found

    async def clean(self, done: asyncio.Event) -> None:
        while not done.is_set():
            if await self.cleaner.clean_dirtiest() is not None:
                self.runs += 1
                self.ran.set()
                for _, remove in self.directory.removals(0):
                    await self.environment.offload.run(remove)
            self.peak = max(self.peak, resident_bytes())
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        done = asyncio.Event()
        async with Supervisor("crowd") as supervisor:
            cleaning = supervisor.spawn(self.clean(done), name="cleaner")
            readers = [
                supervisor.spawn(self.read(pause), name=f"reader {pause}")
                for pause in (0.0, 0.001, 0.01)
            ]
            await supervisor.spawn(self.write(waits=2), name="writer")
            results = [await reader for reader in readers]
            done.set()
            await cleaning
        while await self.cleaner.clean_dirtiest() is not None:
            self.runs += 1
        for found in results:
            self.check(found)
        self.check(self.all_records())

    def check(self, found: dict[bytes, tuple[int, bytes | None]]) -> None:
        """Compare the last record of each key, as a reader found it, with the model."""
        assert found.keys() == self.model.keys()
        assert found == self.model

    def all_records(self) -> dict[bytes, tuple[int, bytes | None]]:
        found: dict[bytes, tuple[int, bytes | None]] = {}
        last = -1
        for _, data in read_batches(self.log.read(0, 1 << 40).fragments):
            cursor = Cursor("crowd", 0, data, start_offset=0, codecs=CODECS)
            for record in cursor:
                assert record.offset > last
                last = record.offset
                found[record.key] = (record.offset, record.value)
        return found

    def close(self) -> None:
        self.directory.close()
        self.environment.offload.close()


@pytest.mark.parametrize(
    "count",
    [60_000, pytest.param(1_000_000, marks=[pytest.mark.torture, pytest.mark.timeout(600)])],
)
async def test_keyed_records_are_compacted_under_readers_and_a_writer(
    count: int, tmp_path: Path
) -> None:
    """Readers during and after compaction find the same final state per key as the model."""
    crowd = Crowd(tmp_path, count, seed=count)
    before = resident_bytes()
    try:
        await crowd.run()
        assert crowd.runs > 2
        # One record per key is left, times three: for headers, and for newest segments whose dirty
        # ratio was too small.
        assert crowd.log.size_bytes < count * 15
        assert crowd.peak - before < 150_000_000
    finally:
        crowd.close()
