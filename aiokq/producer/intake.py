"""Intake: the ways in that may have to wait, for room or for metadata; the quick one is native."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from aiokq.core.errors import BufferFull, KafkaError, RecordTooLarge, UnknownTopicOrPartition
from aiokq.core.types import Buffer, TopicPartition
from aiokq.producer.batch_builder import record_size
from aiokq.producer.deliveries import Deliveries
from aiokq.producer.gathered import GatheredDeliveries
from aiokq.producer.pipeline import (
    NotKnown,
    NotPlaced,
    NotTaken,
    Pipeline,
    PreparedRecord,
)
from aiokq.producer.room import Room
from aiokq.producer.serializers import Headers
from aiokq.producer.topics import Topics

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.fastpath.produce import Accumulator, Delivery, RecordColumns, RecordTuple
    from aiokq.fastpath.produce import Deliveries as NativeDeliveries
    from aiokq.producer.batch_builder import BatchBuilder
    from aiokq.producer.batch_completion import BatchCompletion
    from aiokq.producer.bugs import Bugs
    from aiokq.producer.partition_queues import PartitionQueues
    from aiokq.producer.values import ProducerValues

__all__ = ["Intake", "ManyRecord", "SendNowait"]

T = TypeVar("T")

ManyRecord: TypeAlias = (
    tuple[object, object]
    | tuple[object, object, Headers | None]
    | tuple[object, object, Headers | None, int | None]
)
"""(key, value), (key, value, headers) or (key, value, headers, timestamp_ms)."""
_Row: TypeAlias = tuple[object, object, Headers | None, int | None, int | None]
"""(key, value, headers, timestamp_ms, partition)."""


class SendNowait(Protocol):
    """`Producer.send_nowait`."""

    def __call__(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accepts a record if there is room for it.

        Context: loop, sync.

        Args:
            topic: name of the topic.
            value: the value; None deletes the key in a compacted topic.
            key: picks the partition, as Java does; None spreads evenly.
            partition: overrides every choice.
            timestamp_ms: milliseconds since 1970; the time of this call if not given.
            headers: (name, value) pairs.

        Raises:
            BufferFull: no room in buffer_memory, or others wait for room: await `enqueue`.
            RecordTooLarge: more than max_request_size, or than buffer_memory.
            UnknownTopicOrPartition: the topic has no such partition.
            InvalidTopic: the name cannot be a topic's.
            Closed: not started, or closed.
            WrongLoop: called elsewhere than on the loop that the producer was started on.
            TypeError: a key or value that is no bytes, and no serializer makes it some.
        """
        ...


class Intake:
    """Puts records into the native core, after waiting for what they need.

    Args:
        spawn: starts a task that belongs to the producer.

    Attributes:
        topics: what is known of topics.
    """

    def __init__(
        self,
        settings: ProducerValues,
        engine: ClusterEngine,
        accumulator: Accumulator,
        queues: PartitionQueues,
        completion: BatchCompletion,
        bugs: Bugs,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._accumulator = accumulator
        self._queues = queues
        self._pipeline = (
            Pipeline(settings, engine, accumulator) if Pipeline.wanted(settings) else None
        )
        self._room = Room(accumulator.room, self._set_waiting, settings.max_block)
        patience = min(settings.max_block, settings.delivery_timeout)
        max_idle = settings.metadata_max_idle_ms / 1000
        self.topics = Topics(
            engine, accumulator, queues, completion, bugs, patience, max_idle, spawn
        )

    @property
    def send_nowait(self) -> SendNowait:
        """What takes a record at once: the native append itself where there are no hooks."""
        append = self._accumulator.append if self._pipeline is None else self._pipeline.append
        return cast("SendNowait", append)

    def room_freed(self) -> None:
        """The native core gave memory back while somebody waits."""
        self._room.freed()

    def close(self, error: KafkaError) -> None:
        """Takes nothing any more, from those who wait for room or for metadata either."""
        self._accumulator.close()
        self._room.fail(error)
        self.topics.refuse(error)

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
        """Takes the record that `send_nowait` refused for lack of room or of metadata."""
        pipeline = self._pipeline
        if isinstance(refusal, NotTaken | NotKnown | NotPlaced):
            record = refusal.record  # it went through the hooks, which run once
        elif pipeline is not None:
            record = pipeline.prepare(topic, value, key, partition, timestamp_ms, headers)
        else:
            # The core itself refuses what is no bytes, in words.
            data, key_data = cast("Buffer | None", value), cast("Buffer | None", key)
            record = PreparedRecord(topic, data, key_data, partition, timestamp_ms, headers)
        if pipeline is not None:
            if pipeline.needs_metadata and record.partition is None:
                await self.topics.find(record.topic)
            record = pipeline.place(record)
        return await self._append_known(record)

    async def append_many(
        self, topic: str, records: Iterable[ManyRecord], partition: int | None
    ) -> Deliveries:
        """Takes many records in order, waiting for room as often as it takes."""
        if self._pipeline is not None:
            return await self._append_prepared(self._pipeline, topic, records, partition)
        batch = cast(
            "Sequence[RecordTuple]", records if isinstance(records, list | tuple) else list(records)
        )
        append_many = self._accumulator.append_many
        try:
            deliveries, done = append_many(topic, batch, partition)
        except UnknownTopicOrPartition:
            if partition is None:
                raise
            await self._look_for(topic, partition)
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

            key, value, headers, _ = _parts(cast("ManyRecord", batch[start]))
            done = await self._wait_for_room(record_size(key, value, headers), append_more)
        return deliveries

    async def append_columns(self, topic: str, columns: RecordColumns) -> Deliveries:
        """Takes the rows of columns in order, waiting for room as often as it takes."""
        if self._pipeline is not None:
            rows = (columns.record(n) for n in range(len(columns)))
            return await self._append_rows(self._pipeline, topic, rows)
        append_columns = self._accumulator.append_columns
        try:
            deliveries, done = append_columns(topic, columns)
        except UnknownTopicOrPartition as error:
            place = error.topic_partition
            if not isinstance(place, TopicPartition):
                raise
            await self._look_for(topic, place.partition)
            deliveries, done = append_columns(topic, columns)
        while done < len(columns):
            start = done

            def append_more(into: NativeDeliveries = deliveries, start: int = start) -> int:
                _, reached = append_columns(topic, columns, start=start, into=into, waited=True)
                if reached == start:
                    raise BufferFull
                return reached

            done = await self._wait_for_room(columns.size(start), append_more)
        return deliveries

    async def append_batch(self, batch: BatchBuilder, topic: str, partition: int) -> Deliveries:
        """Takes a batch that was filled by hand, whole."""
        if batch.size() > self._accumulator.buffer_memory:
            raise RecordTooLarge("the batch is larger than buffer_memory", topic_partition=topic)
        await self._look_for(topic, partition)

        def put() -> Deliveries:
            return GatheredDeliveries(self._queues.put(topic, partition, batch.records))

        if not self._accumulator.waiting and self._accumulator.room(batch.size()):
            return put()
        return await self._wait_for_room(batch.size(), put)

    # -- inside

    async def _append_known(self, record: PreparedRecord) -> Delivery:
        """As `_append`; a partition that is not known may have been added since."""
        try:
            return await self._append(record)
        except UnknownTopicOrPartition:
            if record.partition is None:
                raise
            await self._look_for(record.topic, record.partition)
        return await self._append(record)

    async def _look_for(self, topic: str, partition: int) -> None:
        """Raises unless the topic has that partition, by metadata newer than its absence."""
        info = await self.topics.find(topic, partition=partition)
        if partition not in info.partitions:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has no partition {partition}: it has {len(info.partitions)},"
                " numbered from 0",
                topic_partition=TopicPartition(topic, partition),
            )

    async def _append(self, record: PreparedRecord) -> Delivery:
        try:
            return self._accumulator.append(*record)
        except BufferFull:
            return await self._wait_for_room(
                record_size(record.key, record.value, record.headers),
                partial(self._accumulator.append_waited, *record),
            )

    async def _append_prepared(
        self,
        pipeline: Pipeline,
        topic: str,
        records: Iterable[ManyRecord],
        partition: int | None,
    ) -> Deliveries:
        rows = ((*_parts(record), partition) for record in records)
        return await self._append_rows(pipeline, topic, rows)

    async def _append_rows(
        self, pipeline: Pipeline, topic: str, rows: Iterable[_Row]
    ) -> Deliveries:
        if pipeline.needs_metadata:
            await self.topics.find(topic)
        # All of them before the first is taken: an error in one takes none.
        prepared = []
        for key, value, headers, timestamp_ms, partition in rows:
            made = pipeline.prepare(topic, value, key, partition, timestamp_ms, headers)
            prepared.append(pipeline.place(made))
        return GatheredDeliveries([await self._append_known(record) for record in prepared])

    async def _wait_for_room(self, size: int, append: Callable[[], T]) -> T:
        self._queues.hurry()  # what lingers holds the memory that is waited for
        try:
            return await self._room.take(size, append)
        finally:
            self._queues.relax()

    def _set_waiting(self, count: int) -> None:
        self._accumulator.waiting = count


def _parts(record: ManyRecord) -> tuple[object, object, Headers | None, int | None]:
    """A record of send_many with what it leaves out."""
    padded = (*record, None, None)[:4]
    return cast("tuple[object, object, Headers | None, int | None]", padded)
