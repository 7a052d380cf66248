"""PartitionDiscovery: keeps a consumer's assignment up to date as its topics change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

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
from aiokq.cluster.metadata import NO_LEADER, ZERO_ID, TopicInfo
from aiokq.consumer.positions import PartitionState, Positions, Start
from aiokq.consumer.subscription import Mode, Subscription
from aiokq.consumer.topic_search import TopicSearch
from aiokq.core.errors import Closed, KafkaError
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.values import ConsumerValues

__all__ = ["PartitionDiscovery"]

logger = logging.getLogger("aiokq.consumer")

NOT_LISTED: Final = "topics cannot be listed"


class _Left(NamedTuple):
    """The last position in a partition whose topic seemed to be deleted."""

    topic_id: UUID
    position: int
    epoch: int


class PartitionDiscovery:
    """Watches the topics of a consumer and updates its assignment.

    Without a group, a consumer takes all partitions of the subscribed topics. In a group, the group
    assigns partitions through `take` and `leave`, and is notified of the subscribed topics.

    Args:
        assigned: called with a partition to add and its `Start`; returns the state of the
            partition.
        removed: called with a partition that is not read any more.
        recreated: called with a partition and its new `Start` when the partition's topic was
            deleted and created again.
        moved: called when a partition's leader may have changed.
        topics: in a group, called with the subscribed topics when they change, and with None when
            the subscription ends. Without a group, there is no function: `topics` is None.
        report: raises an error about a topic to the reader.
        spawn: starts a task of the consumer.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        engine: ClusterEngine,
        subscription: Subscription,
        positions: Positions,
        *,
        assigned: Callable[[TopicPartition, Start], PartitionState],
        removed: Callable[[PartitionState], None],
        recreated: Callable[[PartitionState, Start], None],
        moved: Callable[[PartitionState], None],
        topics: Callable[[frozenset[str] | None], None] | None,
        report: Callable[[KafkaError], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._subscription = subscription
        self._positions = positions
        self._assigned = assigned
        self._removed = removed
        self._recreated = recreated
        self._moved = moved
        self._topics = topics
        self._new: set[TopicPartition] = set()
        self._report = report
        self._spawn = spawn
        self._search = TopicSearch(
            settings,
            engine,
            wanted=lambda topic: topic in self._watched,
            assigned=self._of,
            # Called when a lookup has shown whether the topic exists. A topic that appears later
            # counts as created after the subscription, so all its partitions are new.
            asked=lambda topic: self._unseen.discard(topic),
            report=report,
            spawn=spawn,
        )
        self._watched: frozenset[str] = frozenset()
        self._watching_all = False
        self._unseen: set[str] = set()
        self._listed = False
        self._listing: asyncio.Task[None] | None = None
        self._answered: asyncio.Future[None] | None = None
        """Done when the listing has succeeded, or failed for the first time."""
        self._left: dict[TopicPartition, _Left] = {}
        self._changes = engine.changes.subscribe(self._changed, replay=False)

    def close(self) -> None:
        """Stop watching topics."""
        self._changes.close()
        self._watch(frozenset(), everything=False)

    async def settled(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until it is known which subscribed topics exist."""
        waiting = self._search.unanswered
        if self._answered is not None:
            waiting.append(self._answered)
        if waiting:
            await asyncio.wait(waiting, timeout=timeout)

    def follow(self) -> None:
        """Add and remove partitions for a new subscription."""
        mode = self._subscription.mode
        for state in list(self._positions):
            if not self._keeps(state.tp):
                self._drop(state)
        self._left.clear()
        self._new.clear()
        if self._listing is not None:
            self._listing.cancel()  # the listing is for the previous subscription
            self._listing = None
        if mode is Mode.TOPICS:
            self._follow_names()
        elif mode in (Mode.PATTERN, Mode.REGEX):
            self._rewatch()
            self._listed = False
            self._take_all()
            self._answered = asyncio.get_running_loop().create_future()
            self._listing = self._spawn(self._list_topics(self._answered), "list topics")
        self._rewatch()
        for tp in self._subscription.partitions:
            self._read(tp, Start.POLICY)
        self._notify_topics()

    def take(self, tp: TopicPartition) -> None:
        """Read a partition that the group has assigned."""
        self._read(tp, self._start_of_new() if self._is_new(tp) else Start.POLICY)

    def _is_new(self, tp: TopicPartition) -> bool:
        """Whether the partition was created after the subscription, as far as that is known."""
        info = self._engine.metadata.topics.get(tp.topic)
        if info is None:
            return tp.topic in self._subscription.names and tp.topic not in self._unseen
        # The coordinator may know a new partition before this client's metadata does.
        return tp in self._new or tp.partition not in info.partitions

    def leave(self, tp: TopicPartition) -> None:
        """Stop reading a partition that was revoked or lost."""
        state = self._positions.get(tp)
        if state is not None:
            self._drop(state)
        self._rewatch()

    def _read(self, tp: TopicPartition, start: Start) -> None:
        if tp not in self._positions:
            self._look_at(self._assigned(tp, start))
            self._rewatch()
        if self._engine.metadata.partition(tp) is None:
            self._search.find(tp.topic)

    def _follow_names(self) -> None:
        names = self._subscription.names
        self._rewatch()
        topics = self._engine.metadata.topics
        for name in sorted(names):
            info = topics.get(name)
            if info is None:
                self._unseen.add(name)
                self._search.find(name)
            else:
                self._take(info, Start.POLICY)
        self._unseen &= names

    def _wanted(self, topic: str) -> bool:
        info = self._engine.metadata.topics.get(topic)
        internal = info is not None and info.internal and self._settings.exclude_internal_topics
        return self._subscription.wants(topic, internal=internal)

    def _keeps(self, tp: TopicPartition) -> bool:
        """Whether to keep reading a partition; always True in a group."""
        if tp in self._subscription.partitions:
            return True
        # In a group, the group itself revokes the partitions that it has assigned.
        return self._topics is not None or self._wanted(tp.topic)

    def _by_hand(self, tp: TopicPartition) -> bool:
        """Whether the partition was assigned, by the group or by the user.

        False if there is no group, and the partition is read because its topic is subscribed to.
        """
        return self._topics is not None or tp in self._subscription.partitions

    def _notify_topics(self) -> None:
        """Pass the subscribed topics to the group, once they are known."""
        if self._topics is None:
            return
        mode = self._subscription.mode
        if mode is Mode.TOPICS:
            self._topics(self._subscription.names)
        elif mode is Mode.REGEX:
            self._topics(frozenset())
        elif mode is not Mode.PATTERN:
            self._topics(None)
        elif self._listed:
            self._topics(frozenset(filter(self._wanted, self._engine.metadata.topics)))

    def _rewatch(self) -> None:
        """Watch the topics that are subscribed to or read."""
        mode = self._subscription.mode
        topics = set(self._subscription.names)
        topics.update(tp.topic for tp in self._subscription.partitions)
        if self._topics is not None:
            topics.update(state.tp.topic for state in self._positions)
        self._watch(frozenset(topics), everything=mode in (Mode.PATTERN, Mode.REGEX))

    def _watch(self, topics: frozenset[str], *, everything: bool) -> None:
        engine = self._engine
        if topics != self._watched:
            before, self._watched = self._watched, topics
            self._search.forget(topics)
            engine.watch(topics - before)
            engine.unwatch(before - topics)
        if everything != self._watching_all:
            self._watching_all = everything
            if everything:
                engine.watch_all()
            else:
                engine.unwatch_all()

    async def _list_topics(self, answered: asyncio.Future[None]) -> None:
        backoff = self._engine.new_backoff()
        try:
            while not self._listed:
                try:
                    await self._engine.refresh()
                except Closed:
                    return
                except KafkaError as error:
                    self._engine.outages.failed(NOT_LISTED, None, error, where={})
                    self._report(error)
                    answered.cancel()
                    await asyncio.sleep(backoff.next())
                else:
                    self._engine.outages.ended(NOT_LISTED, None)
                    self._take_all()
                    self._listed = True
                    self._notify_topics()
        finally:
            answered.cancel()

    def _take_all(self) -> None:
        for info in self._engine.metadata.topics.values():
            if self._wanted(info.name):
                self._take(info, Start.POLICY)

    def _changed(self, key: EventKey, event: Event) -> None:
        if isinstance(event, LeaderChanged | PartitionRecovered):
            state = self._positions.get(event.topic_partition)
            if state is not None:
                self._look_at(state)
        elif isinstance(event, TopicAdded):
            self._added(event.topic)
        elif isinstance(event, PartitionsAdded):
            numbers = range(event.previous, event.partitions)
            self._new.update(TopicPartition(event.topic, number) for number in numbers)
            self._grown(event.topic)
        elif isinstance(event, TopicRecreated):
            self._replaced(event.topic)
        elif isinstance(event, TopicRemoved):
            self._topic_deleted(event.topic)
        elif isinstance(event, BrokerUp):
            for state in self._positions:
                if event.node_id in (state.leader, state.preferred):
                    self._look_at(state)

    def _added(self, topic: str) -> None:
        info = self._engine.metadata.topics.get(topic)
        if info is None:
            return
        self._search.found(topic)
        for state in self._of(topic):  # assigned before the topic existed, or kept after deletion
            state.source.forget_errors(state.tp)
            self._look_at(state)
        first = topic in self._unseen or (
            self._subscription.mode in (Mode.PATTERN, Mode.REGEX) and not self._listed
        )
        self._unseen.discard(topic)
        if not first:
            self._new.update(TopicPartition(topic, number) for number in info.partitions)
        if self._wanted(topic):
            self._take(info, Start.POLICY if first else self._start_of_new())
            self._notify_topics()

    def _grown(self, topic: str) -> None:
        info = self._engine.metadata.topics.get(topic)
        if info is None:
            return
        if self._wanted(topic):
            self._take(info, self._start_of_new())
        for state in self._of(topic):
            if state.leader == NO_LEADER:
                self._look_at(state)

    def _replaced(self, topic: str) -> None:
        info = self._engine.metadata.topics.get(topic)
        for state in self._of(topic):
            if (
                not self._by_hand(state.tp)
                and info is not None
                and state.tp.partition not in info.partitions
            ):
                self._drop(state)
                continue
            self._renew(state)
            self._look_at(state)
        if info is not None:
            self._new.update(TopicPartition(topic, number) for number in info.partitions)
        if info is not None and self._wanted(topic):
            self._take(info, self._start_of_new())
        if info is not None and any(
            state.tp.partition not in info.partitions for state in self._of(topic)
        ):
            self._search.find(topic)

    def _topic_deleted(self, topic: str) -> None:
        for state in self._of(topic):
            if self._by_hand(state.tp):
                state.leader = NO_LEADER
                self._look_at(state)
                continue
            if state.topic_id != ZERO_ID and state.position >= 0:
                self._left[state.tp] = _Left(state.topic_id, state.position, state.fetch_epoch)
            logger.warning("topic no longer exists: partition=%s", state.tp)
            self._drop(state)
        self._notify_topics()
        if topic in self._watched:
            self._search.lost(topic)

    def _of(self, topic: str) -> list[PartitionState]:
        return [state for state in self._positions if state.tp.topic == topic]

    def _look_at(self, state: PartitionState) -> None:
        """Handle a possible change of the partition's leader or topic."""
        info = self._engine.metadata.topics.get(state.tp.topic)
        if info is not None and state.is_of_another(info.topic_id):
            self._renew(state)
        self._moved(state)

    def _renew(self, state: PartitionState) -> None:
        """Handle a partition whose topic was deleted and created again."""
        logger.warning("topic was deleted and created again: partition=%s", state.tp)
        assigned = state.tp in self._subscription.partitions
        self._recreated(state, Start.POLICY if assigned else self._start_of_new())

    def _start_of_new(self) -> Start:
        return Start.EARLIEST if self._settings.new_partitions == "earliest" else Start.POLICY

    def _take(self, info: TopicInfo, start: Start) -> None:
        if self._topics is not None:
            return  # in a group, the group assigns the partitions
        for partition in info.partitions:
            tp = TopicPartition(info.name, partition)
            if tp in self._positions:
                continue
            state = self._assigned(tp, start)
            left = self._left.pop(tp, None)
            if left is not None and left.topic_id == info.topic_id:
                # The topic was not deleted: a broker did not know it for a while. Continue at the
                # last position.
                state.jump(left.position, left.epoch)
            self._look_at(state)

    def _drop(self, state: PartitionState) -> None:
        self._removed(state)
