"""The reducer of cluster state: a pure function `(state, input) -> (state, events)`.

Brokers learn of changes at different times, so a metadata response may be older than the state.
Three rules guard against such responses:

- a partition's leader epoch never decreases while the topic id stays the same (KIP-320);
- a topic id that was replaced is not accepted again (the latest 4 ids of each name are kept);
- a topic is removed only when two responses in a row report that it does not exist.

Source: KIP-320, KIP-516, KIP-951; kafka4net's PartitionStateChanges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import assert_never
from uuid import UUID

from aiokq.cluster.events import (
    BrokerDown,
    BrokerUp,
    LeaderChanged,
    MetadataEvent,
    PartitionFailed,
    PartitionRecovered,
    PartitionsAdded,
    TopicAdded,
    TopicRecreated,
    TopicRemoved,
)
from aiokq.cluster.metadata import (
    ZERO_ID,
    BrokerInfo,
    ClusterMetadata,
    PartitionInfo,
    TopicInfo,
    frozen_map,
    thawed,
)
from aiokq.cluster.reducer_inputs import (
    ConnectionLostTo,
    EndpointsLearned,
    Input,
    LeaderVerified,
    MetadataReceived,
    NodeReached,
    PartitionErrored,
    PartitionServed,
    TopicsForgotten,
)
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["CONNECTION_LOST", "ClusterState", "reduce"]

CONNECTION_LOST = "CONNECTION_LOST"
"""Error name of a partition that failed because the connection to its leader was lost."""

MISSING_TOPIC_CODES = frozenset((3, 100))  # UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
UNKNOWN_TOPIC_OR_PARTITION = 3
RETIRED_IDS_KEPT = 4


@frozen
class ClusterState:
    """The metadata snapshot, and the failed brokers and partitions."""

    metadata: ClusterMetadata = field(default_factory=ClusterMetadata)
    down: frozenset[int] = frozenset()
    """Failed brokers that were not reached since; the metadata may no longer list some of them."""
    failed: Mapping[TopicPartition, str] = field(default_factory=frozen_map)
    """Partitions in recovery, each with the name of its first error."""
    retired: Mapping[str, tuple[UUID, ...]] = field(default_factory=frozen_map)
    """The latest `RETIRED_IDS_KEPT` replaced topic ids of each topic name, oldest first."""

    @property
    def up(self) -> frozenset[int]:
        """The listed brokers that have not failed."""
        return frozenset(self.metadata.brokers) - self.down


Step = tuple[ClusterState, tuple[MetadataEvent, ...]]


def reduce(state: ClusterState, change: Input) -> Step:
    """Apply one input; if it has no effect, return the same state object and no events."""
    match change:
        case MetadataReceived():
            return _metadata_received(state, change)
        case EndpointsLearned():
            brokers = thawed(state.metadata.brokers)
            for broker in change.brokers:
                known = brokers.get(broker.node_id)
                # An entry with the same address is kept, because it may have a rack. The new entry
                # has no rack if it is from a FindCoordinator response.
                if known is None or known.address != broker.address:
                    brokers[broker.node_id] = broker
            return _with_brokers(state, brokers)
        case ConnectionLostTo():
            return _connection_lost(state, change)
        case NodeReached():
            return _node_reached(state, change.node_id)
        case PartitionErrored():
            return _partition_errored(state, change)
        case PartitionServed():
            return _recovered(state, (change.topic_partition,))
        case LeaderVerified():
            return _leader_verified(state, change)
        case TopicsForgotten():
            return _forgotten(state, change.topics), ()
        case _:
            assert_never(change)


def _with_brokers(state: ClusterState, brokers: dict[int, BrokerInfo]) -> Step:
    old = state.metadata.brokers
    if brokers == old:
        return state, ()
    moved = {n for n, b in brokers.items() if n in old and old[n].address != b.address}
    after = replace(state, metadata=replace(state.metadata, brokers=frozen_map(brokers)))
    events: list[MetadataEvent] = [
        BrokerDown(node_id, "the cluster no longer lists it")
        for node_id in sorted(state.up - after.up)
    ]
    events += [
        BrokerUp(n, brokers[n].host, brokers[n].port)
        for n in sorted(after.up)
        if n not in state.up or n in moved
    ]
    return after, tuple(events)


def _connection_lost(state: ClusterState, change: ConnectionLostTo) -> Step:
    node_id = change.node_id
    if node_id in state.down:
        return state, ()
    down = state.down | {node_id}
    if node_id not in state.metadata.brokers:
        return replace(state, down=down), ()
    events: list[MetadataEvent] = [BrokerDown(node_id, change.reason)]
    failed = thawed(state.failed)
    for topic in state.metadata.topics.values():
        for info in topic.partitions.values():
            tp = TopicPartition(topic.name, info.partition)
            if info.leader == node_id and tp not in failed:
                failed[tp] = CONNECTION_LOST
                events.append(PartitionFailed(tp.topic, tp.partition, CONNECTION_LOST))
    return replace(state, down=down, failed=frozen_map(failed)), tuple(events)


def _node_reached(state: ClusterState, node_id: int) -> Step:
    if node_id not in state.down:
        return state, ()
    after = replace(state, down=state.down - {node_id})
    broker = state.metadata.brokers.get(node_id)
    if broker is None:
        return after, ()
    return after, (BrokerUp(node_id, broker.host, broker.port),)


def _metadata_received(state: ClusterState, change: MetadataReceived) -> Step:
    if not change.brokers:
        # A broker that is still starting names no brokers. Java's client also ignores such a
        # response.
        return state, ()
    state, broker_events = _with_brokers(state, {b.node_id: b for b in change.brokers})
    merge = _TopicMerge(state)
    named = {answer.name for answer in change.topics}
    for answer in change.topics:
        merge.answer(answer)
    if change.complete:
        for name in state.metadata.topics.keys() - named:
            merge.answer(TopicInfo(name, error_code=UNKNOWN_TOPIC_OR_PARTITION))
    old = state.metadata
    metadata = replace(
        old,
        cluster_id=change.cluster_id if change.cluster_id is not None else old.cluster_id,
        controller_id=change.controller_id,
    )
    if merge.changed:
        metadata = replace(
            metadata,
            topics=frozen_map(merge.topics),
            topic_names=_names_by_id(merge.topics.values()),
            topic_errors=frozen_map(merge.errors),
        )
    if metadata == old:
        return state, broker_events
    after = replace(state, metadata=metadata, retired=frozen_map(merge.retired))
    after = replace(after, failed=_existing(state.failed, metadata))
    return after, (*broker_events, *merge.events)


class _TopicMerge:
    """Merges the topics of a response into copies of the known topics."""

    def __init__(self, state: ClusterState) -> None:
        self.topics = thawed(state.metadata.topics)
        self.errors = thawed(state.metadata.topic_errors)
        self.retired = thawed(state.retired)
        self.events: list[MetadataEvent] = []
        self.changed = False

    def answer(self, answer: TopicInfo) -> None:
        name, old = answer.name, self.topics.get(answer.name)
        if answer.topic_id != ZERO_ID and answer.topic_id in self.retired.get(name, ()):
            return  # the answer is from a broker that does not know the new topic yet
        if answer.error_code and not answer.partitions:
            self._refused(answer, old)
        elif old is None:
            self._store(answer)
            self.events.append(TopicAdded(name, answer.topic_id, len(answer.partitions)))
        elif _recreated(old, answer):
            if old.topic_id != ZERO_ID:
                ids = (*self.retired.get(name, ()), old.topic_id)
                self.retired[name] = ids[-RETIRED_IDS_KEPT:]
            self._store(answer)
            self.events.append(
                TopicRecreated(name, old.topic_id, answer.topic_id, len(answer.partitions))
            )
        else:
            self._merge(old, answer)

    def _refused(self, answer: TopicInfo, old: TopicInfo | None) -> None:
        name, code = answer.name, answer.error_code
        if self.errors.get(name) != code:
            self.errors[name] = code
            self.changed = True
        if old is None:
            return
        if code in MISSING_TOPIC_CODES and old.error_code in MISSING_TOPIC_CODES:
            # The topic id is not added to `retired`, because both responses may be wrong.
            del self.topics[name]
            self.changed = True
            self.events.append(TopicRemoved(name, old.topic_id))
        elif old.error_code != code:
            self.topics[name] = replace(old, error_code=code)
            self.changed = True

    def _merge(self, old: TopicInfo, answer: TopicInfo) -> None:
        partitions = thawed(old.partitions)
        for number, new in answer.partitions.items():
            before = partitions.get(number)
            partitions[number] = new if before is None else _newer(before, new)
        topic_id = answer.topic_id if answer.topic_id != ZERO_ID else old.topic_id
        merged = replace(answer, topic_id=topic_id, partitions=frozen_map(partitions))
        if merged == old and answer.name not in self.errors:
            return
        self._store(merged)
        if len(merged.partitions) > len(old.partitions):
            self.events.append(
                PartitionsAdded(old.name, len(old.partitions), len(merged.partitions))
            )
        self.events += _leader_changes(old, merged)

    def _store(self, topic: TopicInfo) -> None:
        self.topics[topic.name] = topic
        self.errors.pop(topic.name, None)
        self.changed = True


def _recreated(old: TopicInfo, new: TopicInfo) -> bool:
    if ZERO_ID not in (old.topic_id, new.topic_id):
        return old.topic_id != new.topic_id
    # Partitions are never removed from a topic. Without topic ids, a topic with fewer partitions
    # than before was therefore recreated.
    return len(new.partitions) < len(old.partitions)


def _newer(old: PartitionInfo, new: PartitionInfo) -> PartitionInfo:
    if new.leader_epoch < 0 <= old.leader_epoch:
        return replace(new, leader_epoch=old.leader_epoch)
    return old if new.leader_epoch < old.leader_epoch else new


def _leader_changes(old: TopicInfo, new: TopicInfo) -> Iterable[LeaderChanged]:
    for number, before in old.partitions.items():
        after = new.partitions[number]
        newer_epoch = after.leader_epoch > before.leader_epoch >= 0
        if after.leader != before.leader or newer_epoch:
            yield LeaderChanged(new.name, number, after.leader, after.leader_epoch, before.leader)


def _names_by_id(topics: Iterable[TopicInfo]) -> Mapping[UUID, str]:
    return frozen_map((t.topic_id, t.name) for t in topics if t.topic_id != ZERO_ID)


def _existing(
    failed: Mapping[TopicPartition, str], metadata: ClusterMetadata
) -> Mapping[TopicPartition, str]:
    if all(metadata.partition(tp) is not None for tp in failed):
        return failed
    return frozen_map((tp, e) for tp, e in failed.items() if metadata.partition(tp) is not None)


def _forgotten(state: ClusterState, names: frozenset[str]) -> ClusterState:
    old = state.metadata
    if names.isdisjoint(old.topics) and names.isdisjoint(old.topic_errors):
        return state
    topics = {name: topic for name, topic in old.topics.items() if name not in names}
    metadata = replace(
        old,
        topics=frozen_map(topics),
        topic_names=_names_by_id(topics.values()),
        topic_errors=frozen_map((n, e) for n, e in old.topic_errors.items() if n not in names),
    )
    return replace(
        state,
        metadata=metadata,
        failed=_existing(state.failed, metadata),
        retired=frozen_map((n, ids) for n, ids in state.retired.items() if n not in names),
    )


def _partition_errored(state: ClusterState, change: PartitionErrored) -> Step:
    tp = change.topic_partition
    info = state.metadata.partition(tp)
    if info is None or 0 <= change.leader_epoch < info.leader_epoch:
        return state, ()  # an unknown partition, or an error from a replaced leader
    events: tuple[MetadataEvent, ...] = ()
    hint = change.hint
    if hint is not None and hint.leader >= 0 and hint.leader_epoch > info.leader_epoch:
        if hint.broker is not None:
            learned = EndpointsLearned((hint.broker,))
            state, events = reduce(state, learned)
        if hint.leader in state.metadata.brokers:
            state, changes = _moved_leader(state, tp, info, hint.leader, hint.leader_epoch)
            return state, events + changes
    if tp in state.failed:
        return state, events
    failed = thawed(state.failed)
    failed[tp] = change.error
    failure = PartitionFailed(tp.topic, tp.partition, change.error)
    return replace(state, failed=frozen_map(failed)), (*events, failure)


def _moved_leader(
    state: ClusterState, tp: TopicPartition, info: PartitionInfo, leader: int, epoch: int
) -> Step:
    old = state.metadata.topics[tp.topic]
    moved = replace(info, leader=leader, leader_epoch=epoch)
    partitions, topics = thawed(old.partitions), thawed(state.metadata.topics)
    partitions[tp.partition] = moved
    topics[tp.topic] = topic = replace(old, partitions=frozen_map(partitions))
    metadata = replace(state.metadata, topics=frozen_map(topics))
    return replace(state, metadata=metadata), tuple(_leader_changes(old, topic))


def _leader_verified(state: ClusterState, change: LeaderVerified) -> Step:
    if change.leader not in state.up:
        return state, ()
    verified = []
    for tp, leader_epoch in change.leader_epochs.items():
        info = state.metadata.partition(tp)
        if info is None or info.leader != change.leader:
            continue
        if leader_epoch < 0 or leader_epoch == info.leader_epoch:
            verified.append(tp)
    return _recovered(state, verified)


def _recovered(state: ClusterState, partitions: Iterable[TopicPartition]) -> Step:
    """Recover partitions in one step, because thousands may recover when a broker returns."""
    failed = thawed(state.failed)
    events = []
    for tp in partitions:
        if failed.pop(tp, None) is None:
            continue
        info = state.metadata.partition(tp)
        assert info is not None  # failed partitions are dropped together with their topic
        events.append(PartitionRecovered(tp.topic, tp.partition, info.leader, info.leader_epoch))
    if not events:
        return state, ()
    return replace(state, failed=frozen_map(failed)), tuple(events)
