"""RecordAppender: the calls that append records and may wait for buffer memory or metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

from aiokq.core import limits
from aiokq.core.errors import (
    BufferFull,
    ConfigError,
    KafkaError,
    RecordTooLarge,
    UnknownTopicOrPartition,
    copy_error,
)
from aiokq.core.types import Buffer, TopicPartition
from aiokq.fastpath.produce import HandlerResults
from aiokq.fastpath.produce.refusals import bad_record
from aiokq.producer.batch_builder import record_size
from aiokq.producer.buffer_memory_waiters import BufferMemoryWaiters
from aiokq.producer.deliveries import Deliveries
from aiokq.producer.gathered_deliveries import GatheredDeliveries
from aiokq.producer.missing_topics import no_partition
from aiokq.producer.producer_metadata import ProducerMetadata
from aiokq.producer.record_hooks import (
    BufferFullAfterHooks,
    PartitionsNotYetKnown,
    PreparedRecord,
    RecordHooks,
    UnknownPartitionAfterHooks,
)
from aiokq.producer.serializers import Headers

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.fastpath.produce import Accumulator, Delivery, RecordColumns, RecordTuple
    from aiokq.fastpath.produce import Deliveries as NativeDeliveries
    from aiokq.producer.batch_builder import BatchBuilder
    from aiokq.producer.batch_completion import BatchCompletion
    from aiokq.producer.internal_errors import InternalErrors
    from aiokq.producer.partition_queues import PartitionQueues
    from aiokq.producer.values import ProducerValues

__all__ = ["RecordAppender", "ManyRecord", "SendNowait"]

T = TypeVar("T")

BATCH_OVERHEAD: Final = 128
"""Upper bound, in bytes, of the size of a batch whose only record has no key, value or headers."""

ManyRecord: TypeAlias = (
    tuple[object, object]
    | tuple[object, object, Headers | None]
    | tuple[object, object, Headers | None, int | None]
)
"""A record for `send_many`.

The tuple is (key, value), (key, value, headers) or (key, value, headers, timestamp_ms).
"""
_Row: TypeAlias = tuple[object, object, Headers | None, int | None, int | None]
"""A record for `_append_rows`: (key, value, headers, timestamp_ms, partition)."""


class SendNowait(Protocol):
    """The signature of `Producer.send_nowait`."""

    def __call__(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accept a record without waiting, if there is buffer memory for it.

        Context: the event loop; does not wait.

        Args:
            topic: name of the topic.
            value: the value; None deletes the key in a compacted topic.
            key: determines the partition, as in Java; records without a key are spread over the
                partitions.
            partition: number of the partition; overrides the key and the partitioner.
            timestamp_ms: milliseconds since 1970; the time of this call if not given.
            headers: (name, value) pairs.

        Returns:
            The Delivery, to be awaited or ignored.

        Raises:
            BufferFull: buffer_memory is full, or other calls wait for it: await `enqueue`.
            RecordTooLarge: the record is larger than max_request_size or buffer_memory.
            UnknownTopicOrPartition: the topic has no such partition, or a partitioner is set and
                the topic's metadata is not known yet: await `enqueue`.
            ConfigError: the partitioner chose a partition that the topic does not have, or a
                transactional producer has no open transaction.
            KafkaError: the transaction cannot be committed.
            InvalidTopic: `topic` is not a valid topic name.
            Closed: the producer is not started, or closed.
            WrongLoop: the call was made outside of the loop that the producer was started on.
            ValueError: `partition` is not from 0 to 2**31 - 1, or `timestamp_ms` not from 0 to
                2**63 - 1.
            TypeError: a key or value that is not bytes-like, without a serializer for it; a number
                that is not an int; headers that are not (name, value) pairs.
            others: the exceptions of serializers and of the partitioner.
        """
        ...


class RecordAppender:
    """Appends records to the accumulator; waits for memory and metadata if necessary.

    Args:
        spawn: starts a task that belongs to the producer.

    Attributes:
        metadata: the metadata of the topics that records were appended to.
    """

    def __init__(
        self,
        settings: ProducerValues,
        engine: ClusterEngine,
        accumulator: Accumulator,
        queues: PartitionQueues,
        completion: BatchCompletion,
        internal_errors: InternalErrors,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._accumulator = accumulator
        self._queues = queues
        self._hooks = (
            RecordHooks(settings, engine, accumulator) if RecordHooks.wanted(settings) else None
        )
        self._memory_waiters = BufferMemoryWaiters(
            accumulator.has_memory, self._set_waiting, settings.max_block
        )
        patience = min(settings.max_block, settings.delivery_timeout)
        max_idle = settings.metadata_max_idle_ms / 1000
        self.metadata = ProducerMetadata(
            engine, accumulator, queues, completion, internal_errors, patience, max_idle, spawn
        )
        self._refusal: KafkaError | None = None
        """The last error that was passed to `refuse`; None before the first refusal."""
        self._refusals = 0
        """The number of errors that were passed to `refuse`."""

    @property
    def send_nowait(self) -> SendNowait:
        """`RecordHooks.append` if there are hooks, else `Accumulator.append`; neither waits."""
        append = self._accumulator.append if self._hooks is None else self._hooks.append
        return cast("SendNowait", append)

    def handler_results(self, *, holds: bool) -> HandlerResults[Any]:
        """Return an empty HandlerResults; with hooks, the caller has to send the results itself."""
        return HandlerResults(self._accumulator, self._hooks is None, holds)

    def memory_freed(self) -> None:
        """Grant waiting calls the memory that the accumulator has freed."""
        self._memory_waiters.freed()

    def refuse(self, error: KafkaError | None) -> None:
        """Refuse records with copies of `error`; accept records again if `error` is None.

        If a call is waiting at the time of a refusal, the call fails, even if records are accepted
        again before the call continues. Otherwise its record would become part of another
        transaction.
        """
        self._accumulator.refuse(error)
        if error is not None:
            self._refusal = error
            self._refusals += 1
            self._memory_waiters.fail(error)

    def close(self, error: KafkaError) -> None:
        """Refuse new records; the calls that wait for memory or metadata fail with `error`."""
        self._accumulator.close()
        self._memory_waiters.fail(error)
        self.metadata.refuse(error)

    async def append(
        self,
        refusal: KafkaError,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> Delivery:
        """Append a record, waiting for memory and metadata if necessary.

        Args:
            refusal: the error that `send_nowait` raised. If it has a prepared record, that record
                is appended, and interceptors and serializers are not called.
        """
        self._accumulator.check_accepts()
        turn = self._refusals
        hooks = self._hooks
        if isinstance(
            refusal, BufferFullAfterHooks | UnknownPartitionAfterHooks | PartitionsNotYetKnown
        ):
            record = refusal.record  # interceptors and serializers must not be called again
        elif hooks is not None:
            record = hooks.prepare(topic, value, key, partition, timestamp_ms, headers)
        else:
            # No check here: the accumulator raises TypeError for a value that is not bytes-like.
            data, key_data = cast("Buffer | None", value), cast("Buffer | None", key)
            record = PreparedRecord(topic, data, key_data, partition, timestamp_ms, headers)
        if hooks is not None:
            if hooks.needs_metadata and record.partition is None:
                await self.metadata.find(record.topic)
                self._check_turn(turn)
            record = hooks.place(record)
        return await self._append_known(record, turn)

    async def append_serialized(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> Delivery:
        """Append a record without calling interceptors and serializers."""
        # No check here: the accumulator raises TypeError for a value that is not bytes-like.
        data, key_data = cast("Buffer | None", value), cast("Buffer | None", key)
        record = PreparedRecord(topic, data, key_data, partition, timestamp_ms, headers)
        return await self.append(BufferFullAfterHooks(record), *record)

    async def append_many(
        self, topic: str, records: Iterable[ManyRecord], partition: int | None
    ) -> Deliveries:
        """Append records in order, waiting for memory as often as necessary."""
        if not isinstance(records, list | tuple):
            from aiokq.core.arguments import list_argument  # imported late: few calls need it

            records = list_argument(records, "send_many(records)", "[(b'key', b'value')]")
        turn = self._refusals
        if self._hooks is not None:
            return await self._append_prepared(self._hooks, topic, records, partition)
        batch = cast("Sequence[RecordTuple]", records)
        append_many = self._accumulator.append_many
        try:
            deliveries, done = append_many(topic, batch, partition)
        except UnknownTopicOrPartition:
            if partition is None:
                raise
            await self._look_for(topic, partition)
            self._check_turn(turn)
            deliveries, done = append_many(topic, batch, partition)
        while done < len(batch):
            start = done

            def append_more(into: NativeDeliveries = deliveries, start: int = start) -> int:
                _, reached = append_many(
                    topic, batch, partition, start=start, into=into, waited=True
                )
                if reached == start:
                    raise BufferFull
                return reached

            key, value, headers, _ = _parts(cast("ManyRecord", batch[start]), start)
            done = await self._wait_for_memory(record_size(key, value, headers), append_more, turn)
        return deliveries

    async def append_columns(self, topic: str, columns: RecordColumns) -> Deliveries:
        """Append the rows of `columns` in order, waiting for memory as often as necessary."""
        if self._hooks is not None:
            rows = (columns.record(n) for n in range(len(columns)))
            return await self._append_rows(self._hooks, topic, rows)
        turn = self._refusals
        append_columns = self._accumulator.append_columns
        try:
            deliveries, done = append_columns(topic, columns)
        except UnknownTopicOrPartition as error:
            place = error.topic_partition
            if not isinstance(place, TopicPartition):
                raise
            await self._look_for(topic, place.partition)
            self._check_turn(turn)
            deliveries, done = append_columns(topic, columns)
        while done < len(columns):
            start = done

            def append_more(into: NativeDeliveries = deliveries, start: int = start) -> int:
                _, reached = append_columns(topic, columns, start=start, into=into, waited=True)
                if reached == start:
                    raise BufferFull
                return reached

            done = await self._wait_for_memory(columns.size(start), append_more, turn)
        return deliveries

    def append_columns_nowait(self, topic: str, columns: RecordColumns) -> Deliveries:
        """Append all rows of `columns`, or none; see `Producer.send_columns_nowait`."""
        if self._hooks is not None:
            raise ConfigError(
                "send_columns_nowait() calls no interceptors, serializers or partitioner: await "
                "send_columns()"
            )
        accumulator = self._accumulator
        # In the worst case, each row opens a batch, or enlarges an open batch to `batch_size`.
        _, most = columns.fitting(
            None, limits.INT64_MAX, overhead=accumulator.batch_size + BATCH_OVERHEAD
        )
        if accumulator.waiting or not accumulator.has_memory(most):
            raise BufferFull("buffer_memory may not suffice for all rows: await send_columns()")
        deliveries, _ = accumulator.append_columns(topic, columns)
        return deliveries

    async def append_batch(self, batch: BatchBuilder, topic: str, partition: int) -> Deliveries:
        """Append the records of `batch` as one batch, after waiting for metadata and memory."""
        if batch.size() > self._accumulator.buffer_memory:
            raise RecordTooLarge("the batch is larger than buffer_memory", topic_partition=topic)
        turn = self._refusals
        await self._look_for(topic, partition)
        self._check_turn(turn)

        def put() -> Deliveries:
            return GatheredDeliveries(self._queues.put(topic, partition, batch.records))

        if not self._accumulator.waiting and self._accumulator.has_memory(batch.size()):
            return put()
        return await self._wait_for_memory(batch.size(), put, turn)

    def _check_turn(self, turn: int) -> None:
        """Raise a copy of the error that was passed to `refuse` since a call began, if any.

        Args:
            turn: the value of `_refusals` when the call began.
        """
        if self._refusals != turn:
            assert self._refusal is not None
            raise copy_error(self._refusal)

    async def _append_known(self, record: PreparedRecord, turn: int) -> Delivery:
        """Append a record; if its partition is unknown, refresh the metadata and try again."""
        try:
            return await self._append(record, turn)
        except UnknownTopicOrPartition:
            if record.partition is None:
                raise
            await self._look_for(record.topic, record.partition)
        return await self._append(record, turn)

    async def _look_for(self, topic: str, partition: int) -> None:
        """Raise UnknownTopicOrPartition if the topic lacks the partition even after a refresh."""
        info = await self.metadata.find(topic, partition=partition)
        if partition not in info.partitions:
            raise no_partition(info, partition)

    async def _append(self, record: PreparedRecord, turn: int) -> Delivery:
        self._check_turn(turn)
        try:
            return self._accumulator.append(*record)
        except BufferFull:
            return await self._wait_for_memory(
                record_size(record.key, record.value, record.headers),
                partial(self._accumulator.append_waited, *record),
                turn,
            )

    async def _append_prepared(
        self,
        hooks: RecordHooks,
        topic: str,
        records: Iterable[ManyRecord],
        partition: int | None,
    ) -> Deliveries:
        rows = ((*_parts(record, n), partition) for n, record in enumerate(records))
        return await self._append_rows(hooks, topic, rows)

    async def _append_rows(
        self, hooks: RecordHooks, topic: str, rows: Iterable[_Row]
    ) -> Deliveries:
        turn = self._refusals
        if hooks.needs_metadata:
            await self.metadata.find(topic)
            self._check_turn(turn)
        # All records are prepared before the first record is appended, so that no record is
        # accepted if a hook raises.
        prepared = []
        for key, value, headers, timestamp_ms, partition in rows:
            made = hooks.prepare(topic, value, key, partition, timestamp_ms, headers)
            prepared.append(hooks.place(made))
        return GatheredDeliveries([await self._append_known(record, turn) for record in prepared])

    async def _wait_for_memory(self, size: int, append: Callable[[], T], turn: int) -> T:
        def append_in_turn() -> T:
            self._check_turn(turn)
            return append()

        self._queues.hurry()  # batches that linger occupy memory until they are sent
        try:
            return await self._memory_waiters.take(size, append_in_turn)
        finally:
            self._queues.relax()

    def _set_waiting(self, count: int) -> None:
        self._accumulator.waiting = count


def _parts(record: ManyRecord, n: int) -> tuple[object, object, Headers | None, int | None]:
    """Return record `n` of send_many with four parts, None for each omitted part."""
    if not isinstance(record, tuple) or not 2 <= len(record) <= 4:
        raise bad_record(n)
    padded = (*record, None, None)[:4]
    return cast("tuple[object, object, Headers | None, int | None]", padded)
