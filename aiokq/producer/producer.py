"""Producer: the public class; delivery_engine.py does the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, TypeVar

from aiokq.cluster.constructor_settings import standalone_settings
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.events import DeliveriesFailed
from aiokq.cluster.loop_binding import LoopBinding, refuse_pickling
from aiokq.core import limits
from aiokq.core.errors import (
    BufferFull,
    Closed,
    ConfigError,
    DeliveryFailed,
    UnknownTopicOrPartition,
)
from aiokq.core.supervisor import shielded, warn_unclosed
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
    from aiokq.fastpath.produce import HandlerResults
    from aiokq.producer.overrides import ProducerOverrides
    from aiokq.producer.settings import ProducerSettings
    from aiokq.producer.transactions.transaction import Transaction
    from aiokq.producer.transactions.transactions import Transactions

__all__ = ["Producer", "enqueue_serialized", "handler_results", "send_accepted"]

logger = logging.getLogger("aiokq.producer")

T = TypeVar("T")


class Producer:
    """Writes records to Kafka.

    `async with Producer("host:9092") as producer:` connects to the cluster by itself; a producer
    from `cluster.producer()` uses the metadata and connections of that Cluster. Records are
    accepted in order, collected in batches per partition, compressed and sent. Each record has a
    Delivery, which may be awaited or ignored.

    Args:
        bootstrap_servers: "host:port" addresses, in a comma-separated string or in a list.
        settings: the settings to start from; defaults if not given.
        **overrides: single settings, by Kafka's names in snake_case.

    Attributes:
        send_nowait: accepts a record without waiting, see `SendNowait`. Once the producer is
            started, it is the method `Accumulator.append` itself, unless interceptors, serializers
            or a custom partitioner are set.

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
        self._claimed = False
        self.send_nowait = self._not_started

    @property
    def settings(self) -> ProducerSettings:
        """The effective settings."""
        return self._settings.settings

    async def start(self) -> None:
        """Bind the producer to the running loop.

        A producer that was created without a Cluster also waits for the first metadata. A
        transactional producer also waits for its producer id. If the first call fails or is
        cancelled, the producer is closed.

        Raises:
            BootstrapFailed: no bootstrap server answered within bootstrap_timeout_ms, or every
                server failed with an error that a retry cannot solve.
            ConfigError: bootstrap_servers is not set, or another producer of the Cluster has the
                transactional id.
            Closed: the producer was closed, or its Cluster is not open.
            WrongLoop: the producer was started on another loop, or in another process.
            RequestTimeout: the transaction coordinator did not answer within max_block_ms.
            KafkaError: the transaction coordinator refused the transactional id.
        """
        self._binding.bind()
        if self._closing is not None:
            raise Closed("this producer is closed: create a new one")
        if self._loop is not None:
            return
        if not self._owns_engine:
            self._engine.bind()
        try:
            if self._owns_engine:
                await self._engine.start()
            await self._delivery.supervisor.start()
        except BaseException:
            await self.close()  # __aexit__ will not be called, and the cluster may be open
            raise
        if self._loop is not None:
            return  # another task called start() earlier
        self._loop = asyncio.get_running_loop()
        self._delivery.start()
        self.send_nowait = self._appender.send_nowait
        if self._delivery.transactions is not None:
            await self._start_transactions(self._delivery.transactions)

    async def close(self, timeout: float = 30.0) -> CloseReport:
        """Deliver the accepted records, then close.

        May be called more than once, also concurrently. New records are refused. An open
        transaction is aborted. Records that are not acknowledged after `timeout` fail with
        `Closed`. Records for a topic that does not exist fail earlier, with
        `UnknownTopicOrPartition`: they fail two seconds after two metadata responses, at least a
        second apart, have reported the topic as unknown. If the first call is cancelled, delivery
        ends immediately, the remaining records fail with `Closed`, and the producer is closed
        nevertheless. In a forked child the call does nothing: the records belong to the parent.

        Args:
            timeout: seconds for the delivery of accepted records.

        Returns:
            The numbers of delivered, failed and unsent records since the start.

        Raises:
            WrongLoop: the producer belongs to another loop.
            TypeError: `timeout` is not a number.
            ValueError: `timeout` is negative, NaN, or too large for a timeout of Kafka.
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
            # If raising the failures would hide an exception of the body or the cancellation of
            # this call, log the failures instead.
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
        """Return the state of the producer, and the reasons why records are not delivered yet.

        Context: any thread.
        """
        return self._delivery.health(open_=self._loop is not None and self._closing is None)

    # Hot path, measured by benchmarks/micro/producer.py. The `except` clause is rarely reached.
    async def send(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged.

        ::

            metadata = await producer.send(
                "orders",
                b'{"amount": 9.5}',
                key=b"customer-7",
                headers=[("source", b"web"), ("trace", None)],
            )
            print(metadata.topic, metadata.partition, metadata.offset)

        If the call is cancelled while it waits for buffer memory, the record is not accepted. The
        same applies to the wait for metadata if a partitioner is set, or if the known metadata
        lacks `partition`; otherwise a record of an unknown topic is accepted at once. If the call
        is cancelled after the record was accepted, the record is delivered or fails in the
        background. A caller that has to know whether the record was accepted calls `enqueue`
        instead, and awaits its Delivery.

        Args:
            topic: name of the topic. A topic that does not exist is created, if the brokers and
                `allow_auto_create_topics` allow it.
            value: bytes, bytearray or memoryview, or an argument for `value_serializer`. None
                deletes the key from a compacted topic. A str has to be encoded.
            key: determines the partition, as in Java (murmur2): records of one key stay in order.
                Bytes, or an argument for `key_serializer`. Records without a key are spread over
                the partitions.
            partition: number of the partition; overrides key and `partitioner`.
            timestamp_ms: the record's time in milliseconds since 1970; if not given, the time at
                which the record is accepted. A topic with `message.timestamp.type=LogAppendTime`
                overwrites it.
            headers: (name, value) pairs, with names as str and values as bytes or None. Their
                order is kept, and a name may occur twice.

        Returns:
            RecordMetadata: topic, partition, offset (-1 if the broker did not return it, as with
            acks=0) and timestamp_ms of the record.

        Raises:
            BufferFull: no memory in buffer_memory became free within max_block_ms.
            RecordTooLarge: the record is larger than max_request_size or buffer_memory, or a
                broker refused it because it is larger than the topic's max.message.bytes.
            UnknownTopicOrPartition: the topic did not exist within max_block_ms (or
                delivery_timeout_ms, if that is shorter), or has no such partition.
            InvalidTopic: `topic` is not a valid topic name.
            ValueError: `partition` is not from 0 to 2**31 - 1, or `timestamp_ms` not from 0 to
                2**63 - 1.
            TypeError: a key or value that is not bytes-like, without a serializer for it; a number
                that is not an int; headers that are not (name, value) pairs.
            Closed: the producer is not started, or closed.
            WrongLoop: the call was made outside of the loop that the producer was started on.
            ConfigError: the partitioner chose a partition that the topic does not have, or a
                transactional producer has no open transaction.
            KafkaError: a broker refused the record, the record was not delivered within
                delivery_timeout_ms, or its transaction cannot be committed. The error's
                `may_have_been_written` is True if the record may be in the log nevertheless.
            others: the exceptions of serializers and of the partitioner.
        """
        # The loop is not checked here: send_nowait has a cheap check, see LoopGuard.
        try:
            delivery = self.send_nowait(topic, value, key, partition, timestamp_ms, headers)
        except (BufferFull, UnknownTopicOrPartition) as refusal:
            delivery = await self._appender.append(
                refusal, topic, value, key, partition, timestamp_ms, headers
            )
        return await delivery

    # Hot path, measured by benchmarks/micro/producer.py.
    async def enqueue(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accept a record, waiting for buffer memory or metadata if necessary; return its Delivery.

        If the call raises CancelledError, the record was not accepted.

        Args: as `send`.

        Raises:
            BufferFull: no memory in buffer_memory became free within max_block_ms.
            others: as `send`, except for delivery errors, which the Delivery raises.
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
        """Accept many records of one topic, waiting for buffer memory as often as necessary.

        If the call is cancelled or fails while it waits for memory, the records that were accepted
        until then stay accepted.

        Args:
            topic: name of the topic.
            records: (key, value), (key, value, headers) or (key, value, headers, timestamp_ms).
            partition: partition of all records; if not given, it is chosen for each record, as in
                `send`.

        Returns:
            Deliveries: supports `len()` and indexing in input order; awaiting it returns a list of
            RecordMetadata, or raises one DeliveryFailed whose `errors` has each record's outcome.

        Raises:
            BufferFull: no memory in buffer_memory became free within max_block_ms.
            Closed: the producer is not started, or was closed, possibly during this call.
            others: the errors of `SendNowait`. If the call waited for memory, or if interceptors,
                serializers or a partitioner are set, the records before the refused record may have
                been accepted. Otherwise no record was accepted.
        """
        self._check_accepts()
        return await self._appender.append_many(topic, records, partition)

    async def send_columns(self, topic: str, columns: RecordColumns) -> Deliveries:
        """Accept the rows of `columns` as records, waiting for buffer memory as often as necessary.

        `RecordColumns.from_arrow(batch)` creates the columns. Without interceptors, serializers and
        a custom partitioner, no Python object is created per row. If the call is cancelled or fails
        while it waits for memory, the rows that were accepted until then stay accepted. The call
        reads the buffers until it returns: if they are changed during the call, changed data may be
        sent; changes after the call have no effect.

        Returns:
            Deliveries, in the order of the rows; see `send_many`.

        Raises:
            BufferFull: no memory in buffer_memory became free within max_block_ms.
            Closed: the producer is not started, or was closed, possibly during this call.
            others: the errors of `SendNowait`. If the call waited for memory, or if interceptors,
                serializers or a partitioner are set, the rows before the refused row may have been
                accepted. Otherwise no row was accepted.
        """
        self._check_accepts()
        return await self._appender.append_columns(topic, columns)

    def send_columns_nowait(self, topic: str, columns: RecordColumns) -> Deliveries:
        """Accept all rows of `columns` as records without waiting, or none of them.

        Context: the event loop; does not wait.

        Returns:
            Deliveries, in the order of the rows; see `send_many`.

        Raises:
            BufferFull: buffer_memory may not suffice for all rows, or other calls wait for it:
                await `send_columns`.
            UnknownTopicOrPartition: the topic has no such partition, as far as its metadata is
                known: await `send_columns`.
            ConfigError: interceptors, serializers or a partitioner are set: await `send_columns`.
            Closed: the producer is not started, or closed.
            others: the errors of `SendNowait`.
        """
        self._check_accepts()
        return self._appender.append_columns_nowait(topic, columns)

    async def flush(self) -> None:
        """Send without lingering; wait until each record accepted so far has an outcome.

        For records whose topic does not exist, the call waits at most max_block_ms (or
        delivery_timeout_ms, if that is shorter), because the topic may still be created.

        Raises:
            DeliveryFailed: records failed, and nobody awaited or looked at their Deliveries. The
                error counts all of these records, and has the errors of at most 100.
            Closed: the producer was not started.
            WrongLoop: the call was made outside of the loop that the producer was started on.
        """
        self._binding.check()
        if self._closing is not None:
            await asyncio.shield(self._closing)
        else:
            await self._delivery.flush()
        failed = self._delivery.completion.failures.take()
        if failed is not None:
            raise failed

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic, requesting its metadata if it is not known.

        Raises:
            UnknownTopicOrPartition: the topic did not exist within max_block_ms (or
                delivery_timeout_ms, if that is shorter).
            KafkaError: the client is not authorized, the name is invalid, or no broker answers.
            Closed: the producer is not started, or closed.
            WrongLoop: the call was made outside of the loop that the producer was started on.
        """
        self._check_open()
        info = await self._appender.metadata.find(topic)
        return set(info.partitions)

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch, to be filled with records or rows of columns for `send_batch`.

        Its limit is `batch_size` bytes, but at least 1024 bytes, and at most `max_request_size` and
        `buffer_memory`.
        """
        settings = self._settings
        limit = min(settings.max_request_size, settings.buffer_memory)
        return BatchBuilder(min(max(settings.batch_size, 1024), limit))

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Deliveries:
        """Accept a filled batch; it is sent after the records accepted earlier for the partition.

        The call closes `batch`, so that no records can be appended to it. It waits for buffer
        memory and for the topic's metadata, not for the delivery. If the same builder is passed
        again, its records are sent again.

        Returns:
            Deliveries, in the order of the batch's records; see `send_many`.

        Raises:
            ConfigError: the batch is empty, or a transactional producer has no open transaction.
            BufferFull: no memory in buffer_memory became free within max_block_ms.
            RecordTooLarge: the batch is larger than max_request_size or buffer_memory.
            UnknownTopicOrPartition: the topic did not exist within max_block_ms (or
                delivery_timeout_ms, if that is shorter), or has no such partition.
            ValueError: `partition` is not from 0 to 2**31 - 1.
            TypeError: `partition` is not an int.
            Closed: the producer is not started, or closed.
            WrongLoop: the call was made outside of the loop that the producer was started on.
            KafkaError: the client is not authorized, the name is invalid, or no broker answers.
        """
        self._check_accepts()
        limits.partition(partition)
        batch.close()
        if not len(batch):
            raise ConfigError("the batch is empty: append records to it first")
        return await self._appender.append_batch(batch, topic, partition)

    def transaction(self) -> Transaction:
        """Return a transaction, to be entered with `async with`.

        ::

            async with producer.transaction() as txn:
                await producer.send("totals", value)
                await txn.send_offsets(consumer)

        The transaction is committed when the block ends normally, and aborted when the block raises
        an exception or is cancelled. Entering the block raises the errors of `begin_transaction`;
        the normal end of the block raises the errors of `commit_transaction`.

        Raises:
            ConfigError: the producer has no `transactional_id`.
        """
        return self._transactions("transaction()").new_transaction(self._check_open)

    async def begin_transaction(self) -> Transaction:
        """Open a transaction; `commit_transaction` or `abort_transaction` ends it.

        Raises:
            ConfigError: the producer has no `transactional_id`, or a transaction is open.
            CommitOutcomeUnknown: the commit of the last transaction was not answered: commit again.
            ProducerFenced: the producer can only be closed, see `commit_transaction`.
            Closed: the producer is not started, or closed.
            WrongLoop: the call was made outside of the loop that the producer was started on.
            RequestTimeout: the coordinator did not answer the abort of the last transaction, or the
                request for a new epoch, within max_block_ms.
            BrokerError: the permissions or the configuration are wrong, see `commit_transaction`.
        """
        transactions = self._transactions("begin_transaction()")
        transaction = transactions.new_transaction(self._check_open)
        self._check_open()
        await transactions.begin(transaction)
        return transaction

    async def commit_transaction(self) -> None:
        """Deliver the records of the transaction, then commit it, within max_block_ms altogether.

        If the call is cancelled, the commit continues; `Transaction.outcome` returns its result.

        Raises:
            TransactionAborted: a record or the offsets failed or were not acknowledged in time, or
                the coordinator was not found in time. The transaction is aborted; the reason is the
                error's ``__cause__``. If the abort is not finished yet, the next
                `begin_transaction` waits for it. Also raised after an abort that was not answered;
                abort again.
            CommitOutcomeUnknown: the commit was sent, and not answered within max_block_ms: commit
                again, or close.
            ProducerFenced: another producer with the transactional id was started, or the
                transaction lasted longer than transaction_timeout_ms, or the transactional id has
                expired.
            BrokerError: the permissions or the configuration are wrong, for example
                TransactionalIdAuthorization or ClusterAuthorization; the producer can only be
                closed.
            ConfigError: the producer has no `transactional_id`, no transaction is open, or the
                transaction is being aborted.
            Closed, WrongLoop: as in `begin_transaction`.
        """
        transactions = self._transactions("commit_transaction()")
        self._check_open()
        await transactions.end(None, committed=True)

    async def abort_transaction(self) -> None:
        """Abort the transaction; its records that were not sent fail with TransactionAborted.

        If the call is cancelled, the abort continues.

        Raises:
            RequestTimeout: the abort was not answered within max_block_ms: abort again, or close.
            CommitOutcomeUnknown: a commit of the transaction was sent before, and not answered:
                commit again, or close.
            ProducerFenced, BrokerError: the producer can only be closed, see `commit_transaction`.
            ConfigError: the producer has no `transactional_id`, no transaction is open, or the
                transaction is being committed.
            Closed, WrongLoop: as in `begin_transaction`.
        """
        transactions = self._transactions("abort_transaction()")
        self._check_open()
        await transactions.end(None, committed=False)

    def _transactions(self, call: str) -> Transactions:
        transactions = self._delivery.transactions
        if transactions is None:
            raise ConfigError(
                f"{call} needs a transactional producer: create it with transactional_id='...'"
            )
        return transactions

    async def _start_transactions(self, transactions: Transactions) -> None:
        """Request the producer id; after that, records are accepted inside of transactions."""
        try:
            self._engine.claim_transactional_id(transactions.transactional_id)
            self._claimed = True
            await transactions.initialize()
        except BaseException:
            await self.close()  # __aexit__ will not be called
            raise

    async def _end(self, closing: asyncio.Future[CloseReport]) -> None:
        """Shut down, and complete `closing` with the report or with the exception."""
        try:
            closing.set_result(await self._shut_down())
        except BaseException as error:
            closing.set_exception(error)
            closing.exception()  # no "never retrieved" warning: the error is raised below
            raise

    async def _shut_down(self) -> CloseReport:
        report, self._undelivered = await self._delivery.close()
        if self._claimed:
            self._claimed = False
            self._engine.release_transactional_id(self._settings.transactional_id)
        if self._owns_engine:
            await self._engine.close()
        return report

    def _announce(self, failed: DeliveryFailed) -> None:
        """Log unobserved failures and emit an event, because no exception will report them."""
        logger.error("records were not delivered: %s", failed)
        event = DeliveriesFailed(
            client_id=self._settings.client_id,
            count=failed.count,
            error=str(failed.errors[0]) if failed.errors else "",
            topic_partitions=failed.topic_partitions,
            timestamp_ms=self._engine.environment.clock.timestamp_ms(),
        )
        self._engine.changes.emit(event.key, event)

    def _check_open(self) -> None:
        self._binding.check()
        if self._closing is not None:
            raise Closed("this producer is closed: create a new one")

    def _check_accepts(self) -> None:
        """Raise an error if records are refused now; `Accumulator.append` checks this by itself."""
        self._check_open()
        self._delivery.accumulator.check_accepts()

    def _disown(self) -> None:
        """Refuse records in a forked child, where nothing would be sent."""
        self._delivery.accumulator.close()

    def _not_started(self, *args: object, **kwargs: object) -> Delivery:
        raise Closed("this producer is not started: use `async with`, or await start()")


def handler_results(producer: Producer, *, holds: bool = False) -> HandlerResults[Any]:
    """Return an empty HandlerResults, through which a started producer sends results as records.

    Args:
        holds: whether the results are sent only when `HandlerResults.release` is called.
    """
    return producer._appender.handler_results(holds=holds)


def send_accepted(producer: Producer) -> None:
    """Send all accepted records that can be sent now; their batches do not linger."""
    delivery = producer._delivery
    delivery.hurry()
    delivery.relax()


async def enqueue_serialized(
    producer: Producer,
    topic: str,
    value: object,
    key: object,
    partition: int | None,
    timestamp_ms: int | None,
    headers: Headers | None,
) -> Delivery:
    """Accept a record as `Producer.enqueue` does, without calling interceptors or serializers."""
    return await producer._appender.append_serialized(
        topic, value, key, partition, timestamp_ms, headers
    )
