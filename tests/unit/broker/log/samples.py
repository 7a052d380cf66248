"""Shared by the tests of the log: batches, and a log on a disk in memory."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import TypeVar

from aiokq.broker.log.appending import AppendResult
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.disk_load import ColdRead
from aiokq.broker.log.disk_trouble import DiskTrouble
from aiokq.broker.log.open_files import OpenFiles
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.log.recovery import open_log
from aiokq.broker.replica.partition import Partition
from aiokq.broker.replica.served_topic import ProduceLimits
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests.sim.harness.files import MemoryFiles

R = TypeVar("R")

TP = TopicPartition("orders", 0)
DIRECTORY = "/data/orders-0"
NOW_MS = 1_700_000_000_000


def config(**changes: object) -> LogConfig:
    """Return Kafka's defaults with these changes."""
    return LogConfig()._replace(**changes)


def batch(
    *values: bytes,
    timestamp_ms: int = NOW_MS,
    step_ms: int = 0,
    key: bytes | None = b"k",
    **options: object,
) -> bytes:
    """Return a batch as a producer sends it."""
    records = [
        RawRecord(index, timestamp_ms + index * step_ms, key, value)
        for index, value in enumerate(values or (b"value",))
    ]
    return encode_batch(records, crc32c=crc32c, **options)


def open_partition(
    files: MemoryFiles, *, clean: bool = True, now_ms: int = NOW_MS, **options: object
) -> PartitionLog:
    """Open the log in DIRECTORY; `options` are keywords of `open_log`, and else of `config`."""
    extra = {
        name: options.pop(name)
        for name in (
            "log_start_offset",
            "high_watermark",
            "recovery_point",
            "gaps_before",
            "progress",
        )
        if name in options
    }
    log = open_log(
        files,
        DIRECTORY,
        TP,
        config=config(**options),
        crc32c=crc32c,
        now_ms=now_ms,
        disk=DiskTrouble(lambda: 0.0),
        open_files=OpenFiles(),
        clean=clean,
        **extra,
    )
    if "high_watermark" not in extra:
        log.high_watermark = log.log_end_offset  # as a single replica would
    return log


class ATopic:
    """A topic as its partitions use it."""

    topic_id = uuid.UUID(int=1)
    kafka_epochs = ()

    def __init__(self, name: str, config: LogConfig, *, is_internal: bool = False) -> None:
        self.name = name
        self.is_internal = is_internal
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self.limits = ProduceLimits.of(config, is_internal=self.is_internal)


def replica_of(log: PartitionLog, *, replicas: tuple[int, ...] = (0,)) -> Partition:
    """Return the partition of a log, led by node 0."""
    name, index = log.topic_partition
    partition = Partition.unopened(ATopic(name, log.config), index, replicas)
    partition.bring_online(log, 0, max(log.epochs.latest_epoch, 0))
    return partition


def append(
    log: PartitionLog,
    data: bytes,
    *,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
    origin: Origin = Origin.CLIENT,
) -> AppendResult:
    """Append a producer's batch, which is committed at once as with a single replica."""
    result = log.append(
        memoryview(data),
        list(iter_headers(data)),
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        origin=origin,
    )
    log.high_watermark = log.log_end_offset
    return result


def seen(look: Callable[[], R]) -> R:
    """Return the result of `look`, after reading from disk what it needs."""
    while True:
        try:
            return look()
        except ColdRead as cold:
            for load in cold.loads:
                load.segment.loaded(load.what, load.outcome())


def fetched(log: PartitionLog, offset: int = 0, max_bytes: int = 2**31, **options: object) -> bytes:
    """The bytes that a replica's fetch returns; with ``upper_bound=None``, a consumer's fetch."""
    options.setdefault("upper_bound", log.log_end_offset)
    read = seen(lambda: log.read(offset, max_bytes, **options))
    data = b"".join(fragment.read() for fragment in read.fragments)
    assert len(data) == read.size
    return data


def records(data: bytes) -> list[RawRecord]:
    """Return the records in fetched bytes, with the CRC of each batch checked."""
    found: list[RawRecord] = []
    position = 0
    for header in iter_headers(data):
        part = data[position : position + header.size]
        assert crc32c(part[21:]) == header.crc
        found += iter_records(part, header)
        position += header.size
    assert position == len(data)
    return found


def values(log: PartitionLog, offset: int = 0) -> list[tuple[int, bytes | None]]:
    """Return offsets and values of all records from ``offset`` on."""
    return [(record.offset, record.value) for record in records(fetched(log, offset))]


def record_since(log: PartitionLog, timestamp_ms: int) -> tuple[int, int, int] | None:
    """Return timestamp, offset and epoch of the first record not earlier than a time."""
    offset = 0
    while (
        search := seen(functools.partial(log.search_timestamp, timestamp_ms, offset))
    ) is not None:
        found = search.run()
        if found is not None:
            return found.timestamp_ms, found.offset, log.epoch_for_offset(found.offset)
        offset = search.end_offset
    return None
