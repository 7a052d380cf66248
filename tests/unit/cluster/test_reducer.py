"""The metadata reducer: which responses are accepted, and which events they cause."""

from __future__ import annotations

from uuid import UUID

import pytest

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

BROKERS = tuple(BrokerInfo(n, f"b{n}", 9092) for n in (1, 2, 3))
ID, OTHER_ID = UUID(int=1), UUID(int=2)
TP = TopicPartition("t", 0)


def topic(
    *leaders: int, epoch: int = 5, topic_id: UUID = ID, name: str = "t", error: int = 0
) -> TopicInfo:
    partitions = (
        (n, PartitionInfo(n, leader, epoch, (leader,), (leader,)))
        for n, leader in enumerate(leaders)
    )
    return TopicInfo(name, topic_id, False, frozen_map(partitions), error)


def refused(code: int, name: str = "t") -> TopicInfo:
    return TopicInfo(name, error_code=code)


def answer(
    *topics: TopicInfo, brokers: tuple[BrokerInfo, ...] = BROKERS, complete: bool = False
) -> MetadataReceived:
    return MetadataReceived(brokers, topics, "cluster", 1, complete)


def after(*changes: Input) -> ClusterState:
    state = ClusterState()
    for change in changes:
        state, _ = reduce(state, change)
    return state


def test_first_answer_gives_brokers_then_topics():
    """A handler of a topic event can rely on the leaders' brokers being announced already."""
    state, events = reduce(ClusterState(), answer(topic(1, 2)))
    assert events == (
        BrokerUp(1, "b1", 9092),
        BrokerUp(2, "b2", 9092),
        BrokerUp(3, "b3", 9092),
        TopicAdded("t", ID, 2),
    )
    assert state.metadata.leader(TopicPartition("t", 1)) == 2
    assert state.metadata.topic_by_id(ID) is state.metadata.topics["t"]
    assert (state.metadata.cluster_id, state.metadata.controller_id) == ("cluster", 1)


def test_the_same_answer_again_changes_nothing():
    """The periodic refresh must not cause events."""
    state = after(answer(topic(1, 2)))
    assert reduce(state, answer(topic(1, 2))) == (state, ())


def test_an_answer_without_brokers_is_ignored():
    """A starting broker knows no brokers; accepting its response would mark them all down."""
    state = after(answer(topic(1, 2)))
    assert reduce(state, answer(topic(1), brokers=())) == (state, ())


def test_a_newer_leader_epoch_moves_the_leader():
    """A new leader was elected."""
    state = after(answer(topic(1, 2)))
    state, events = reduce(state, answer(topic(3, 2, epoch=6)))
    assert events == (LeaderChanged("t", 0, 3, 6, 1), LeaderChanged("t", 1, 2, 6, 2))
    assert state.metadata.leader_epoch(TP) == 6


def test_an_older_leader_epoch_is_ignored():
    """A broker with old metadata still names the previous leader (KIP-320)."""
    state = after(answer(topic(3, epoch=6)))
    after_stale, events = reduce(state, answer(topic(1, epoch=5)))
    assert events == ()
    assert after_stale.metadata.leader(TP) == 3


def test_an_answer_without_epochs_does_not_forget_the_epoch():
    """In a rolling upgrade from 2.0 some brokers return no leader epochs."""
    state = after(answer(topic(3, epoch=6)))
    state, _ = reduce(state, answer(topic(1, epoch=-1)))
    assert (state.metadata.leader(TP), state.metadata.leader_epoch(TP)) == (1, 6)


def test_epochs_are_compared_per_partition():
    """A response can be newer for one partition and stale for another."""
    state = after(answer(topic(1, 1, epoch=5)))
    mixed = TopicInfo(
        "t", ID, False, frozen_map({0: PartitionInfo(0, 2, 6), 1: PartitionInfo(1, 2, 4)})
    )
    state, events = reduce(state, answer(mixed))
    assert events == (LeaderChanged("t", 0, 2, 6, 1),)
    assert state.metadata.leader(TopicPartition("t", 1)) == 1


def test_new_partitions_are_announced():
    """Producers must begin to use them, consumers to read them."""
    state = after(answer(topic(1, 2)))
    state, events = reduce(state, answer(topic(1, 2, 3)))
    assert events == (PartitionsAdded("t", 2, 3),)
    assert len(state.metadata.topics["t"].partitions) == 3


def test_a_lagging_answer_does_not_take_partitions_away():
    """Kafka never removes partitions; the broker does not know the new ones yet."""
    state = after(answer(topic(1, 2, 3)))
    assert reduce(state, answer(topic(1, 2)))[1] == ()


def test_a_new_topic_id_is_a_new_topic():
    """A topic was deleted and recreated: offsets, leader epochs and partition count start over."""
    state = after(answer(topic(1, 2, epoch=9)))
    state, events = reduce(state, answer(topic(3, epoch=0, topic_id=OTHER_ID)))
    assert events == (TopicRecreated("t", ID, OTHER_ID, 1),)
    assert state.metadata.leader_epoch(TP) == 0
    assert state.metadata.topic_by_id(ID) is None


def test_a_replaced_topic_id_never_comes_back():
    """Otherwise a broker with old metadata would switch the topic back and forth."""
    state = after(answer(topic(1, 2)), answer(topic(3, topic_id=OTHER_ID)))
    assert reduce(state, answer(topic(1, 2))) == (state, ())


def test_without_topic_ids_fewer_partitions_mean_a_new_topic():
    """Brokers before 2.8 return nothing else that shows a recreation."""
    state = after(answer(topic(1, 2, topic_id=ZERO_ID)))
    _, events = reduce(state, answer(topic(1, epoch=0, topic_id=ZERO_ID)))
    assert events == (TopicRecreated("t", ZERO_ID, ZERO_ID, 1),)


def test_a_topic_is_removed_after_two_responses_without_it():
    """A single response may come from a broker with old metadata."""
    state = after(answer(topic(1)))
    doubted, events = reduce(state, answer(refused(3)))
    assert events == ()
    assert doubted.metadata.topics["t"].error_code == 3
    removed, events = reduce(doubted, answer(refused(3)))
    assert events == (TopicRemoved("t", ID),)
    assert "t" not in removed.metadata.topics
    assert removed.metadata.topic_errors["t"] == 3


def test_a_topic_that_was_missing_in_one_response_only_is_kept():
    """The second response comes from a broker with newer metadata."""
    state = after(answer(topic(1)), answer(refused(3)))
    state, events = reduce(state, answer(topic(1)))
    assert events == ()
    assert state.metadata.topics["t"].error_code == 0
    assert not state.metadata.topic_errors


def test_a_topic_that_is_not_in_a_list_of_all_topics_is_missing():
    """A response with all topics has no entries for missing ones."""
    state = after(answer(topic(1)))
    gone, events = reduce(reduce(state, answer(complete=True))[0], answer(complete=True))
    assert events == (TopicRemoved("t", ID),)
    assert not gone.metadata.topics
    assert reduce(state, answer())[1] == ()


def test_a_refused_topic_keeps_its_code():
    """Callers that wait for the topic need the reason."""
    state = after(answer(refused(29)))
    assert state.metadata.topic_errors == {"t": 29}
    assert "t" not in state.metadata.topics


def test_a_broker_that_is_not_listed_is_down():
    """Metadata no longer lists the broker."""
    state = after(answer())
    state, events = reduce(state, answer(brokers=BROKERS[:2]))
    assert [type(event) for event in events] == [BrokerDown]
    assert events[0].node_id == 3
    assert reduce(state, answer())[1] == (BrokerUp(3, "b3", 9092),)


def test_a_lost_connection_fails_the_partitions_that_the_broker_led():
    """Requests must not have to time out for each partition."""
    state = after(answer(topic(1, 2, 1)))
    state, events = reduce(state, ConnectionLostTo(1, "reset"))
    assert events == (
        BrokerDown(1, "reset"),
        PartitionFailed("t", 0, "CONNECTION_LOST"),
        PartitionFailed("t", 2, "CONNECTION_LOST"),
    )
    assert reduce(state, ConnectionLostTo(1, "again")) == (state, ())


def test_a_listed_broker_stays_down_until_it_is_reached():
    """Metadata lists a killed broker for some seconds more."""
    state = after(answer(), ConnectionLostTo(1, "reset"))
    assert reduce(state, answer())[1] == ()
    gone = reduce(state, answer(brokers=BROKERS[1:]))[0]
    back, events = reduce(gone, answer())
    assert events == ()
    assert reduce(back, NodeReached(1))[1] == (BrokerUp(1, "b1", 9092),)


def test_a_moved_broker_is_announced_with_its_address():
    """A pod comes back with the same node id at another address."""
    state = after(answer())
    moved = (BrokerInfo(1, "elsewhere", 9092), *BROKERS[1:])
    assert reduce(state, answer(brokers=moved))[1] == (BrokerUp(1, "elsewhere", 9092),)


def test_learned_endpoints_are_added():
    """FindCoordinator may name a broker that is not in the metadata yet."""
    state = after(answer(brokers=BROKERS[:1]))
    state, events = reduce(state, EndpointsLearned((BROKERS[1],)))
    assert events == (BrokerUp(2, "b2", 9092),)
    assert set(state.metadata.brokers) == {1, 2}


def test_a_learned_endpoint_does_not_forget_the_rack():
    """A FindCoordinator response has only host and port."""
    racked = BrokerInfo(1, "b1", 9092, "rack-a")
    state = after(answer(brokers=(racked,)))
    assert reduce(state, EndpointsLearned((BROKERS[0],))) == (state, ())


def test_a_partition_fails_once():
    """A thousand batches failing at the same moment are one event."""
    state = after(answer(topic(1)))
    state, events = reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5))
    assert events == (PartitionFailed("t", 0, "NOT_LEADER_OR_FOLLOWER"),)
    assert reduce(state, PartitionErrored(TP, "REQUEST_TIMED_OUT", 5)) == (state, ())


def test_an_error_from_a_former_leader_is_stale():
    """The error arrived after the new leader was known."""
    state = after(answer(topic(1, epoch=6)))
    assert reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5)) == (state, ())


def test_a_hint_moves_the_leader_without_a_failure():
    """With KIP-951 the former leader names the new one, so no request is needed."""
    state = after(answer(topic(1), brokers=BROKERS[:1]))
    hint = LeaderHint(2, 6, BROKERS[1])
    state, events = reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5, hint))
    assert events == (BrokerUp(2, "b2", 9092), LeaderChanged("t", 0, 2, 6, 1))
    assert not state.failed


@pytest.mark.parametrize(
    "hint", [LeaderHint(2, 5), LeaderHint(-1, -1), LeaderHint(9, 6)], ids=["old", "none", "who"]
)
def test_a_useless_hint_is_a_plain_failure(hint: LeaderHint):
    """The hint is not newer, names no leader, or names a broker without an address."""
    state = after(answer(topic(1)))
    state, events = reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5, hint))
    assert events == (PartitionFailed("t", 0, "NOT_LEADER_OR_FOLLOWER"),)
    assert state.metadata.leader(TP) == 1


def test_recovery_needs_the_leaders_confirmation():
    """A leader named in metadata may not know yet that it leads."""
    failed = PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5)
    state = after(answer(topic(1)), failed)
    state, events = reduce(state, answer(topic(2, epoch=6)))
    assert events == (LeaderChanged("t", 0, 2, 6, 1),)
    assert TP in state.failed
    assert reduce(state, LeaderVerified(1, {TP: 5}))[1] == ()
    assert reduce(state, LeaderVerified(2, {TP: 5}))[1] == ()
    state, events = reduce(state, LeaderVerified(2, {TP: 6}))
    assert events == (PartitionRecovered("t", 0, 2, 6),)
    assert not state.failed


def test_all_partitions_of_a_broker_that_is_back_recover_in_one_step():
    """Recovering ten thousand partitions one by one, each with a copy of the failures, took 8 s."""
    state = after(answer(topic(1, 1, 2)), ConnectionLostTo(1, "reset"), NodeReached(1))
    epochs = {TopicPartition("t", n): 5 for n in range(3)}
    state, events = reduce(state, LeaderVerified(1, epochs))
    assert [event.partition for event in events] == [0, 1]
    assert not state.failed


def test_a_verification_by_a_leader_that_is_down_is_ignored():
    """Its last response arrived after the connection was lost."""
    state = after(answer(topic(1)), ConnectionLostTo(1, "reset"))
    assert reduce(state, LeaderVerified(1, {TP: 5})) == (state, ())


def test_a_served_request_is_a_recovery_too():
    """A successful Produce request proves that the partition is available."""
    state = after(answer(topic(1)), PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5))
    assert reduce(state, PartitionServed(TP))[1] == (PartitionRecovered("t", 0, 1, 5),)
    assert reduce(after(answer(topic(1))), PartitionServed(TP))[1] == ()


def test_errors_of_unknown_partitions_change_nothing():
    """Such a failure could never recover."""
    state = after(answer(topic(1)))
    stranger = TopicPartition("t", 7)
    assert reduce(state, PartitionErrored(stranger, "UNKNOWN_TOPIC_OR_PARTITION")) == (state, ())


def test_the_failures_of_a_removed_topic_are_removed():
    """The recovery monitor would otherwise ask for a deleted topic for ever."""
    failed = PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5)
    state = after(answer(topic(1)), failed, answer(refused(3)), answer(refused(3)))
    assert not state.failed
    assert not after(answer(topic(1)), failed, TopicsForgotten(frozenset({"t"}))).failed


def test_forgetting_is_no_event():
    """The topic still exists; the client only stopped using it."""
    state = after(answer(topic(1), topic(2, name="u", topic_id=OTHER_ID)))
    state, events = reduce(state, TopicsForgotten(frozenset({"t", "unheard of"})))
    assert events == ()
    assert set(state.metadata.topics) == {"u"}
    assert state.metadata.topic_names == {OTHER_ID: "u"}


def test_a_snapshot_never_changes():
    """A reader may keep a snapshot while the next one is built."""
    state = after(answer(topic(1, 2)))
    before = state.metadata
    reduce(state, answer(topic(3, 3, 3, epoch=9), topic(1, name="u")))
    assert before == after(answer(topic(1, 2))).metadata
    with pytest.raises(TypeError):
        before.topics["x"] = topic(1)  # type: ignore[index]
    with pytest.raises(AttributeError):
        before.controller_id = 2  # type: ignore[misc]
