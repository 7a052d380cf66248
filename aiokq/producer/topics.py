"""Topics: what the native core knows of topics, kept as the cluster engine knows it.

Records of a topic without metadata wait in the core; here somebody asks for it, for as long as
max_block_ms, and other topics do not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from aiokq.cluster.events import (
    BrokerUp,
    Event,
    EventKey,
    LeaderChanged,
    PartitionRecovered,
    PartitionsAdded,
    TopicAdded,
    TopicRecreated,
    TopicRemoved,
)
from aiokq.core.errors import KafkaError, UnknownTopicOrPartition, copy_error

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.metadata import TopicInfo
    from aiokq.core.signal import Subscription
    from aiokq.fastpath import Accumulator, Batch, Slot
    from aiokq.producer.queue import PartitionQueue

__all__ = ["Topics", "TopicsOwner"]

logger = logging.getLogger("aiokq.producer")


class TopicsOwner(Protocol):
    """The part of Outbox that topics need."""

    def queue(self, topic: str, partition: int) -> PartitionQueue: ...

    def queues(self, topic: str | None = None) -> list[PartitionQueue]: ...

    def leader_moved(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None: ...

    def broker_up(self, node_id: int) -> None: ...

    def give_up(self, batch: Batch, error: KafkaError) -> None: ...

    def used_topics(self) -> set[str]: ...


class Topics:
    """Follows the topics that records were sent to.

    Args:
        timeout: seconds that records wait for a topic to be known.
        max_idle: seconds that a topic is followed without a record.
        spawn: starts a task that belongs to the producer.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        accumulator: Accumulator,
        outbox: TopicsOwner,
        timeout: float,
        max_idle: float,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._max_idle = max_idle
        self._engine = engine
        self._accumulator = accumulator
        self._outbox = outbox
        self._timeout = timeout
        self._spawn = spawn
        self._looking: dict[str, asyncio.Task[None]] = {}
        """By topic; one stays here that ended without an outcome, cancelled or by a bug."""
        self._followed: dict[str, TopicInfo | None] = {}
        """What the queues were last told of each topic that is watched; None if it is gone."""
        self._subscription: Subscription[EventKey, Event] | None = None

    def start(self) -> None:
        """Follows the engine's events."""
        self._subscription = self._engine.changes.subscribe(self._changed, replay=False)
        self._spawn(self._leave_idle(), "idle topics")

    def close(self) -> None:
        """Follows nothing any more."""
        if self._subscription is not None:
            self._subscription.close()
        self._engine.unwatch(self._followed)
        self._followed.clear()

    def unknown(self, topic: str) -> None:
        """A record came for a topic without metadata; called in the middle of an append."""
        if topic not in self._looking:
            self._looking[topic] = self._spawn(self._look_up(topic), f"metadata of {topic}")

    async def settled(self) -> None:
        """Until the topics that are looked up now are known, or given up."""
        if self._looking:
            await asyncio.wait(list(self._looking.values()))

    async def find(self, topic: str, *, partition: int | None = None) -> TopicInfo:
        """The topic, followed from now on.

        Args:
            partition: ask again if the topic is known, but not this partition.

        Raises:
            UnknownTopicOrPartition: it did not come to exist within max_block_ms.
            KafkaError: as ClusterEngine.topic.
        """
        info = await self._engine.topic(topic, timeout=self._timeout)
        if partition is not None and partition not in info.partitions:
            await self._engine.refresh([topic])
            info = await self._engine.topic(topic, timeout=self._timeout)
        if self._followed.get(topic) is not info:
            # Else the queues know it all, and would take it for news that ends their pauses.
            self._follow(info)
        return info

    def pending(self) -> list[Batch]:
        """Batches of records whose topic is not known yet."""
        return [
            batch
            for topic in self._looking
            for batch in self._accumulator.pending(topic)
            if not batch.done
        ]

    def missing(self) -> frozenset[str]:
        """Topics that records wait for and that, by the newest answer, do not exist."""
        return frozenset(filter(self._engine.topics.missing, self._looking))

    # -- inside

    async def _leave_idle(self) -> None:
        """Follows topics no more that no record came for; the next one looks them up again.

        Their queues stay, as the brokers remember this producer's sequence numbers.
        """
        while True:
            await asyncio.sleep(self._max_idle)
            used = self._outbox.used_topics() | self._looking.keys()
            idle = self._followed.keys() - used
            self._engine.unwatch(idle)
            for topic in idle:
                del self._followed[topic]
                self._accumulator.forget_route(topic)

    async def _look_up(self, topic: str) -> None:
        try:
            await self.find(topic)
        except KafkaError as error:
            error.add_context(topic_partition=topic)
            logger.error("records are given up: topic=%s error=%s", topic, error)
            self._give_up(topic, error)
        # Here and not in a callback of the task: a record that comes right after this must find
        # that nobody looks any more.
        self._looking.pop(topic, None)

    def _give_up(self, topic: str, error: KafkaError) -> None:
        for batch in self._accumulator.pending(topic):
            self._outbox.give_up(batch, copy_error(error))
        self._accumulator.fail_pending(topic, error)
        for queue in self._outbox.queues(topic):
            queue.fail_unsent(error)

    def _follow(self, info: TopicInfo) -> None:
        topic = info.name
        if topic not in self._followed:
            self._engine.watch([topic])
        self._followed[topic] = info
        for partition in info.partitions.values():
            self._outbox.leader_moved(
                topic, partition.partition, partition.leader, partition.leader_epoch
            )
        self._set_route(info)

    def _set_route(self, info: TopicInfo) -> None:
        if info.partitions:
            available = sorted(p.partition for p in info.partitions.values() if p.leader >= 0)
            self._accumulator.set_route(
                info.name, max(info.partitions) + 1, available, self._take_slot
            )

    def _take_slot(self, slot: Slot) -> PartitionQueue:
        queue = self._outbox.queue(slot.topic, slot.partition)
        queue.slot = slot
        return queue

    def _changed(self, key: EventKey, event: Event) -> None:
        if isinstance(event, BrokerUp):
            self._outbox.broker_up(event.node_id)
            return
        topic = getattr(event, "topic", None)
        if topic not in self._followed:
            return
        info = self._engine.metadata.topics.get(topic)
        if isinstance(event, LeaderChanged):
            self._outbox.leader_moved(topic, event.partition, event.leader, event.leader_epoch)
            if info is not None and (event.leader < 0) != (event.previous_leader < 0):
                self._set_route(info)
        elif isinstance(event, PartitionRecovered):
            self._outbox.leader_moved(topic, event.partition, event.leader, event.leader_epoch)
        elif isinstance(event, TopicRecreated | TopicAdded | PartitionsAdded):
            if isinstance(event, TopicRecreated):
                for queue in self._outbox.queues(topic):
                    # The new log knows nothing of this producer: it must not take the second of
                    # two batches in flight without the first.
                    if queue.sequences is not None:
                        queue.sequences.break_off()
            if info is not None:
                self._follow(info)
        elif isinstance(event, TopicRemoved):
            self._removed(topic)

    def _removed(self, topic: str) -> None:
        """Deleted, perhaps to be created again: what is queued waits for that like new records."""
        logger.warning("topic is gone: topic=%s", topic)
        gone = UnknownTopicOrPartition(f"topic {topic!r} was deleted", topic_partition=topic)
        for queue in self._outbox.queues(topic):
            queue.blocked_by = gone
            queue.leader_moved(-1, -1, 0.0)
        self._followed[topic] = None
        self._accumulator.forget_route(topic)
        self.unknown(topic)
