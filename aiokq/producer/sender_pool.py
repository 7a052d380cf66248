"""SenderPool: the senders of a producer, one per broker.

It offers queues to the sender of their leader, and passes answers and errors from the senders to
the queues and to the cluster engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokq.cluster.denials import name_denial
from aiokq.cluster.metadata import ZERO_ID
from aiokq.core.errors import BrokerError, KafkaError, LeaderNotAvailable
from aiokq.producer.interceptors import Interceptors, batch_info
from aiokq.producer.missing_topics import no_partition
from aiokq.producer.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from uuid import UUID

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.reducer_inputs import LeaderHint
    from aiokq.fastpath.produce import QueuedBatch
    from aiokq.producer.batch_sealer import BatchSealer
    from aiokq.producer.internal_errors import InternalErrors
    from aiokq.producer.partition_queue import PartitionQueue
    from aiokq.producer.sender import SenderTransactions
    from aiokq.producer.values import ProducerValues

__all__ = ["SenderPool"]


class SenderPool:
    """All senders of a producer by node id; a sender is created when its broker is first needed.

    Args:
        spawn: starts a task that belongs to the producer.
        transactions: the transactions of the producer; None if it has no transactional id.

    Attributes:
        look_up: called with a topic without metadata whose batches cannot be sent. It starts a
            lookup, unless a lookup of the topic is in progress.
    """

    look_up: Callable[[str], None]

    def __init__(
        self,
        settings: ProducerValues,
        engine: ClusterEngine,
        interceptors: Interceptors,
        sealer: BatchSealer,
        internal_errors: InternalErrors,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        transactions: SenderTransactions | None = None,
    ) -> None:
        self._transactions = transactions
        self._settings = settings
        self._engine = engine
        self._interceptors = interceptors or None  # tested once per batch; None is fastest
        self._sealer = sealer
        self._internal_errors = internal_errors
        self._spawn = spawn
        self._clock = engine.environment.clock
        self._counters = engine.counters
        self._senders: dict[int, Sender] = {}

    def stalled(self, node_id: int) -> float:
        """Return the result of `Sender.stalled` for a broker; 0 if the broker has no sender."""
        sender = self._senders.get(node_id)
        return 0.0 if sender is None else sender.stalled(self.now())

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

    def send_now(self) -> None:
        """Send the batches of the offered queues now, not in the loop's next iteration."""
        for sender in list(self._senders.values()):
            sender.send_now()

    def moved(self, queue: PartitionQueue, error: KafkaError) -> None:
        self._leader_failed(queue, error, None)

    def now(self) -> float:
        return self._clock.monotonic()

    def topic_id(self, topic: str) -> UUID:
        info = self._engine.metadata.topics.get(topic)
        return ZERO_ID if info is None else info.topic_id

    def codec(self, topic: str) -> int:
        return self._sealer.codec(topic)

    # Hot path, once per batch; measured by benchmarks/micro/producer.py.
    def launched(self, queued: QueuedBatch, attempt: int) -> memoryview:
        batch = queued.batch
        if attempt == 1:
            self._counters.queue_seconds.observe(self._clock.monotonic() - batch.created)
        if self._interceptors is not None:
            self._interceptors.batch(batch_info(queued))
        stamp = queued.stamp
        if stamp is None:
            return batch.stamp()
        if self._transactions is not None:
            return batch.stamp(*stamp, transactional=True)
        return batch.stamp(*stamp)

    # Hot path, once per batch; measured by benchmarks/micro/producer.py.
    def answered(
        self, queued: QueuedBatch, attempt: int, base_offset: int, log_append_time_ms: int
    ) -> None:
        queue = queued.queue
        if queue.blocked_by is not None:
            self._engine.partition_ok(queue.topic_partition)
        queue.answered(queued, attempt, base_offset, log_append_time_ms)
        if not queue.all_sent:
            queue.offer_if_ripe(self._clock.monotonic())

    def refused(
        self,
        queued: QueuedBatch,
        attempt: int,
        error: KafkaError,
        bad_records: dict[int, str | None] | None = None,
        hint: LeaderHint | None = None,
    ) -> None:
        if self._transactions is not None:
            self._transactions.batch_refused()
        queue = queued.queue
        name = error.name if isinstance(error, BrokerError) else type(error).__name__
        self._counters.errors[name] += 1
        name_denial(self._engine, error)
        if hint is not None:
            self._leader_failed(queue, error, hint)
        now = self.now()
        queue.refused(queued, attempt, error, now, bad_records)
        queue.offer_if_ripe(now)

    def unreachable(self, queues: list[PartitionQueue], error: KafkaError) -> None:
        self._internal_errors.call_each(
            queues, "unreachable", lambda queue: self._unreachable(queue, error)
        )

    def _unreachable(self, queue: PartitionQueue, error: KafkaError) -> None:
        queue.blocked_by = error
        if error.retriable:
            self._leader_failed(queue, error, None)
            queue.offer_if_ripe(self.now())
        else:
            # A retry cannot help, for example because the authentication failed.
            queue.fail_unsent(error)

    def _leader_failed(
        self, queue: PartitionQueue, error: KafkaError, hint: LeaderHint | None
    ) -> None:
        self._engine.partition_failed(
            queue.topic_partition, error, leader_epoch=queue.leader_epoch, hint=hint
        )

    def _leaderless(self, queue: PartitionQueue) -> None:
        """Report to the cluster engine, once, that the leader of the partition is not known.

        The partition has no leader, or its leader is not among the known brokers. The event of a
        new leader or of a new broker offers the queue again. The batches of a partition that was
        removed fail.
        """
        info = self._engine.metadata.topics.get(queue.topic)
        if info is not None and info.partitions and queue.partition not in info.partitions:
            queue.fail_unsent(no_partition(info, queue.partition))
            return
        if info is None:
            # The topic was deleted. A lookup that fails also fails the topic's batches, except
            # those in flight. The batch of this queue may have been in flight during an earlier
            # lookup, so it needs another lookup.
            self.look_up(queue.topic)
        if queue.blocked_by is None:
            queue.blocked_by = LeaderNotAvailable(topic_partition=queue.topic_partition)
            self._leader_failed(queue, queue.blocked_by, None)

    def _new_sender(self, node_id: int) -> Sender | None:
        if node_id not in self._engine.metadata.brokers:
            return None
        settings = self._settings
        sender = Sender(
            self._engine.node(node_id),
            self,
            self._internal_errors,
            acks=settings.required_acks,
            max_in_flight=settings.max_in_flight_requests_per_connection,
            max_request_size=settings.max_request_size,
            timeout=settings.produce_request_timeout_ms / 1000,
            spawn=self._spawn,
            transactions=self._transactions,
        )
        self._senders[node_id] = sender
        self._spawn(sender.run(), f"sender to node {node_id}")
        return sender
