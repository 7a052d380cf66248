"""Outbox: all queues of a producer and the senders that empty them; it owns what ties them.

That is: which sender serves a queue, the hurry of flush and full memory, what is not finished
yet, counters, interceptors, and what the answers mean to the cluster engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokq.cluster.metadata import ZERO_ID
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    BrokerError,
    InternalError,
    KafkaError,
    LeaderNotAvailable,
    RequestTimeout,
)
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition
from aiokq.producer.bugs import Bugs
from aiokq.producer.failures import Failures
from aiokq.producer.idempotence import ProducerIdentity, Sequences
from aiokq.producer.idle import IdleWatch
from aiokq.producer.interceptors import BatchInfo, Interceptors
from aiokq.producer.producer_id import ProducerIdSource
from aiokq.producer.queue import PartitionQueue
from aiokq.producer.queued import QueuedBatch, QueueLimits
from aiokq.producer.regroup import regroup
from aiokq.producer.sealing import Sealer
from aiokq.producer.sender import Sender
from aiokq.producer.timers import QueueTimers

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.reducer_inputs import LeaderHint
    from aiokq.fastpath.produce import Accumulator, Batch, Delivery
    from aiokq.producer.batch_builder import BuiltRecord
    from aiokq.producer.values import ProducerValues

__all__ = ["Outbox"]

logger = logging.getLogger("aiokq.producer")

AGAIN: Final = "records are sent again"
GIVEN_UP: Final = "records are given up"
"""What lasting trouble is called in the log."""


class _Flush:
    """One wait for the batches that existed when it began, and for what they became."""

    __slots__ = ("batches", "done")

    def __init__(self, batches: set[Batch], done: asyncio.Future[None]) -> None:
        self.batches = batches
        self.done = done


class Outbox:
    """Owner of PartitionQueue and Sender; see their protocols for what each method is told.

    Args:
        supervisor: of the producer: everything that runs is its child.

    Attributes:
        delivered_records: acknowledged since the start.
        failed_records: failed since the start.
        failures: of those, what nobody may have looked at.
    """

    def __init__(
        self,
        settings: ProducerValues,
        engine: ClusterEngine,
        accumulator: Accumulator,
        supervisor: Supervisor,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._accumulator = accumulator
        self._supervisor = supervisor
        self._counters = engine.counters
        self._clock = engine.environment.clock
        self._interceptors = Interceptors(settings.interceptors)
        self._timers = QueueTimers(self._clock, self.queue_broke)
        self._sealer = Sealer(settings, engine.environment.offload, self._spawn)
        self._limits = QueueLimits.of(settings)
        self._queues: dict[str, dict[int, PartitionQueue]] = {}
        self._senders: dict[int, Sender] = {}
        self._unfinished: dict[Batch, None] = {}
        """In the order they were begun: a set's would be another in each run."""
        self._used: set[str] = set()
        self._flushes: list[_Flush] = []
        self._idle = IdleWatch(self._unfinished, self._cut)
        self._hurries = 0
        self._outages = engine.outages
        self._bugs = Bugs()
        self._identity = ProducerIdentity()
        self._ids: ProducerIdSource | None = None
        self.failures = Failures()
        self.delivered_records = 0
        self.failed_records = 0

    def start(self) -> None:
        """Starts the timer, and obtains a producer id if one will be needed."""
        self._spawn(self._timers.run(), "timers")
        if self._settings.linger and not self._settings.lingers_when_awaited:
            self._idle.start()
        if self._settings.enable_idempotence:
            self._ids = ProducerIdSource(
                self._engine, self._identity, self._backoff(), self._offer_all, self._no_producer_id
            )
            self._spawn(self._ids.run(), "producer id")
            self._ids.need()

    # -- partitions

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition, made when first asked for."""
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = {}
        queue = queues.get(partition)
        if queue is None:
            sequences = Sequences(self._identity) if self._settings.enable_idempotence else None
            queue = queues[partition] = PartitionQueue(
                topic, partition, self, self._limits, self._backoff(), sequences
            )
        return queue

    def leader_moved(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Metadata names the leader of a partition; -1 for none."""
        self.queue(topic, partition).leader_moved(leader, leader_epoch, self.now())

    def broker_up(self, node_id: int) -> None:
        """A broker became known, or answers again: what it leads need not wait any longer."""
        now = self.now()
        for queue in self.queues():
            if queue.leader == node_id and queue.blocked_by is not None:
                queue.leader_moved(node_id, queue.leader_epoch, now)

    def queues(self, topic: str | None = None) -> list[PartitionQueue]:
        """All queues, or those of one topic."""
        if topic is not None:
            return list(self._queues.get(topic, {}).values())
        return [queue for queues in self._queues.values() for queue in queues.values()]

    def used_topics(self) -> set[str]:
        """The topics that batches were begun for since the last call, or are unfinished."""
        used, self._used = self._used, set()
        used.update(batch.topic for batch in list(self._unfinished))
        return used

    def _busy(self) -> list[PartitionQueue]:
        """The queues that have something. Context: any thread."""
        places = dict.fromkeys((batch.topic, batch.partition) for batch in list(self._unfinished))
        return [self._queues[topic][partition] for topic, partition in places]

    def held_up(self) -> dict[TopicPartition, str]:
        """The partitions whose records could not be delivered so far, with the reason."""
        return {
            queue.topic_partition: str(trouble)
            for queue in self._busy()
            if (trouble := queue.trouble) is not None
        }

    def queues_of(self, topic: str) -> Mapping[int, PartitionQueue]:
        """The queues of a topic by partition."""
        return self._queues.get(topic, {})

    def stalled(self, node_id: int) -> float:
        """Seconds since a broker that has something to be sent was last sent anything."""
        sender = self._senders.get(node_id)
        return 0.0 if sender is None else sender.stalled(self.now())

    def put(self, topic: str, partition: int, records: Sequence[BuiltRecord]) -> list[Delivery]:
        """Accepts records as a batch of their own, behind what the partition has."""
        queue = self.queue(topic, partition)
        slot = queue.slot
        assert slot is not None, "the topic is followed, so its slots are made"
        now_ms = self._clock.timestamp_ms()
        stamped = [
            (key, value, headers, now_ms if timestamp_ms is None else timestamp_ms)
            for key, value, headers, timestamp_ms in records
        ]
        batch, deliveries = self._accumulator.new_batch(slot, stamped)
        self._used.add(topic)
        self._unfinished[batch] = None
        queue.put(batch)
        return deliveries

    # -- hurry, flush, end

    @property
    def hurried(self) -> bool:
        return self._hurries > 0

    def hurry(self) -> None:
        """Batches go without lingering, until as many calls of `relax`."""
        self._hurries += 1
        if self._hurries == 1:
            self._offer_all()

    def relax(self) -> None:
        """The opposite of one `hurry`."""
        self._hurries -= 1

    async def finish(self) -> None:
        """Until all batches that exist now are delivered or failed."""
        if not self._unfinished:
            return
        flush = _Flush(set(self._unfinished), asyncio.get_running_loop().create_future())
        self._flushes.append(flush)
        try:
            await flush.done
        finally:
            self._flushes.remove(flush)

    @property
    def unfinished(self) -> int:
        """Batches that are neither delivered nor failed."""
        return len(self._unfinished)

    def take_all(self) -> list[QueuedBatch]:
        """Everything that is left, no more to be sent; the caller fails it."""
        return [queued for queue in self.queues() for queued in queue.take_all()]

    def give_up(self, batch: Batch, error: KafkaError) -> None:
        """A batch that is in no queue fails, or has failed: one that waited for its topic, or that
        `take_all` gave."""
        self._counters.records_failed += batch.count
        self.failed_records += batch.count
        self.failures.add(batch, error)
        batch.fail(error)
        self._finished(batch)
        if self._interceptors:
            info = BatchInfo(batch.topic, batch.partition, batch.count, batch.size, attempt=0)
            self._interceptors.error(info, error)

    # -- bugs: they end the batches they concern, and nothing else

    def bug(self, where: str, error: BaseException, topic: str = "") -> KafkaError:
        """Logs a bug, each once; the error for the records it concerns."""
        return self._bugs.note(where, error, topic)

    def core_failed(self, batch: Batch, error: KafkaError) -> None:
        """The native core failed a batch, which may be in a queue."""
        queue = self._queues.get(batch.topic, {}).get(batch.partition)
        if queue is not None:
            queue.forget(batch)
        self.give_up(batch, error)

    def broke(self, queued: QueuedBatch, where: str, error: Exception) -> None:
        """A bug came up where the batch was worked on."""
        queued.queue.give_up(queued, self.bug(where, error))

    def queue_broke(self, queue: PartitionQueue, where: str, error: Exception) -> None:
        queue.give_up_all(self.bug(where, error))

    def _each(
        self, queues: list[PartitionQueue], where: str, call: Callable[[PartitionQueue], None]
    ) -> None:
        for queue in queues:
            try:
                call(queue)
            except Exception as error:  # noqa: BLE001  logged by bug()
                self.queue_broke(queue, where, error)

    # -- what queues tell (QueueOwner)

    def opened(self, queue: PartitionQueue, batch: Batch) -> None:
        self._used.add(batch.topic)
        self._unfinished[batch] = None
        self._idle.stirred()

    def ready(self, queue: PartitionQueue) -> None:
        leader = queue.leader
        if leader < 0:
            self._leaderless(queue)
            return
        sender = self._senders.get(leader)
        if sender is None:
            sender = self._new_sender(leader)
            if sender is None:
                self._leaderless(queue)
                return
        sender.offer(queue)

    def schedule(self, queue: PartitionQueue, when: float) -> None:
        self._timers.schedule(queue, when)

    def seal(self, queued: QueuedBatch) -> bool:
        return self._sealer.seal(queued, self._sealed, self.broke)

    def producer_id_needed(self) -> None:
        if self._ids is not None:
            self._ids.need()

    # hot: once per batch, benchmarks/micro/producer.py
    def delivered(self, queued: QueuedBatch, base_offset: int, log_append_time_ms: int) -> None:
        batch = queued.batch
        count = batch.count
        counters = self._counters
        counters.records_sent += count
        counters.record_bytes_sent += batch.size
        counters.batches_sent += 1
        counters.batch_bytes_sent += queued.size
        counters.delivery_seconds.observe(self._clock.monotonic() - batch.created)
        self.delivered_records += count
        if self._outages.troubled:
            place = queued.queue.topic_partition
            self._outages.recovered(AGAIN, place)
            self._outages.recovered(GIVEN_UP, place)
        batch.complete(base_offset, log_append_time_ms)
        self._finished(batch)
        if self._interceptors:
            self._interceptors.ack(_info(queued, base_offset))

    def failed(self, queued: QueuedBatch, error: KafkaError) -> None:
        batch = queued.batch
        if batch.done:
            self._finished(batch)
            return
        if isinstance(error, RequestTimeout) and error.origin == "client":
            # In an outage this is the end of all batches, one after the other.
            place = queued.queue.topic_partition
            self._outages.lost(GIVEN_UP, place, error, records=batch.count)
        else:
            logger.log(
                # A bug is in the log already.
                logging.DEBUG if isinstance(error, InternalError) else logging.ERROR,
                "batch failed: topic=%s partition=%s records=%s attempts=%s error=%s",
                batch.topic,
                batch.partition,
                batch.count,
                queued.attempts,
                error,
            )
        self._counters.records_failed += batch.count
        self.failed_records += batch.count
        self.failures.add(batch, error)
        batch.fail(error)
        self._finished(batch)
        if self._interceptors:
            self._interceptors.error(_info(queued), error)

    def retrying(self, queued: QueuedBatch, error: KafkaError) -> None:
        self._counters.batches_retried += 1
        self._counters.retries["Produce"] += 1
        place = queued.queue.topic_partition
        where = {"node": queued.node_id, "partition": place}
        self._outages.failed(AGAIN, queued.node_id, error, where=where, member=place)

    def moved(self, queue: PartitionQueue, error: KafkaError) -> None:
        self._moved(queue, error, None)

    def regroup(self, queued: QueuedBatch, groups: Sequence[Sequence[int]]) -> list[QueuedBatch]:
        self._counters.batches_split += 1
        codec = self._sealer.codec(queued.queue.topic)
        batches = regroup(self._accumulator, queued.batch, codec, groups)
        self._unfinished.update(dict.fromkeys(batches))
        for flush in self._flushes:
            if queued.batch in flush.batches:
                flush.batches.update(batches)
        self._finished(queued.batch)
        return [QueuedBatch(queued.queue, batch, queued.deadline) for batch in batches]

    # -- what senders tell (SenderOwner)

    def now(self) -> float:
        return self._clock.monotonic()

    def topic_id(self, topic: str) -> UUID:
        info = self._engine.metadata.topics.get(topic)
        return ZERO_ID if info is None else info.topic_id

    def codec(self, topic: str) -> int:
        return self._sealer.codec(topic)

    # hot: once per batch, benchmarks/micro/producer.py
    def launched(self, queued: QueuedBatch, attempt: int) -> memoryview:
        batch = queued.batch
        if attempt == 1:
            self._counters.queue_seconds.observe(self._clock.monotonic() - batch.created)
        if self._interceptors:
            self._interceptors.batch(_info(queued))
        stamp = queued.stamp
        return batch.stamp() if stamp is None else batch.stamp(*stamp)

    def answered(
        self, queued: QueuedBatch, attempt: int, base_offset: int, log_append_time_ms: int
    ) -> None:
        queue = queued.queue
        if queue.blocked_by is not None:
            self._engine.partition_ok(queue.topic_partition)
        queue.answered(queued, attempt, base_offset, log_append_time_ms)
        queue.offer_if_ripe(self.now())

    def refused(
        self,
        queued: QueuedBatch,
        attempt: int,
        error: KafkaError,
        bad_records: dict[int, str | None] | None = None,
        hint: LeaderHint | None = None,
    ) -> None:
        queue = queued.queue
        name = error.name if isinstance(error, BrokerError) else type(error).__name__
        self._counters.errors[name] += 1
        if hint is not None:
            self._moved(queue, error, hint)
        now = self.now()
        queue.refused(queued, attempt, error, now, bad_records)
        queue.offer_if_ripe(now)

    def unreachable(self, queues: list[PartitionQueue], error: KafkaError) -> None:
        self._each(queues, "unreachable", lambda queue: self._unreachable(queue, error))

    def _unreachable(self, queue: PartitionQueue, error: KafkaError) -> None:
        queue.blocked_by = error
        if error.retriable:
            self._engine.partition_failed(
                queue.topic_partition, error, leader_epoch=queue.leader_epoch
            )
            queue.offer_if_ripe(self.now())
        else:
            # No right to, or nothing we can talk to: waiting would not help.
            queue.fail_unsent(error)

    # -- inside

    def _moved(self, queue: PartitionQueue, error: KafkaError, hint: LeaderHint | None) -> None:
        self._engine.partition_failed(
            queue.topic_partition, error, leader_epoch=queue.leader_epoch, hint=hint
        )

    def _leaderless(self, queue: PartitionQueue) -> None:
        """Nobody to send to: the engine looks for a leader, and tells when there is one."""
        if queue.blocked_by is None:
            queue.blocked_by = LeaderNotAvailable(topic_partition=queue.topic_partition)
            self._moved(queue, queue.blocked_by, None)

    def _new_sender(self, node_id: int) -> Sender | None:
        if node_id not in self._engine.metadata.brokers:
            return None
        settings = self._settings
        sender = Sender(
            self._engine.node(node_id),
            self,
            acks=settings.required_acks,
            max_in_flight=settings.max_in_flight_requests_per_connection,
            max_request_size=settings.max_request_size,
            timeout=settings.produce_request_timeout_ms / 1000,
            spawn=self._spawn,
        )
        self._senders[node_id] = sender
        self._spawn(sender.run(), f"sender to node {node_id}")
        return sender

    def _sealed(self, queued: QueuedBatch) -> None:
        queued.queue.offer_if_ripe(self.now())

    def _offer_all(self) -> None:
        now = self.now()
        self._each(self._busy(), "offer", lambda queue: queue.offer_if_ripe(now))

    def _no_producer_id(self, error: KafkaError) -> None:
        self._each(self._busy(), "failing", lambda queue: queue.fail_unsent(error))

    def _cut(self) -> None:
        self._each(self._busy(), "cut", lambda queue: queue.cut())

    def _finished(self, batch: Batch) -> None:
        self._unfinished.pop(batch, None)
        if self._unfinished:
            self._idle.stirred()
        for flush in self._flushes:
            flush.batches.discard(batch)
            if not flush.batches and not flush.done.done():
                flush.done.set_result(None)

    def _backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(
            settings.retry_backoff_ms / 1000,
            settings.retry_backoff_max_ms / 1000,
            self._engine.environment.random,
        )

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        self._supervisor.spawn(coro, name=name)


def _info(queued: QueuedBatch, base_offset: int = -1) -> BatchInfo:
    return BatchInfo(
        queued.queue.topic,
        queued.queue.partition,
        queued.batch.count,
        queued.size,
        queued.attempts,
        base_offset,
    )
