"""ProducerMetadata: passes the metadata of a producer's topics to the accumulator and the queues.

Records of a topic without metadata wait in the accumulator. A task looks the topic up for at most
max_block_ms, or delivery_timeout_ms if that is shorter. Records of other topics do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

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
from aiokq.core.errors import InternalError, KafkaError, UnknownTopicOrPartition, copy_error
from aiokq.core.log_lines import LineLimit
from aiokq.producer.missing_topics import MissingTopics, no_partition

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.metadata import TopicInfo
    from aiokq.core.observable_map import Subscription
    from aiokq.fastpath.produce import Accumulator, Batch, Slot
    from aiokq.producer.batch_completion import BatchCompletion
    from aiokq.producer.internal_errors import InternalErrors
    from aiokq.producer.partition_queue import PartitionQueue
    from aiokq.producer.partition_queues import PartitionQueues

__all__ = ["ProducerMetadata"]

logger = logging.getLogger("aiokq.producer")


class _Lookup:
    """The lookup of a topic whose records wait for its metadata.

    Attributes:
        started: monotonic seconds at which the lookup began.
        task: looks the topic up, and then removes this object from the lookups in progress. A task
            that is cancelled does not remove the object.
        limit: timeout of `task`; it is set to the current time to end the wait early.
        ending: task that decides when to end the wait early; None until the producer is closed.
    """

    __slots__ = ("ending", "limit", "started", "task")

    def __init__(self, started: float) -> None:
        self.started = started
        self.task: asyncio.Task[None] | None = None
        self.limit = asyncio.timeout(None)
        self.ending: asyncio.Task[None] | None = None


class ProducerMetadata:
    """Keeps the metadata of the topics to which records were sent.

    Args:
        timeout: seconds that records wait for the metadata of an unknown topic.
        max_idle: seconds between two checks for idle topics. The metadata of a topic is no longer
            refreshed if no record was sent to the topic between two checks.
        spawn: starts a task that belongs to the producer.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        accumulator: Accumulator,
        queues: PartitionQueues,
        completion: BatchCompletion,
        internal_errors: InternalErrors,
        timeout: float,
        max_idle: float,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._max_idle = max_idle
        self._engine = engine
        self._accumulator = accumulator
        self._queues = queues
        self._completion = completion
        self._internal_errors = internal_errors
        self._timeout = timeout
        self._spawn = spawn
        self._missing = MissingTopics(engine, timeout, spawn)
        self._given_up = LineLimit(logger, logging.ERROR, "records are given up: other topics=%d")
        self._looking: dict[str, _Lookup] = {}
        self._calls: set[asyncio.Timeout] = set()
        """The timeouts of the calls of `find` in progress; `refuse` ends these calls early."""
        self._refusal: KafkaError | None = None
        self._closing = False
        self._followed: dict[str, TopicInfo | None] = {}
        """The metadata that was passed to the queues, by watched topic.

        None if the topic was deleted, or while its metadata is being passed to the queues.
        """
        self._subscription: Subscription[EventKey, Event] | None = None

    def start(self) -> None:
        """Subscribe to the engine's events, and start the task that unwatches idle topics."""
        self._subscription = self._engine.changes.subscribe(self._changed, replay=False)
        self._spawn(self._leave_idle(), "idle topics")

    def refuse(self, error: KafkaError) -> None:
        """Fail current and later calls of `find` with `error`."""
        if self._refusal is None:
            self._refusal = error
            now = self._engine.now()
            for limit in self._calls:
                limit.reschedule(now)

    def hasten(self) -> None:
        """Shorten the waits for topics that do not exist, because the producer is being closed.

        `MissingTopics.given_up` decides when a wait ends.
        """
        self._closing = True
        for topic, lookup in self._looking.items():
            self._hasten(topic, lookup)

    def close(self) -> None:
        """Unsubscribe from the engine's events, and stop watching all topics."""
        self._missing.close()
        self._given_up.end()
        if self._subscription is not None:
            self._subscription.close()
        self._engine.unwatch(self._followed)
        self._followed.clear()

    def unknown(self, topic: str) -> None:
        """Start to look up a topic without metadata, unless a lookup of the topic is in progress.

        Called by the accumulator during an append, and after a topic was deleted.
        """
        if topic not in self._looking:
            lookup = self._looking[topic] = _Lookup(self._engine.now())
            # Spawn after the entry is stored: an eager task may end, and remove the entry, before
            # `_spawn` returns.
            lookup.task = self._spawn(self._look_up(topic, lookup), f"metadata of {topic}")
            if self._closing:
                self._hasten(topic, lookup)

    async def settled(self) -> None:
        """Wait until each topic that is being looked up is known, or its records have failed."""
        tasks = [lookup.task for lookup in self._looking.values() if lookup.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def find(self, topic: str, *, partition: int | None = None) -> TopicInfo:
        """Return the topic's metadata, and keep the metadata current while records are sent.

        Args:
            partition: number of a partition that the caller needs; if the known metadata lacks it,
                the metadata is refreshed once.

        Raises:
            UnknownTopicOrPartition: the topic did not exist within the timeout.
            Closed: the producer was closed, possibly during this call.
            KafkaError: the client is not authorized, the name is invalid, or no broker answers.
        """
        if self._refusal is not None:
            raise copy_error(self._refusal)
        limit = asyncio.timeout(None)
        self._calls.add(limit)
        try:
            async with limit:
                return await self._find(topic, partition)
        except TimeoutError as error:
            if isinstance(error, KafkaError) or self._refusal is None or not limit.expired():
                raise
            raise copy_error(self._refusal) from self._refusal.__cause__
        finally:
            self._calls.discard(limit)

    def pending(self) -> list[Batch]:
        """Return the batches of records whose topic is not known yet."""
        if not self._looking:  # the usual case in the commit of a transaction
            return []
        return [
            batch
            for topic in self._looking
            for batch in self._accumulator.pending(topic)
            if not batch.done
        ]

    def fail_pending(self, error: KafkaError) -> None:
        """Fail the records that wait for the metadata of their topic."""
        for topic in list(self._looking):
            self._fail_pending(topic, error)

    def missing(self) -> frozenset[str]:
        """Return the missing topics that records wait for, according to the newest metadata."""
        missing_for = self._engine.topics.missing_for
        return frozenset(topic for topic in list(self._looking) if missing_for(topic) is not None)

    def trouble(self, topic: str) -> KafkaError | None:
        """Return the error that explains why records wait for a topic; None if no records wait."""
        lookup = self._looking.get(topic)
        if lookup is None:
            return None
        return self._engine.topics.error(topic, self._engine.now() - lookup.started)

    async def _leave_idle(self) -> None:
        """Periodically stop watching the topics to which no record was sent since the last check.

        The next record looks the topic up again. The queues of these topics stay, because the
        brokers remember this producer's sequence numbers.
        """
        while True:
            await asyncio.sleep(self._max_idle)
            used = self._queues.used_topics() | self._looking.keys()
            idle = self._followed.keys() - used
            self._engine.unwatch(idle)
            for topic in idle:
                del self._followed[topic]
                self._accumulator.forget_route(topic)

    async def _find(self, topic: str, partition: int | None = None) -> TopicInfo:
        info = await self._known(topic)
        if partition is not None and partition not in info.partitions:
            await self._engine.refresh([topic])
            info = await self._known(topic)
        if self._followed.get(topic) is not info:
            # `_follow` ends the pauses of the queues, as a new leader does. Therefore it is not
            # called with metadata that the queues already have.
            self._follow(info)
        return info

    async def _known(self, topic: str) -> TopicInfo:
        with self._missing.watching(topic):
            return await self._engine.topic(topic, timeout=self._timeout)

    async def _look_up(self, topic: str, lookup: _Lookup) -> None:
        try:
            async with lookup.limit:
                await self._find(topic)
        except KafkaError as error:
            self._give_up(topic, error)
        except Exception as error:  # noqa: BLE001  logged by report()
            if isinstance(error, TimeoutError) and lookup.limit.expired():
                waited = self._engine.now() - lookup.started
                self._give_up(topic, self._engine.topics.missing_error(topic, waited))
            else:
                # Other topics are not affected, and the next record of this topic starts another
                # lookup.
                self._give_up(topic, self._internal_errors.report("metadata", error, topic))
        finally:
            if lookup.ending is not None:
                lookup.ending.cancel()
        # The entry is removed here, not in a callback of the task, because a record that is
        # appended right after the task ends must start another lookup.
        self._looking.pop(topic, None)

    def _hasten(self, topic: str, lookup: _Lookup) -> None:
        if lookup.ending is None and lookup.task is not None and not lookup.task.done():
            lookup.ending = self._spawn(self._end(topic, lookup), f"end of waiting for {topic}")

    async def _end(self, topic: str, lookup: _Lookup) -> None:
        try:
            await self._missing.given_up(topic)
        except KafkaError as error:  # the waiting records fail with this error
            logger.debug("topic not requested again: topic=%s error=%s", topic, error)
        else:
            lookup.limit.reschedule(self._engine.now())

    def _give_up(self, topic: str, error: KafkaError) -> None:
        error.add_context(topic_partition=topic)
        self._fail_pending(topic, error)
        self._queues.fail_unsent(error, topic)
        text = "records are given up: topic=%s error=%s"
        if isinstance(error, InternalError):
            logger.debug(text, topic, error)  # a bug is logged already
        else:
            self._given_up.write(text, topic, error)

    def _fail_pending(self, topic: str, error: KafkaError) -> None:
        for batch in self._accumulator.pending(topic):
            self._completion.failed_unqueued(batch, copy_error(error))
        self._accumulator.fail_pending(topic, error)

    def _follow(self, info: TopicInfo) -> None:
        topic = info.name
        if topic not in self._followed:
            self._engine.watch([topic])
        self._followed[topic] = None  # None until all queues have the new metadata
        for partition in info.partitions.values():
            self._queues.leader_moved(
                topic, partition.partition, partition.leader, partition.leader_epoch
            )
        self._set_route(info)
        self._followed[topic] = info

    def _set_route(self, info: TopicInfo) -> None:
        if info.partitions:
            available = sorted(p.partition for p in info.partitions.values() if p.leader >= 0)
            self._accumulator.set_route(
                info.name, max(info.partitions) + 1, available, self._take_slot
            )

    def _take_slot(self, slot: Slot) -> PartitionQueue:
        queue = self._queues.queue(slot.topic, slot.partition)
        queue.slot = slot
        return queue

    def _changed(self, key: EventKey, event: Event) -> None:
        if isinstance(event, BrokerUp):
            self._queues.broker_up(event.node_id)
            return
        topic = getattr(event, "topic", None)
        if topic not in self._followed:
            return
        info = self._engine.metadata.topics.get(topic)
        if isinstance(event, LeaderChanged):
            self._queues.leader_moved(topic, event.partition, event.leader, event.leader_epoch)
            if info is not None and (event.leader < 0) != (event.previous_leader < 0):
                self._set_route(info)
        elif isinstance(event, PartitionRecovered):
            self._queues.leader_moved(topic, event.partition, event.leader, event.leader_epoch)
        elif isinstance(event, TopicRecreated | TopicAdded | PartitionsAdded):
            if isinstance(event, TopicRecreated):
                for queue in self._queues.of_topic(topic):
                    # The new log has no sequence of this producer, and must not accept the second
                    # of two batches in flight without the first.
                    if queue.sequences is not None:
                        queue.sequences.break_off()
            if info is not None:
                self._follow(info)
                if not isinstance(event, PartitionsAdded):  # a deleted topic was created again
                    self._drop_partitions(info)
        elif isinstance(event, TopicRemoved):
            self._removed(topic)

    def _drop_partitions(self, info: TopicInfo) -> None:
        """Fail the batches of partitions that a topic no longer has after its recreation.

        `SenderPool` fails those in flight when a broker has refused them.
        """
        for queue in self._queues.of_topic(info.name):
            if info.partitions and queue.partition not in info.partitions:
                queue.leader_moved(-1, -1, 0.0)
                queue.fail_unsent(no_partition(info, queue.partition))

    def _removed(self, topic: str) -> None:
        """Make batches of a deleted topic wait for its recreation, at most until a lookup fails."""
        logger.warning("topic no longer exists: topic=%s", topic)
        gone = UnknownTopicOrPartition(f"topic {topic!r} was deleted", topic_partition=topic)
        for queue in self._queues.of_topic(topic):
            queue.blocked_by = gone
            queue.leader_moved(-1, -1, 0.0)
        self._followed[topic] = None
        self._accumulator.forget_route(topic)
        self.unknown(topic)
