"""DeliveryEngine: the internals of a producer, from the append of a record to its outcome.

It creates, connects, starts, drains and closes the parts of a producer. producer.py has the life
cycle of the Producer object, and binds the Producer to its event loop and cluster.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from aiokq.connection.backoff import Backoff
from aiokq.core.errors import Closed, DeliveryFailed, KafkaError
from aiokq.core.supervisor import State, Supervisor
from aiokq.core.types import TopicPartition
from aiokq.fastpath.produce import Accumulator, Batch
from aiokq.producer.adaptive_partitioning import AdaptivePartitioning
from aiokq.producer.batch_completion import BatchCompletion
from aiokq.producer.batch_sealer import BatchSealer
from aiokq.producer.close_report import CloseReport
from aiokq.producer.health import ProducerHealth
from aiokq.producer.incomplete_batches import IncompleteBatches
from aiokq.producer.interceptors import Interceptors
from aiokq.producer.internal_errors import InternalErrors
from aiokq.producer.linger_watch import LingerWatch
from aiokq.producer.partition_queues import PartitionQueues
from aiokq.producer.producer_id import ProducerIdSource
from aiokq.producer.record_appender import RecordAppender
from aiokq.producer.sender_pool import SenderPool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.fastpath import LoopGuard
    from aiokq.producer.transactions.transactions import Transactions
    from aiokq.producer.values import ProducerValues

__all__ = ["DeliveryEngine"]

logger = logging.getLogger("aiokq.producer")

CLOSE_TIMEOUT = 5.0
"""Seconds that a producer's tasks may take to end once they are cancelled."""


class DeliveryEngine:
    """Accepts records, delivers them in order per partition, and completes their Deliveries.

    The class implements `RecordDelivery` for the producer's transactions.

    Args:
        guard: refuses appends on another event loop or in a forked child.

    Attributes:
        accumulator: appends records to the open batches, and counts the buffer memory in use.
        appender: appends records to `accumulator`.
        transactions: the transactions of the producer; None if it has no transactional id.
        completion: counts delivered and failed records, and has the unobserved failures.
        supervisor: owns all tasks of the producer.
    """

    def __init__(self, settings: ProducerValues, cluster: ClusterEngine, guard: LoopGuard) -> None:
        environment = cluster.environment
        self._settings = settings
        self._cluster = cluster
        self.accumulator = Accumulator(
            batch_size=settings.batch_size,
            buffer_memory=settings.buffer_memory,
            max_record_bytes=settings.max_request_size,
            clock=environment.clock,
            on_unknown_topic=self._unknown_topic,
            on_memory_freed=self._memory_freed,
            on_refused=self._refused,
            on_bug=self._bug,
            seed=environment.random.getrandbits(64),
            ignore_keys=settings.partitioner_ignore_keys,
            guard=guard,
        )
        self.supervisor = Supervisor(
            f"producer {settings.client_id}",
            on_failure=self._on_internal_failure,
            on_cancelled=self._on_cancelled,
        )
        interceptors = Interceptors(settings.interceptors)
        self._internal_errors = InternalErrors()
        self._linger_watch = LingerWatch()
        self._incomplete = IncompleteBatches(self._linger_watch.changed)
        self.completion = BatchCompletion(cluster, interceptors, self._incomplete)
        self._ids = None
        self.transactions: Transactions | None = None
        if settings.transactional_id is not None:
            self.transactions = self._new_transactions()
        elif settings.enable_idempotence:
            self._ids = self._producer_id_source()
        sealer = BatchSealer(settings, environment.offload, self._spawn)
        self._senders = SenderPool(
            settings,
            cluster,
            interceptors,
            sealer,
            self._internal_errors,
            self._spawn,
            self.transactions,
        )
        self._queues = PartitionQueues(
            settings,
            cluster,
            self.accumulator,
            self._senders,
            self.completion,
            self._incomplete,
            self._linger_watch,
            sealer,
            self._internal_errors,
            self._ids or self.transactions,
            self.transactions,
        )
        if settings.partitioner_adaptive_partitioning_enable:
            timeout = settings.partitioner_availability_timeout_ms / 1000
            adaptive = AdaptivePartitioning(
                self._queues.by_partition, self._senders.stalled, environment.random, timeout
            )
            self.accumulator.choose = adaptive.choose
        self.appender = RecordAppender(
            settings,
            cluster,
            self.accumulator,
            self._queues,
            self.completion,
            self._internal_errors,
            self._spawn,
        )
        self._senders.look_up = self.appender.metadata.unknown
        if self.transactions is not None:
            self.accept(Closed("this producer is being started"))
        self._forget_gauges: list[Callable[[], None]] = []
        self._unsent: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Start the tasks on the running loop; the supervisor and the cluster must already run."""
        self.appender.metadata.start()
        self._spawn(self._queues.timers.run(), "timers")
        if self._settings.linger and not self._settings.lingers_when_awaited:
            self._linger_watch.start(self._incomplete, self._queues.cut_all)
        if self._ids is not None:
            running = self._ids.run(self._queues.offer_all, self._queues.fail_unsent)
            self._spawn(running, "producer id")
            self._ids.need()
        counters = self._cluster.counters
        self._forget_gauges = [
            counters.buffered_bytes.add_source(lambda: self.accumulator.used_bytes),
            counters.buffer_waiters.add_source(lambda: self.accumulator.waiting),
        ]

    def health(self, *, open_: bool) -> ProducerHealth:
        """Return the state of the producer.

        Context: any thread.

        Args:
            open_: whether the producer was started and is not closed.
        """
        timeouts = self._settings.timeouts
        missing = self.appender.metadata.missing()
        held_up = self._queues.held_up()
        return ProducerHealth(
            ok=open_ and self.supervisor.failed is None and not missing and not held_up,
            linger_ms=timeouts.linger_ms,
            request_timeout_ms=timeouts.request_timeout_ms,
            delivery_timeout_ms=timeouts.delivery_timeout_ms,
            max_block_ms=timeouts.max_block_ms,
            buffered_bytes=self.accumulator.used_bytes,
            waiting_for_room=self.accumulator.waiting,
            missing_topics=missing,
            held_up=held_up,
        )

    async def flush(self) -> None:
        """Send without lingering, and wait until every record accepted so far has an outcome."""
        self._queues.hurry()
        try:
            await self.appender.metadata.settled()
            await self._incomplete.wait()
        finally:
            self._queues.relax()

    async def drain(self, timeout: float) -> None:
        """Refuse new records, and deliver the accepted records for at most `timeout` seconds.

        An open transaction is aborted. A timeout is logged; `close` fails the records that have no
        outcome.
        """
        self._refuse_records()
        if self.supervisor.state is not State.OPEN:
            return  # a bug or a cancellation has ended the tasks that could deliver records
        metadata = self.appender.metadata
        metadata.hasten()
        try:
            async with asyncio.timeout(timeout):
                if self.transactions is not None:
                    await self.transactions.close()
                self._queues.hurry()
                while self._incomplete or metadata.pending():
                    await metadata.settled()
                    await self._incomplete.wait()
        except TimeoutError:
            logger.error(
                "undelivered records fail: the timeout of close() is over: timeout=%ss", timeout
            )

    async def close(self) -> tuple[CloseReport, DeliveryFailed | None]:
        """Fail the records that have no outcome, and end all tasks.

        Returns:
            The numbers of delivered, failed and unsent records, and one error for the failures that
            nobody observed; the error is None if there are no such failures.
        """
        self._refuse_records()
        if self.transactions is not None:
            self.transactions.abandon()
        self._fail_unsent()
        for forget in self._forget_gauges:
            forget()
        self.appender.metadata.close()
        undelivered = self.completion.failures.take()
        await self.supervisor.close(CLOSE_TIMEOUT)
        unsent = sum(self._unsent.values())
        report = CloseReport(
            delivered=self.completion.delivered_records,
            failed=self.completion.failed_records - unsent,
            unsent=unsent,
            unsent_by_partition=dict(self._unsent),
        )
        return report, undelivered

    @property
    def is_settled(self) -> bool:
        return not self._incomplete and not self.appender.metadata.pending()

    def accept(self, refusal: KafkaError | None) -> None:
        self.appender.refuse(refusal)

    def hurry(self) -> None:
        self._queues.hurry()

    def relax(self) -> None:
        self._queues.relax()

    def fail_unsent(self, error: KafkaError) -> None:
        self.appender.metadata.fail_pending(error)
        self._queues.fail_unsent(error)

    async def answered(self) -> None:
        await self._incomplete.wait()

    def offer_all(self) -> None:
        self._queues.offer_all()

    def restart_sequences(self) -> None:
        self._queues.restart_sequences()

    def forget_failures(self) -> None:
        self.completion.failures.take()

    def _new_transactions(self) -> Transactions:
        from aiokq.producer.transactions.transactions import Transactions

        transactions = Transactions(self._settings, self._cluster, self, self._spawn)
        self.completion.on_failed = transactions.record_failed
        return transactions

    def _refuse_records(self) -> None:
        self.appender.close(Closed("the producer was closed before it accepted this record"))

    def _fail_unsent(self) -> None:
        cause = self.supervisor.failed
        for queued in self._queues.take_all():
            error = _unsent_error(cause, queued.in_flight or queued.uncertain)
            error.__cause__ = error.__cause__ or queued.error or queued.queue.blocked_by
            self._note_unsent(queued.batch)
            self.completion.failed_unqueued(queued.batch, error)
        for batch in self.appender.metadata.pending():
            self._note_unsent(batch)
            error = _unsent_error(cause, written=False)
            error.__cause__ = error.__cause__ or self.appender.metadata.trouble(batch.topic)
            self.completion.failed_unqueued(batch, error)

    def _note_unsent(self, batch: Batch) -> None:
        place = TopicPartition(batch.topic, batch.partition)
        self._unsent[place] = self._unsent.get(place, 0) + batch.count

    def _on_internal_failure(self, error: BaseException) -> None:
        """Fail all records, because a task ended with a bug and callers would wait forever."""
        self.appender.close(_unsent_error(error, written=False))
        self._fail_unsent()

    def _on_cancelled(self) -> None:
        """Fail all records and all calls that end a transaction: all tasks were cancelled."""
        self.appender.close(_cancelled())
        if self.transactions is not None:
            self.transactions.abandon()
        self._fail_unsent()

    def _producer_id_source(self) -> ProducerIdSource:
        settings = self._settings
        backoff = Backoff(
            settings.retry_backoff_ms / 1000,
            settings.retry_backoff_max_ms / 1000,
            self._cluster.environment.random,
        )
        return ProducerIdSource(self._cluster, backoff)

    def _unknown_topic(self, topic: str) -> None:
        self.appender.metadata.unknown(topic)

    def _refused(self, batch: Batch) -> None:
        assert isinstance(batch.error, KafkaError)
        self._queues.core_failed(batch, batch.error)

    def _bug(self, where: str, error: Exception) -> KafkaError:
        return self._internal_errors.report(where, error)

    def _memory_freed(self) -> None:
        self.appender.memory_freed()

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self.supervisor.spawn(coro, name=name)


def _cancelled() -> Closed:
    return Closed("the tasks of the producer were cancelled: is the event loop being shut down?")


def _unsent_error(cause: BaseException | None, written: bool) -> KafkaError:
    if cause is not None:
        error = Closed(f"the producer failed: {cause!r}", may_have_been_written=written)
        error.__cause__ = cause
        return error
    return Closed(
        "the producer was closed before the record was delivered", may_have_been_written=written
    )
