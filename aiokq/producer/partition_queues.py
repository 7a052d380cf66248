"""PartitionQueues: all partition queues of a producer, and the state that these queues share.

The queues share the timers, the linger watch, the compression, the producer id, and the request to
send without lingering (`hurry`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiokq.connection.backoff import Backoff
from aiokq.fastpath.produce import QueuedBatch
from aiokq.producer.batch_split import regroup
from aiokq.producer.idempotence import Sequences
from aiokq.producer.partition_queue import PartitionQueue
from aiokq.producer.queue_owner import QueueLimits
from aiokq.producer.queue_timers import QueueTimers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.core.errors import KafkaError
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.produce import Accumulator, Batch, Delivery
    from aiokq.producer.batch_builder import BuiltRecord
    from aiokq.producer.batch_completion import BatchCompletion
    from aiokq.producer.batch_sealer import BatchSealer
    from aiokq.producer.idempotence import ProducerIdentity
    from aiokq.producer.incomplete_batches import IncompleteBatches
    from aiokq.producer.internal_errors import InternalErrors
    from aiokq.producer.linger_watch import LingerWatch
    from aiokq.producer.queue_owner import SendGate
    from aiokq.producer.sender_pool import SenderPool
    from aiokq.producer.values import ProducerValues

__all__ = ["PartitionQueues"]


class IdSource(Protocol):
    """The source of the producer id that batches are numbered with."""

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and its newest epoch."""

    def need(self) -> None:
        """Request a producer id, because a batch waits for it."""


class PartitionQueues:
    """All queues of a producer, by topic and partition; a queue stays until the producer closes.

    Args:
        ids: source of the producer id; None without idempotence.
        gate: decides whether batches may be sent; None without transactions.

    Attributes:
        hurried: whether batches are sent without lingering at present.
        timers: calls `on_time` of each queue at the time that the queue has scheduled.
    """

    def __init__(
        self,
        settings: ProducerValues,
        engine: ClusterEngine,
        accumulator: Accumulator,
        senders: SenderPool,
        completion: BatchCompletion,
        incomplete: IncompleteBatches,
        linger_watch: LingerWatch,
        sealer: BatchSealer,
        internal_errors: InternalErrors,
        ids: IdSource | None,
        gate: SendGate | None = None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._clock = engine.environment.clock
        self._accumulator = accumulator
        self._senders = senders
        self._completion = completion
        self._incomplete = incomplete
        self._linger_watch = linger_watch
        self._sealer = sealer
        self._internal_errors = internal_errors
        self._ids = ids
        self._gate = gate
        self._limits = QueueLimits.of(settings)
        self._queues: dict[str, dict[int, PartitionQueue]] = {}
        self._used: set[str] = set()
        self._hurries = 0
        self.hurried = False
        self.timers = QueueTimers(self._clock, internal_errors.fail_queue)

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition, creating it if there is none."""
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = {}
        queue = queues.get(partition)
        if queue is None:
            queue = queues[partition] = PartitionQueue(
                topic,
                partition,
                self,
                self._senders,
                self._completion,
                self._limits,
                self._backoff(),
                None if self._ids is None else Sequences(self._ids.identity),
                self._gate,
            )
        return queue

    def of_topic(self, topic: str) -> list[PartitionQueue]:
        return list(self._queues.get(topic, {}).values())

    def by_partition(self, topic: str) -> Mapping[int, PartitionQueue]:
        return self._queues.get(topic, {})

    def leader_moved(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Set the leader and the leader epoch of a partition; `leader` is -1 if there is none."""
        self.queue(topic, partition).leader_moved(leader, leader_epoch, self._clock.monotonic())

    def broker_up(self, node_id: int) -> None:
        """End the pauses of a broker's partitions, because the broker is up or became known."""
        now = self._clock.monotonic()
        for queue in self._all():
            if queue.leader == node_id and queue.blocked_by is not None:
                queue.leader_moved(node_id, queue.leader_epoch, now)

    def used_topics(self) -> set[str]:
        """Return the topics with an incomplete batch, or a batch opened since the last call."""
        used, self._used = self._used, set()
        used.update(batch.topic for batch in self._incomplete.copy())
        return used

    def held_up(self) -> dict[TopicPartition, str]:
        """Return the partitions whose records could not be delivered so far, with the reason.

        Context: any thread.
        """
        return {
            queue.topic_partition: str(trouble)
            for queue in self._busy()
            if (trouble := queue.trouble) is not None
        }

    def put(self, topic: str, partition: int, records: Sequence[BuiltRecord]) -> list[Delivery]:
        """Append records as a batch of their own, after the other batches of the partition."""
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
        self._incomplete.add(batch)
        queue.put(batch)
        return deliveries

    def hurry(self) -> None:
        """Send batches without lingering until `relax` has been called as often as `hurry`.

        Batches that can be sent now are sent by the call itself.
        """
        self._hurries += 1
        if not self.hurried:
            self.hurried = True
            if self._limits.linger:  # if linger is 0, batches were offered when they became ready
                self.offer_all()
        self._senders.send_now()

    def relax(self) -> None:
        """Undo one `hurry`."""
        self._hurries -= 1
        self.hurried = self._hurries > 0

    def offer_all(self) -> None:
        """Offer each queue that has a ready batch to the sender of the partition's leader."""
        now = self._clock.monotonic()
        self._internal_errors.call_each(
            self._busy(), "offer", lambda queue: queue.offer_if_ripe(now)
        )

    def cut_all(self) -> None:
        """Close all open batches, and offer their queues to the senders."""
        self._internal_errors.call_each(self._busy(), "cut", lambda queue: queue.cut())

    def fail_unsent(self, error: KafkaError, topic: str | None = None) -> None:
        """Fail, with `error`, the batches that are not in flight.

        Args:
            topic: the topic of the batches; None for all topics.
        """
        if topic is None:
            self._internal_errors.call_each(
                self._busy(), "failing", lambda queue: queue.fail_unsent(error)
            )
            return
        for queue in self.of_topic(topic):
            queue.fail_unsent(error)

    def restart_sequences(self) -> None:
        """Restart the sequence numbers of all partitions at 0, because the epoch has changed."""
        for queue in self._all():
            if queue.sequences is not None:
                queue.sequences.restart()

    def take_all(self) -> list[QueuedBatch]:
        """Remove and return all batches without an outcome; the caller fails them."""
        return [queued for queue in self._all() for queued in queue.take_all()]

    def core_failed(self, batch: Batch, error: KafkaError) -> None:
        """Report a batch that failed in the accumulator, and remove it from its queue, if any."""
        queue = self._queues.get(batch.topic, {}).get(batch.partition)
        if queue is not None:
            queue.forget(batch)
        self._completion.failed_unqueued(batch, error)

    def opened(self, queue: PartitionQueue, batch: Batch) -> None:
        self._used.add(batch.topic)
        self._incomplete.add(batch)
        self._linger_watch.changed()

    def schedule(self, queue: PartitionQueue, when: float) -> None:
        self.timers.schedule(queue, when)

    def seal(self, queued: QueuedBatch) -> bool:
        return self._sealer.seal(queued, self._sealed, self._internal_errors.fail_batch)

    def producer_id_needed(self) -> None:
        if self._ids is not None:
            self._ids.need()

    def regroup(self, queued: QueuedBatch, groups: Sequence[Sequence[int]]) -> list[QueuedBatch]:
        self._engine.counters.batches_split += 1
        batches = regroup(self._accumulator, queued.batch, queued.codec, groups)
        self._incomplete.replace(queued.batch, batches)
        return [QueuedBatch(queued.queue, batch, queued.deadline) for batch in batches]

    def _all(self) -> list[PartitionQueue]:
        return [queue for queues in self._queues.values() for queue in queues.values()]

    def _busy(self) -> list[PartitionQueue]:
        """Return the queues that have incomplete batches.

        Context: any thread.
        """
        places = dict.fromkeys((batch.topic, batch.partition) for batch in self._incomplete.copy())
        return [self._queues[topic][partition] for topic, partition in places]

    def _sealed(self, queued: QueuedBatch) -> None:
        queued.queue.offer_if_ripe(self._clock.monotonic())

    def _backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(
            settings.retry_backoff_ms / 1000,
            settings.retry_backoff_max_ms / 1000,
            self._engine.environment.random,
        )
