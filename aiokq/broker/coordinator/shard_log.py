"""The log of one shard: outcomes appended as batches, and everything replayed at the start.

Owns how records become batches and batches records; when that is done is `runtime`'s matter, what
they mean the shard's.

Source: Kafka ``CoordinatorLoaderImpl.java``, ``CoordinatorRuntime.java``.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.broker.coordinator.group.committed_offsets import NO_PRODUCER
from aiokq.broker.coordinator.group.record_types import CoordinatorRecord, decode_record
from aiokq.broker.coordinator.record_batch import encode_shard_batch
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import ProtocolError
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, read_control_type
from aiokq.records.header import iter_headers
from aiokq.records.record import iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiokq.broker.coordinator.group.shard import GroupShard
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.replica.partition import Partition
    from aiokq.records.header import BatchHeader
    from aiokq.records.record import RawRecord

__all__ = ["ShardLog"]

logger = logging.getLogger("aiokq.broker.coordinator")

READ_BYTES: Final = 256 * 1024
"""Read at a time: enough to make reads rare, little enough to take no time itself."""

RECORDS_PER_TURN: Final = 64
"""Records replayed in one turn of the loop: some two milliseconds."""

RECORD_OVERHEAD: Final = 32
"""More than a record of a batch is larger than its key and value."""


class _EncodedRecord(NamedTuple):
    record: CoordinatorRecord
    key: bytes
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"") + RECORD_OVERHEAD


class ShardLog:
    """One partition of `__consumer_offsets` as its coordinator uses it."""

    def __init__(self, partition: Partition, cold_reads: ColdReads) -> None:
        self._partition = partition
        self._cold_reads = cold_reads

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to replay."""
        log = self._partition.log
        return log.log_start_offset == log.log_end_offset

    @property
    def is_offline(self) -> bool:
        """Whether a failed disk keeps it from being written until the broker starts anew."""
        return not self._partition.is_online or self._partition.log.failed

    async def durable(self) -> None:
        """Wait until what was appended is committed.

        Raises:
            KafkaStorage: the disk refused.
        """
        await self._partition.committed(self._partition.log.log_end_offset)

    # writing

    def append(
        self, records: Sequence[CoordinatorRecord], *, atomic: bool, now_ms: int
    ) -> Iterator[tuple[int, CoordinatorRecord]]:
        """Append records, and give each with its offset once its batch is in the log.

        Args:
            atomic: all in one batch; else in as many as the topic's max.message.bytes asks for.

        Raises:
            KafkaStorage: the disk refused; what was given before is in the log.
            RecordTooLarge: a batch has more than max.message.bytes.
        """
        for batch in self._batches(records, atomic):
            data, header = encode_shard_batch(
                [(encoded.key, encoded.value) for encoded in batch], now_ms=now_ms, crc32c=crc32c
            )
            result = self._partition.append(
                memoryview(data), [header], now_ms=now_ms, origin=Origin.COORDINATOR
            )
            for index, encoded in enumerate(batch):
                yield result.base_offset + index, encoded.record

    def _batches(
        self, records: Sequence[CoordinatorRecord], atomic: bool
    ) -> Iterator[list[_EncodedRecord]]:
        encoded = [_EncodedRecord(record, *record.encode()) for record in records]
        if atomic:
            yield encoded
            return
        room = self._partition.topic.config.max_message_bytes
        batch: list[_EncodedRecord] = []
        size = RECORD_OVERHEAD * 2  # the batch's own header
        for one in encoded:
            if batch and size + one.size > room:
                yield batch
                batch, size = [], RECORD_OVERHEAD * 2
            batch.append(one)
            size += one.size
        yield batch

    # reading

    async def replay(self, shard: GroupShard) -> int:
        """Give the shard everything that is in the log; the number of records.

        The loop has its turns in between. Nobody may append meanwhile.

        Raises:
            KafkaStorage: the log cannot be read.
            CorruptRecord: a batch is damaged.
        """
        log = self._partition.log
        offset, end = log.log_start_offset, log.log_end_offset
        count = 0
        while offset < end:
            look = functools.partial(log.read, offset, READ_BYTES, upper_bound=end)
            read = await self._cold_reads.read(look)
            data = memoryview(await self._cold_reads.content(read.fragments))
            if not data:
                break  # compaction has taken the last ones; their offsets are all that is left
            position = 0
            for header in iter_headers(data):
                batch = data[position : position + header.size]
                position += header.size
                for record in iter_records(batch, header):
                    if record.offset >= offset:
                        self._replay_one(shard, header, record)
                    count += 1
                    if count % RECORDS_PER_TURN == 0:
                        await asyncio.sleep(0)
                offset = header.next_offset
            await asyncio.sleep(0)
        return count

    def _replay_one(self, shard: GroupShard, header: BatchHeader, record: RawRecord) -> None:
        if header.is_control:
            kind = read_control_type(record.key)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                shard.end_transaction(header.producer_id, committed=kind == ControlType.COMMIT)
            return
        try:
            decoded = decode_record(record.key, record.value)
        except ProtocolError as error:
            # One group's record, or one offset: worse than that would be no group at all.
            logger.error(
                "record is not readable and ignored: partition=%s offset=%d error=%s",
                self._partition.name,
                record.offset,
                error,
            )
            return
        if decoded is not None:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            shard.replay(decoded, offset=record.offset, producer_id=producer_id)
