"""The metadata reducer under random sequences of inputs."""

from __future__ import annotations

import copy
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from aiokq.cluster.events import (
    BrokerDown,
    BrokerUp,
    LeaderChanged,
    PartitionFailed,
    PartitionRecovered,
    PartitionsAdded,
    TopicAdded,
    TopicRecreated,
    TopicRemoved,
)
from aiokq.cluster.metadata import ZERO_ID, BrokerInfo, PartitionInfo, TopicInfo, frozen_map
from aiokq.cluster.reducer import ClusterState, reduce
from aiokq.cluster.reducer_inputs import (
    ConnectionLostTo,
    EndpointsLearned,
    Input,
    LeaderHint,
    LeaderVerified,
    MetadataReceived,
    NodeReached,
    PartitionErrored,
    PartitionServed,
    TopicsForgotten,
)
from aiokq.core.types import TopicPartition

NODES = st.integers(1, 3)
NAMES = st.sampled_from(["a", "b"])
EPOCHS = st.integers(-1, 4)
TPS = st.builds(TopicPartition, NAMES, st.integers(0, 2))
BROKERS = st.builds(BrokerInfo, NODES, st.sampled_from(["x", "y"]), st.just(9092))
HINTS = st.none() | st.builds(LeaderHint, st.integers(-1, 3), EPOCHS, st.none() | BROKERS)


@st.composite
def partitions(draw: st.DrawFn) -> dict[int, PartitionInfo]:
    count = draw(st.integers(1, 3))
    return {n: PartitionInfo(n, draw(st.integers(-1, 3)), draw(EPOCHS)) for n in range(count)}


@st.composite
def topics(draw: st.DrawFn) -> tuple[TopicInfo, ...]:
    answers = []
    for name in draw(st.sets(NAMES)):
        if draw(st.integers(0, 3)) == 0:
            answers.append(TopicInfo(name, error_code=draw(st.sampled_from([3, 5, 29, 100]))))
            continue
        topic_id = draw(st.sampled_from([ZERO_ID, UUID(int=1), UUID(int=2)]))
        answers.append(TopicInfo(name, topic_id, False, frozen_map(draw(partitions()))))
    return tuple(answers)


METADATA = st.builds(
    MetadataReceived,
    st.lists(BROKERS, max_size=3, unique_by=lambda b: b.node_id).map(tuple),
    topics(),
    st.sampled_from([None, "c"]),
    st.integers(-1, 3),
    st.booleans(),
)
INPUTS: st.SearchStrategy[Input] = (
    METADATA
    | METADATA
    | st.builds(EndpointsLearned, st.lists(BROKERS, max_size=2).map(tuple))
    | st.builds(ConnectionLostTo, NODES, st.just("gone"))
    | st.builds(NodeReached, NODES)
    | st.builds(PartitionErrored, TPS, st.just("NOT_LEADER_OR_FOLLOWER"), EPOCHS, HINTS)
    | st.builds(PartitionServed, TPS)
    | st.builds(LeaderVerified, NODES, st.dictionaries(TPS, EPOCHS, max_size=3))
    | st.builds(TopicsForgotten, st.frozensets(NAMES))
)


def states(inputs: list[Input]) -> list[tuple[Input, ClusterState, ClusterState, tuple]]:
    steps = []
    state = ClusterState()
    for change in inputs:
        after, events = reduce(state, change)
        steps.append((change, state, after, events))
        state = after
    return steps


def same_topic(before: TopicInfo | None, after: TopicInfo | None) -> bool:
    if before is None or after is None:
        return False
    if ZERO_ID in (before.topic_id, after.topic_id):
        return len(after.partitions) >= len(before.partitions)
    return before.topic_id == after.topic_id


@given(st.lists(INPUTS, max_size=25))
def test_leader_epochs_never_go_back(inputs: list[Input]):
    """A topic with the same id keeps its newest leader epochs, whatever stale brokers report."""
    for _, before, after, _ in states(inputs):
        for name, topic in before.metadata.topics.items():
            now = after.metadata.topics.get(name)
            if now is None or not same_topic(topic, now):
                continue
            for number, partition in topic.partitions.items():
                assert now.partitions[number].leader_epoch >= partition.leader_epoch


def expected_events(before: ClusterState, after: ClusterState, change: Input) -> set:
    """Return the events that the difference of two states requires, without using the reducer."""
    events: set = set()
    for node in before.up | after.up:
        old, new = before.metadata.brokers.get(node), after.metadata.brokers.get(node)
        if node not in after.up:
            events.add((BrokerDown, node))
        elif node not in before.up or (old and new and old.address != new.address):
            events.add((BrokerUp, node, new and new.host))
    forgotten = isinstance(change, TopicsForgotten)
    kept = set()
    for name in before.metadata.topics.keys() | after.metadata.topics.keys():
        old_topic, new_topic = before.metadata.topics.get(name), after.metadata.topics.get(name)
        if new_topic is None:
            if not forgotten:
                events.add((TopicRemoved, name))
        elif old_topic is None:
            events.add((TopicAdded, name, len(new_topic.partitions)))
        elif not same_topic(old_topic, new_topic):
            events.add((TopicRecreated, name, len(new_topic.partitions)))
        else:
            kept.add(name)
            if len(new_topic.partitions) > len(old_topic.partitions):
                events.add((PartitionsAdded, name, len(new_topic.partitions)))
            for number, was in old_topic.partitions.items():
                now = new_topic.partitions[number]
                if now.leader != was.leader or now.leader_epoch > was.leader_epoch >= 0:
                    events.add((LeaderChanged, name, number, now.leader, now.leader_epoch))
    for tp in before.failed.keys() | after.failed.keys():
        if tp.topic not in kept:
            continue
        if tp not in before.failed:
            events.add((PartitionFailed, tp, after.failed[tp]))
        elif tp not in after.failed:
            events.add((PartitionRecovered, tp, after.metadata.leader(tp)))
    return events


def summary(event: object) -> tuple:
    match event:
        case BrokerUp():
            return BrokerUp, event.node_id, event.host
        case BrokerDown():
            return BrokerDown, event.node_id
        case TopicAdded() | TopicRecreated() | PartitionsAdded():
            return type(event), event.topic, event.partitions
        case TopicRemoved():
            return TopicRemoved, event.topic
        case LeaderChanged():
            return (
                LeaderChanged, event.topic, event.partition, event.leader, event.leader_epoch,
            )  # fmt: skip
        case PartitionFailed():
            return PartitionFailed, event.topic_partition, event.error
        case PartitionRecovered():
            return PartitionRecovered, event.topic_partition, event.leader
        case _:
            raise AssertionError(event)


@given(st.lists(INPUTS, max_size=25))
def test_events_are_the_difference_of_the_states(inputs: list[Input]):
    """Nothing changes silently, and nothing is announced that did not change."""
    for change, before, after, events in states(inputs):
        summaries = [summary(event) for event in events]
        assert len(summaries) == len(set(summaries)), "an event twice"
        assert set(summaries) == expected_events(before, after, change)


@given(st.lists(INPUTS, max_size=25))
def test_states_are_consistent_and_never_change(inputs: list[Input]):
    """Failures belong to existing partitions, topic ids to names; a snapshot never changes."""
    before_copies = []
    steps = states(inputs)
    for _, before, after, _ in steps:
        before_copies.append((before, copy.copy(dict(before.metadata.topics))))
        metadata = after.metadata
        assert all(metadata.partition(tp) is not None for tp in after.failed)
        assert {t.topic_id: t.name for t in metadata.topics.values() if t.topic_id != ZERO_ID} == (
            metadata.topic_names
        )
        assert not after.up & after.down
    for state, topics_then in before_copies:
        assert dict(state.metadata.topics) == topics_then


@given(st.lists(INPUTS, max_size=15), INPUTS)
def test_an_input_without_effect_returns_the_same_state(inputs: list[Input], change: Input):
    """An input applied twice causes events once, except the second report of a missing topic."""
    steps = states([*inputs, change])
    state = steps[-1][2]
    again, events = reduce(state, change)
    third, more = reduce(again, change)
    assert more == () or isinstance(change, MetadataReceived)
    assert reduce(third, change) == (third, ())
    if not isinstance(change, MetadataReceived):
        assert (again, events) == (state, ())
