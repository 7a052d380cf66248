"""Producer: the public face; records in, Deliveries out. The parts are delivery_engine.py's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Never, NoReturn, Self, TypeVar

from aiokq.cluster.constructor_settings import standalone_settings
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.events import DeliveriesFailed
from aiokq.cluster.loop_binding import LoopBinding, refuse_pickling, warn_unclosed
from aiokq.core import limits
from aiokq.core.errors import (
    BufferFull,
    Closed,
    ConfigError,
    DeliveryFailed,
    UnknownTopicOrPartition,
)
from aiokq.core.supervisor import shielded
from aiokq.fastpath.produce import Delivery, RecordColumns, RecordMetadata
from aiokq.producer.batch_builder import BatchBuilder
from aiokq.producer.close_report import CloseReport
from aiokq.producer.deliveries import Deliveries
from aiokq.producer.delivery_engine import DeliveryEngine
from aiokq.producer.health import ProducerHealth
from aiokq.producer.record_appender import ManyRecord, SendNowait
from aiokq.producer.serializers import Headers
from aiokq.producer.values import ProducerValues

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aiokq.core.environment import Environment
    from aiokq.producer.overrides import ProducerOverrides
    from aiokq.producer.settings import ProducerSettings

__all__ = ["Producer"]

logger = logging.getLogger("aiokq.producer")

T = TypeVar("T")


class Producer:
    """Writes records to Kafka.

    `async with Producer("host:9092") as producer:` opens a cluster of its own; `cluster.producer()`
    shares one. Records are accepted in order, gathered per partition, compressed and sent; every
    one has a Delivery, which may be awaited or left alone.

    Args:
        bootstrap_servers: "host:port", several comma separated or in a list.
        settings: to start from; defaults if not given.
        **overrides: single settings, by Kafka's names in snake_case.

    Attributes:
        send_nowait: takes a record without waiting, see `SendNowait`. Without interceptors,
            serializers and partitioner of your own it is the native append itself.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    send_nowait: SendNowait

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        /,
        *beside: Never,
        settings: ProducerSettings | None = None,
        _values: ProducerValues | None = None,
        _engine: ClusterEngine | None = None,
        _environment: Environment | None = None,
        **overrides: Unpack[ProducerOverrides],
    ) -> None:
        self._settings = _values or standalone_settings(
            ProducerValues, settings, overrides, bootstrap_servers, beside
        )
        self._owns_engine = _engine is None
        self._engine = _engine or ClusterEngine(self._settings, _environment)
        self._binding = LoopBinding("this Producer", on_fork=self._disown)
        self._delivery = DeliveryEngine(self._settings, self._engine, self._binding.guard)
        self._appender = self._delivery.appender
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[CloseReport] | None = None
        self._undelivered: DeliveryFailed | None = None
        self.send_nowait = self._not_started

    # -- lifecycle

    @property
    def settings(self) -> ProducerSettings:
        """The settings in force."""
        return self._settings.settings

    async def start(self) -> None:
        """Binds to the running loop and, with a cluster of its own, waits for the first metadata.

        Raises:
            BootstrapFailed: no bootstrap server answered within bootstrap_timeout_ms.
            Closed: it was closed, or the Cluster that it was made from is not open.
            WrongLoop: it was started on another loop.
        """
        self._binding.bind()
        if self._closing is not None:
            raise Closed("this producer is closed: make a new one")
        if self._loop is not None:
            return
        if not self._owns_engine:
            self._engine.bind()
        try:
            if self._owns_engine:
                await self._engine.start()
            await self._delivery.supervisor.start()
        except BaseException:
            await self.close()  # no __aexit__ follows, and the cluster may be open
            raise
        if self._loop is not None:
            return  # another task began to start it before this one
        self._loop = asyncio.get_running_loop()
        self._delivery.start()
        self.send_nowait = self._appender.send_nowait

    async def close(self, timeout: float = 30.0) -> CloseReport:
        """Sends what was accepted, then ends; harmless twice and concurrently.

        Nothing is accepted from now on. What is not acknowledged after `timeout` fails with
        `Closed`. Records for a topic that does not exist fail sooner: two seconds after two
        metadata answers, a second apart, have called it unknown, with `UnknownTopicOrPartition`.
        Cancelling it gives up at once, and still closes the sockets. In a forked child it does
        nothing: the records are the parent's.

        Args:
            timeout: seconds for the draining.

        Returns:
            What became of all records that this producer accepted.

        Raises:
            WrongLoop: it belongs to another loop, and is still open there.
        """
        limits.seconds(timeout)
        if self._binding.forked:
            return CloseReport()
        if self._loop is not None:
            self._binding.check()
        if self._closing is not None:
            return await asyncio.shield(self._closing)
        self._closing = asyncio.get_running_loop().create_future()
        try:
            if self._loop is not None:
                await self._delivery.drain(timeout)
        finally:
            await shielded(self._end(self._closing), name="close producer")
        return self._closing.result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        closed = False
        try:
            await self.close()
            closed = True
        finally:
            undelivered, self._undelivered = self._undelivered, None
            # An exception of the body, or the cancellation of this, must not be hidden.
            if undelivered is not None and (error is not None or not closed):
                self._announce(undelivered)
        if undelivered is not None and error is None:
            raise undelivered

    def __del__(self) -> None:
        if (
            getattr(self, "_loop", None) is not None
            and self._closing is None
            and not self._binding.forked
        ):
            warn_unclosed(self)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def __repr__(self) -> str:
        state = "new" if self._loop is None else "open"
        if self._closing is not None:
            state = "closed"
        return f"<Producer {self._settings.client_id!r} {state}, {self._settings.timeouts}>"

    def health(self) -> ProducerHealth:
        """What holds for this producer, and what its records wait for."""
        return self._delivery.health(open_=self._loop is not None and self._closing is None)

    # -- records

    # hot: benchmarks/micro/producer.py; everything but the append is off the usual path
    async def send(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged.

        ::

            metadata = await producer.send(
                "orders",
                b'{"amount": 9.5}',
                key=b"customer-7",
                headers=[("source", b"web"), ("trace", None)],
            )
            print(metadata.topic, metadata.partition, metadata.offset)

        Cancelled while it waits for room: not accepted. Cancelled later: accepted, and delivered
        or failed without you. Who has to know which uses `enqueue`.

        Args:
            topic: name of the topic. One that does not exist is created, where the brokers and
                `allow_auto_create_topics` allow it.
            value: the content: bytes, bytearray or memoryview, or what `value_serializer` takes.
                None deletes the key from a compacted topic. A str has to be encoded.
            key: picks the partition, as Java does (murmur2): records of one key stay in order.
                Bytes, or what `key_serializer` takes. None spreads the records evenly.
            partition: number of the partition; overrides key and `partitioner`.
            timestamp_ms: milliseconds since 1970, what the record says of its time; the time of
                this call if not given. A topic with `message.timestamp.type=LogAppendTime`
                overwrites it.
            headers: (name, value) pairs, with names as str and values as bytes or None. Their
                order is kept, and a name may come twice.

        Returns:
            RecordMetadata: where the record is: topic, partition, offset (-1 with acks=0) and
            timestamp_ms.

        Raises:
            BufferFull: no room in buffer_memory for max_block_ms.
            RecordTooLarge: more than max_request_size, or than buffer_memory; from a broker, more
                than the topic's max.message.bytes.
            UnknownTopicOrPartition: the topic did not come to exist within max_block_ms, or has
                no such partition.
            InvalidTopic: the name cannot be a topic's.
            ValueError: `partition` or `timestamp_ms` is negative, or more than Kafka's 31 or 63
                bits hold.
            TypeError: a key or value that is no bytes, and no serializer makes it some; a number
                that is no int.
            Closed: the producer is not started, or closed.
            KafkaError: why the record was not delivered within delivery_timeout_ms;
                `may_have_been_written` says whether it may be in the log all the same.
        """
        # No check of the loop here: send_nowait has a cheap one, see LoopGuard.
        try:
            delivery = self.send_nowait(topic, value, key, partition, timestamp_ms, headers)
        except (BufferFull, UnknownTopicOrPartition) as refusal:
            delivery = await self._appender.append(
                refusal, topic, value, key, partition, timestamp_ms, headers
            )
        return await delivery

    # hot: benchmarks/micro/producer.py
    async def enqueue(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accepts a record, waiting for room if there is none; its Delivery is for later.

        A CancelledError raised in here means that the record was not accepted.

        Args: as `send`.

        Raises:
            BufferFull: no room in buffer_memory for max_block_ms.
            others: as `send`, but for why a record was not delivered: its Delivery raises that.
        """
        try:
            return self.send_nowait(topic, value, key, partition, timestamp_ms, headers)
        except (BufferFull, UnknownTopicOrPartition) as refusal:
            return await self._appender.append(
                refusal, topic, value, key, partition, timestamp_ms, headers
            )

    async def send_many(
        self, topic: str, records: Iterable[ManyRecord], partition: int | None = None
    ) -> Deliveries:
        """Accepts many records of one topic, waiting for room as often as it takes.

        If it is cancelled, or fails for lack of room, the records before that moment are accepted.

        Args:
            topic: name of the topic.
            records: (key, value), (key, value, headers) or (key, value, headers, timestamp_ms).
            partition: for all of them; if not given each key picks its own.

        Returns:
            Deliveries: `len()`, indexing in input order; awaited, a list of RecordMetadata, or one
            DeliveryFailed whose `errors` has each record's outcome, in input order.

        Raises:
            BufferFull: no room for max_block_ms.
            others: as `SendNowait`, before any record was accepted.
        """
        self._check_open()
        return await self._appender.append_many(topic, records, partition)

    async def send_columns(self, topic: str, columns: RecordColumns) -> Deliveries:
        """Accepts the rows of columns, as of an Arrow batch, waiting for room as often as it takes.

        `RecordColumns.from_arrow(batch)` makes them. Without interceptors, serializers and
        partitioner of your own no object is made for a row. If it is cancelled, or fails for lack
        of room, the rows before that moment are accepted. The buffers are the producer's to read
        until it returns: what is written into one under a read-only view before is sent, what is
        written after never is.

        Returns:
            Deliveries: as of `send_many`, in the order of the rows.

        Raises:
            BufferFull: no room for max_block_ms.
            others: as `SendNowait`, before any row was accepted.
        """
        self._check_open()
        return await self._appender.append_columns(topic, columns)

    async def flush(self) -> None:
        """Waits until every record accepted so far is delivered or failed; nothing lingers.

        Records for a topic that does not exist are waited for within their own limit,
        max_block_ms, as it may be created yet.

        Raises:
            DeliveryFailed: records failed, and nobody awaited or looked at their Delivery; it
                counts all of them, and has the errors of the first 100.
        """
        self._binding.check()
        if self._closing is not None:
            await asyncio.shield(self._closing)
        else:
            await self._delivery.flush()
        failed = self._delivery.completion.failures.take()
        if failed is not None:
            raise failed

    # -- batches and topics

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic, asking for its metadata if it is not known.

        Raises:
            UnknownTopicOrPartition: it did not come to exist within max_block_ms.
            KafkaError: no right to, an impossible name, no broker that answers.
        """
        self._check_open()
        info = await self._appender.metadata.find(topic)
        return set(info.partitions)

    def create_batch(self) -> BatchBuilder:
        """An empty batch to be filled by hand and sent whole by `send_batch`."""
        settings = self._settings
        limit = min(settings.max_request_size, settings.buffer_memory)
        return BatchBuilder(min(max(settings.batch_size, 1024), limit))

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Deliveries:
        """Accepts a filled batch, after what was accepted for that partition before.

        Waits for room and for the topic's metadata only. The builder may be sent again.

        Returns:
            Deliveries in the order of its records, as `send_many`.

        Raises:
            ConfigError: the batch is empty.
            BufferFull: no room for max_block_ms.
            UnknownTopicOrPartition: no such topic or partition.
        """
        self._check_open()
        limits.partition(partition)
        batch.close()
        if not len(batch):
            raise ConfigError("the batch is empty: append records to it first")
        return await self._appender.append_batch(batch, topic, partition)

    # -- the end

    async def _end(self, closing: asyncio.Future[CloseReport]) -> None:
        """Everything must be closed after this, whatever was left to do."""
        try:
            closing.set_result(await self._shut_down())
        except BaseException as error:
            closing.set_exception(error)
            closing.exception()  # raised here; who waits beside gets it, too
            raise

    async def _shut_down(self) -> CloseReport:
        report, self._undelivered = await self._delivery.close()
        if self._owns_engine:
            await self._engine.close()
        return report

    def _announce(self, failed: DeliveryFailed) -> None:
        """Another exception leaves `async with`: what this one says is told all the same."""
        logger.error("records were not delivered: %s", failed)
        event = DeliveriesFailed(
            client_id=self._settings.client_id,
            count=failed.count,
            error=str(failed.errors[0]) if failed.errors else "",
            topic_partitions=failed.topic_partitions,
            timestamp_ms=self._engine.environment.clock.timestamp_ms(),
        )
        self._engine.changes.emit(event.key, event)

    # -- inside

    def _check_open(self) -> None:
        self._binding.check()
        if self._closing is not None:
            raise Closed("this producer is closed: make a new one")

    def _disown(self) -> None:
        """In a forked child: nothing will ever be sent."""
        self._delivery.accumulator.close()

    def _not_started(self, *args: object, **kwargs: object) -> Delivery:
        raise Closed("this producer is not started: use `async with`, or await start()")
