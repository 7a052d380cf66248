"""The log of one shard: appends records as batches, and replays the whole log when it is loaded.

Source: Kafka ``CoordinatorLoaderImpl.java``, ``CoordinatorPartitionWriter.scala``.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.record_batch import decode_record_batch, encode_record_batch
from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.broker.log.appending import OwnAppend
from aiokq.broker.replica.admission import admit_own
from aiokq.broker.replica.commits import ALL, LEADER
from aiokq.broker.replica.marker_append import append_marker
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, read_control_type
from aiokq.records.header import iter_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiokq.broker.coordinator.definition import ShardFactory
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.shard import Shard, ShardLoad, TransactionalProducer
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.errors import ProtocolError
    from aiokq.core.types import TopicPartition

__all__ = ["ShardLog"]

logger = logging.getLogger("aiokq.broker.coordinator")

READ_BYTES: Final = 256 * 1024
"""Bytes per read: large enough that few reads are needed, small enough that each read is short."""

RECORD_OVERHEAD: Final = 32
"""Upper bound of the bytes that a record takes in a batch besides its key and value."""


class ShardLog:
    """One partition of a coordinator's topic, during one leadership of this node.

    Args:
        factory: encodes the records.
        leader_epoch: the leader epoch of this leadership; appends and waits fail once the partition
            has a later epoch.
        commit_timeout: seconds for which ``committed`` waits for other replicas.
    """

    def __init__(
        self,
        partition: Partition,
        factory: ShardFactory[Shard],
        cold_reads: ColdReads,
        leader_epoch: int,
        *,
        commit_timeout: float,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._factory = factory
        self._cold_reads = cold_reads
        self._commit_timeout = commit_timeout

    @property
    def name(self) -> TopicPartition:
        return self.partition.name

    @property
    def is_empty(self) -> bool:
        """Whether the log has no records to replay."""
        log = self.partition.log
        return log.log_start_offset == log.log_end_offset

    @property
    def is_offline(self) -> bool:
        """Whether this node does not lead the partition, or cannot use its log."""
        partition = self.partition
        return partition.unavailable is not None or partition.log.failed

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.partition.log.log_end_offset

    @property
    def commits_late(self) -> bool:
        """Whether the commit of an append may have to wait, for a sync or for other replicas."""
        return self.partition.commits_late(ALL)

    def is_committed(self, offset: int) -> bool:
        """Whether this leadership lasts and the records before an offset are committed."""
        partition = self.partition
        return (
            partition.is_online
            and partition.leader_epoch == self.leader_epoch
            and partition.high_watermark >= offset
        )

    async def committed(self, offset: int) -> None:
        """Wait until the records before an offset are committed.

        The commit timeout begins when the leader's flush policy is met, as in Kafka, where an
        append flushes before it returns.

        Raises:
            RequestTimeout: the other in-sync replicas have not fetched the records in time. The
                records stay in the log and may be committed later.
            KafkaStorage: the records could not be synced to disk, or the log was closed.
            NotLeaderOrFollower: this leadership is over.
            UnknownTopicOrPartition: the partition was deleted.
        """
        commits, epoch = self.partition.commits, self.leader_epoch
        await commits.acknowledged(offset, LEADER, epoch)
        deadline = asyncio.get_running_loop().time() + self._commit_timeout
        await commits.committed(offset, epoch, deadline)

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        *,
        atomic: bool,
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> Iterator[tuple[int, CoordinatorRecord]]:
        """Append records; yield each record and its offset once its batch is in the log.

        If an error is raised, the records that were yielded before are in the log.

        Args:
            atomic: whether all records go into one batch; if not, they go into as many batches as
                max.message.bytes requires.
            producer: the producer in whose transaction the records are written.

        Raises:
            NotLeaderOrFollower: this leadership is over.
            UnknownTopicOrPartition: the partition was deleted.
            NotEnoughReplicas: too few replicas are in sync to commit the records.
            KafkaStorage: the log cannot be used, or the disk failed.
            RecordTooLarge, RecordBatchTooLarge: a batch is larger than max.message.bytes, or larger
                than segment.bytes.
            ProtocolError: a record cannot be encoded; nothing was appended.
        """
        pairs = [self._factory.encode(record) for record in records]
        begin = 0
        for end in (len(pairs),) if atomic else self._ends(pairs):
            data, header = encode_record_batch(
                pairs[begin:end], now_ms=now_ms, crc32c=crc32c, producer=producer
            )
            admit_own(self.partition, header, self.leader_epoch)
            appended = self.partition.append_prepared(OwnAppend(memoryview(data), header, now_ms))
            for index in range(begin, end):
                yield appended.base_offset + index - begin, records[index]
            begin = end

    def append_marker(
        self,
        producer: TransactionalProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
        *,
        now_ms: int,
    ) -> None:
        """Append the marker that ends a producer's transaction in this partition.

        Raises:
            NotLeaderOrFollower: this leadership is over.
            BrokerError: see `replica.marker_append.append_marker`; nothing was appended.
        """
        append_marker(
            self.partition,
            marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )

    def _ends(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> Iterator[int]:
        """Yield the index after the last record of each batch.

        A batch is larger than max.message.bytes only if it has a single record.
        """
        room = self.partition.topic.config.max_message_bytes
        header = size = RECORD_OVERHEAD * 2
        for index, (key, value) in enumerate(pairs):
            added = len(key) + len(value or b"") + RECORD_OVERHEAD
            if size > header and size + added > room:
                yield index
                size = header
            size += added
        yield len(pairs)

    async def replay(self, shard: Shard) -> int:
        """Replay the whole log into the shard; return the number of records.

        Other tasks run after each read, and each time `records_per_turn` records were replayed.
        Nothing may be appended until the replay ends.

        Raises:
            KafkaStorage, OSError, EOFError: the log cannot be read.
            CorruptRecord, RecordTooLarge, UnsupportedCompressionType: a batch cannot be decoded.
        """
        log = self.partition.log
        load = shard.load(self._unreadable)
        offset, end = log.log_start_offset, log.log_end_offset
        count = 0
        while offset < end:
            look = functools.partial(log.read, offset, READ_BYTES, upper_bound=end)
            read = await self._cold_reads.read(look)
            data = bytes(await self._cold_reads.content(read.fragments))
            if not data:
                break  # compaction removed the last records, so no batch has their offsets
            position = 0
            for header in iter_headers(data):
                records = decode_record_batch(data, position, header)
                position += header.size
                producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
                for at, key, value in records:
                    if at >= offset:
                        if header.is_control:
                            _end_transaction(load, header.producer_id, key)
                        else:
                            load.add(at, key, value, producer_id)
                    count += 1
                    if count % load.records_per_turn == 0:
                        await asyncio.sleep(0)
                offset = header.next_offset
            await asyncio.sleep(0)
        for _ in load.finish():
            await asyncio.sleep(0)
        return count

    def _unreadable(self, offset: int, error: ProtocolError) -> None:
        logger.error(
            "unreadable record is ignored: partition=%s offset=%d error=%s",
            self.partition.name,
            offset,
            error,
        )


def _end_transaction(load: ShardLoad, producer_id: int, key: bytes | None) -> None:
    kind = read_control_type(key)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        load.end_transaction(producer_id, committed=kind == ControlType.COMMIT)
