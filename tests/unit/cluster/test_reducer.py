"""The metadata reducer: which answers are believed, and which events they give."""

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
    """Who acts on a topic event finds its leaders' brokers announced already."""
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
    """Metadata is asked for every five minutes; that is no news."""
    state = after(answer(topic(1, 2)))
    assert reduce(state, answer(topic(1, 2))) == (state, ())


def test_an_answer_without_brokers_is_ignored():
    """A broker that is starting knows nobody; believing it would take everything down."""
    state = after(answer(topic(1, 2)))
    assert reduce(state, answer(topic(1), brokers=())) == (state, ())


def test_a_newer_leader_epoch_moves_the_leader():
    """An election was won."""
    state = after(answer(topic(1, 2)))
    state, events = reduce(state, answer(topic(3, 2, epoch=6)))
    assert events == (LeaderChanged("t", 0, 3, 6, 1), LeaderChanged("t", 1, 2, 6, 2))
    assert state.metadata.leader_epoch(TP) == 6


def test_an_older_leader_epoch_is_not_believed():
    """A broker that lags still names the leader that was deposed (KIP-320)."""
    state = after(answer(topic(3, epoch=6)))
    after_stale, events = reduce(state, answer(topic(1, epoch=5)))
    assert events == ()
    assert after_stale.metadata.leader(TP) == 3


def test_an_answer_without_epochs_does_not_forget_the_epoch():
    """In a rolling upgrade from 2.0 some brokers cannot tell epochs."""
    state = after(answer(topic(3, epoch=6)))
    state, _ = reduce(state, answer(topic(1, epoch=-1)))
    assert (state.metadata.leader(TP), state.metadata.leader_epoch(TP)) == (1, 6)


def test_epochs_are_compared_per_partition():
    """An answer can be new for one partition and stale for another."""
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
    """Kafka never does; the broker has not heard of them yet."""
    state = after(answer(topic(1, 2, 3)))
    assert reduce(state, answer(topic(1, 2)))[1] == ()


def test_a_new_topic_id_is_a_new_topic():
    """Deleted and created again: offsets, epochs and partition counts begin anew."""
    state = after(answer(topic(1, 2, epoch=9)))
    state, events = reduce(state, answer(topic(3, epoch=0, topic_id=OTHER_ID)))
    assert events == (TopicRecreated("t", ID, OTHER_ID, 1),)
    assert state.metadata.leader_epoch(TP) == 0
    assert state.metadata.topic_by_id(ID) is None


def test_a_replaced_topic_id_never_comes_back():
    """A lagging broker would otherwise flip the topic back and forth."""
    state = after(answer(topic(1, 2)), answer(topic(3, topic_id=OTHER_ID)))
    assert reduce(state, answer(topic(1, 2))) == (state, ())


def test_without_topic_ids_fewer_partitions_mean_a_new_topic():
    """Brokers before 2.8 give nothing else to see it by."""
    state = after(answer(topic(1, 2, topic_id=ZERO_ID)))
    _, events = reduce(state, answer(topic(1, epoch=0, topic_id=ZERO_ID)))
    assert events == (TopicRecreated("t", ZERO_ID, ZERO_ID, 1),)


def test_a_topic_is_given_up_after_two_answers():
    """One broker that does not know a topic may lag; two answers in a row are a fact."""
    state = after(answer(topic(1)))
    doubted, events = reduce(state, answer(refused(3)))
    assert events == ()
    assert doubted.metadata.topics["t"].error_code == 3
    removed, events = reduce(doubted, answer(refused(3)))
    assert events == (TopicRemoved("t", ID),)
    assert "t" not in removed.metadata.topics
    assert removed.metadata.topic_errors["t"] == 3


def test_a_doubted_topic_that_is_there_is_believed():
    """The second answer comes from a broker that knows better."""
    state = after(answer(topic(1)), answer(refused(3)))
    state, events = reduce(state, answer(topic(1)))
    assert events == ()
    assert state.metadata.topics["t"].error_code == 0
    assert not state.metadata.topic_errors


def test_a_complete_answer_speaks_for_topics_it_leaves_out():
    """Asked for all topics, a broker names no missing ones."""
    state = after(answer(topic(1)))
    gone, events = reduce(reduce(state, answer(complete=True))[0], answer(complete=True))
    assert events == (TopicRemoved("t", ID),)
    assert not gone.metadata.topics
    assert reduce(state, answer())[1] == ()


def test_a_refused_topic_keeps_its_code():
    """Whoever waits for it must learn why it does not come."""
    state = after(answer(refused(29)))
    assert state.metadata.topic_errors == {"t": 29}
    assert "t" not in state.metadata.topics


def test_a_broker_that_is_not_listed_is_down():
    """The cluster knows best who is in it."""
    state = after(answer())
    state, events = reduce(state, answer(brokers=BROKERS[:2]))
    assert [type(event) for event in events] == [BrokerDown]
    assert events[0].node_id == 3
    assert reduce(state, answer())[1] == (BrokerUp(3, "b3", 9092),)


def test_a_lost_connection_fails_what_the_broker_led():
    """Nobody should first have to run into a timeout for each partition."""
    state = after(answer(topic(1, 2, 1)))
    state, events = reduce(state, ConnectionLostTo(1, "reset"))
    assert events == (
        BrokerDown(1, "reset"),
        PartitionFailed("t", 0, "CONNECTION_LOST"),
        PartitionFailed("t", 2, "CONNECTION_LOST"),
    )
    assert reduce(state, ConnectionLostTo(1, "again")) == (state, ())


def test_a_listed_broker_stays_down_until_it_is_reached():
    """A killed broker is listed for seconds; being listed must not look like being there."""
    state = after(answer(), ConnectionLostTo(1, "reset"))
    assert reduce(state, answer())[1] == ()
    gone = reduce(state, answer(brokers=BROKERS[1:]))[0]
    back, events = reduce(gone, answer())
    assert events == ()
    assert reduce(back, NodeReached(1))[1] == (BrokerUp(1, "b1", 9092),)


def test_a_moved_broker_is_announced_with_its_address():
    """Pods come back at other addresses under the same id."""
    state = after(answer())
    moved = (BrokerInfo(1, "elsewhere", 9092), *BROKERS[1:])
    assert reduce(state, answer(brokers=moved))[1] == (BrokerUp(1, "elsewhere", 9092),)


def test_learned_endpoints_are_added():
    """FindCoordinator may name a broker that metadata has not told of yet."""
    state = after(answer(brokers=BROKERS[:1]))
    state, events = reduce(state, EndpointsLearned((BROKERS[1],)))
    assert events == (BrokerUp(2, "b2", 9092),)
    assert set(state.metadata.brokers) == {1, 2}


def test_a_learned_endpoint_does_not_forget_the_rack():
    """FindCoordinator tells host and port only."""
    racked = BrokerInfo(1, "b1", 9092, "rack-a")
    state = after(answer(brokers=(racked,)))
    assert reduce(state, EndpointsLearned((BROKERS[0],))) == (state, ())


def test_a_partition_fails_once():
    """A thousand batches fail in the same moment; that is one event."""
    state = after(answer(topic(1)))
    state, events = reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5))
    assert events == (PartitionFailed("t", 0, "NOT_LEADER_OR_FOLLOWER"),)
    assert reduce(state, PartitionErrored(TP, "REQUEST_TIMED_OUT", 5)) == (state, ())


def test_an_error_from_a_former_leader_is_stale():
    """Its answer arrived after we had learned who leads now."""
    state = after(answer(topic(1, epoch=6)))
    assert reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5)) == (state, ())


def test_a_hint_moves_the_leader_without_a_failure():
    """KIP-951: the former leader says who leads now; nothing has to be asked."""
    state = after(answer(topic(1), brokers=BROKERS[:1]))
    hint = LeaderHint(2, 6, BROKERS[1])
    state, events = reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5, hint))
    assert events == (BrokerUp(2, "b2", 9092), LeaderChanged("t", 0, 2, 6, 1))
    assert not state.failed


@pytest.mark.parametrize(
    "hint", [LeaderHint(2, 5), LeaderHint(-1, -1), LeaderHint(9, 6)], ids=["old", "none", "who"]
)
def test_a_useless_hint_is_a_plain_failure(hint: LeaderHint):
    """Not newer than what is known, no leader, or a broker without an address."""
    state = after(answer(topic(1)))
    state, events = reduce(state, PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5, hint))
    assert events == (PartitionFailed("t", 0, "NOT_LEADER_OR_FOLLOWER"),)
    assert state.metadata.leader(TP) == 1


def test_recovery_needs_the_leaders_own_word():
    """Metadata that names a leader is a claim; it has failed us once already."""
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


def test_a_broker_that_is_back_brings_all_its_partitions_in_one_step():
    """One by one, each with a copy of what had failed, ten thousand held the loop for 8 s."""
    state = after(answer(topic(1, 1, 2)), ConnectionLostTo(1, "reset"), NodeReached(1))
    epochs = {TopicPartition("t", n): 5 for n in range(3)}
    state, events = reduce(state, LeaderVerified(1, epochs))
    assert [event.partition for event in events] == [0, 1]
    assert not state.failed


def test_a_leader_that_is_down_verifies_nothing():
    """Its last answer was on the way when the connection broke."""
    state = after(answer(topic(1)), ConnectionLostTo(1, "reset"))
    assert reduce(state, LeaderVerified(1, {TP: 5})) == (state, ())


def test_success_is_recovery_too():
    """A produce that went through proves more than any question."""
    state = after(answer(topic(1)), PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5))
    assert reduce(state, PartitionServed(TP))[1] == (PartitionRecovered("t", 0, 1, 5),)
    assert reduce(after(answer(topic(1))), PartitionServed(TP))[1] == ()


def test_errors_of_unknown_partitions_change_nothing():
    """There is nothing to recover, and nothing that would ever end it."""
    state = after(answer(topic(1)))
    stranger = TopicPartition("t", 7)
    assert reduce(state, PartitionErrored(stranger, "UNKNOWN_TOPIC_OR_PARTITION")) == (state, ())


def test_failures_go_with_their_topic():
    """The recovery monitor would look after a deleted topic for ever."""
    failed = PartitionErrored(TP, "NOT_LEADER_OR_FOLLOWER", 5)
    state = after(answer(topic(1)), failed, answer(refused(3)), answer(refused(3)))
    assert not state.failed
    assert not after(answer(topic(1)), failed, TopicsForgotten(frozenset({"t"}))).failed


def test_forgetting_is_no_event():
    """The topic still exists; only nobody here wants it any more."""
    state = after(answer(topic(1), topic(2, name="u", topic_id=OTHER_ID)))
    state, events = reduce(state, TopicsForgotten(frozenset({"t", "unheard of"})))
    assert events == ()
    assert set(state.metadata.topics) == {"u"}
    assert state.metadata.topic_names == {OTHER_ID: "u"}


def test_a_snapshot_never_changes():
    """Whoever holds one may read it while the next is made."""
    state = after(answer(topic(1, 2)))
    before = state.metadata
    reduce(state, answer(topic(3, 3, 3, epoch=9), topic(1, name="u")))
    assert before == after(answer(topic(1, 2))).metadata
    with pytest.raises(TypeError):
        before.topics["x"] = topic(1)  # type: ignore[index]
    with pytest.raises(AttributeError):
        before.controller_id = 2  # type: ignore[misc]
