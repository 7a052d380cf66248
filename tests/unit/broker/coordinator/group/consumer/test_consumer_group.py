"""Groups of the consumer protocol: joins, reconciliation, fencing, static members, reloads."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.coordinator.group.consumer.member import MemberState
from aiokq.broker.coordinator.group.group import Caller
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import (
    BrokerError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    GroupNotEmpty,
    KafkaStorage,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from aiokq.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokq.wire.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from tests.unit.broker.coordinator.group.consumer.consumer_harness import World

SESSION = 45.0


def settled(world: World, *members: str, limit: int = 20) -> None:
    """Send heartbeats of all members, which follow their assignments, until nothing changes."""
    for _ in range(limit):
        before = len(world.log)
        for member_id in members:
            member = world.group.image.members[member_id]
            names = {
                topic.name: numbers
                for topic_id, numbers in member.assigned.items()
                if (topic := world.topics.by_id(topic_id)) is not None
            }
            world.beat(member_id, member.member_epoch, names, instance=member.instance_id)
        if len(world.log) == before:
            return
    raise AssertionError("the group does not settle")


# Joining


def test_the_first_member_gets_all_partitions_at_epoch_one() -> None:
    """A group of one starts with its first request."""
    world = World(orders=3)
    response = world.join("a", "orders")
    assert response.member_id == "a"
    assert response.member_epoch == 1
    assert response.heartbeat_interval_ms == 5000
    assert world.assigned(response) == {"orders": {0, 1, 2}}
    assert world.group.state_name == "Stable"


def test_the_records_of_a_join_are_kafkas_in_kafkas_order() -> None:
    """Apache Kafka must be able to read the log, and aiokq the log of Kafka."""
    world = World(orders=1)
    world.join("a", "orders")
    assert [type(record.key).__name__ for record in world.written] == [
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
    ]


def test_version_zero_gets_a_member_id_made_by_the_broker() -> None:
    """The first librdkafka releases with the protocol sent no id."""
    world = World(orders=1)
    first = world.join("", "orders", version=0)
    second = world.join("", "orders", version=0)
    assert first.member_id
    assert second.member_id
    assert first.member_id != second.member_id
    assert set(world.group.image.members) == {first.member_id, second.member_id}


def test_a_member_without_topics_is_a_member() -> None:
    """A consumer subscribes to a topic that is created later."""
    world = World()
    response = world.join("a", "later")
    assert world.assigned(response) == {}
    world.topics.create("later", 2)
    assert world.assigned(world.beat("a", response.member_epoch)) == {"later": {0, 1}}


def test_a_heartbeat_without_a_change_writes_nothing_and_tells_nothing() -> None:
    """Members send a heartbeat every few seconds for months."""
    world = World(orders=2)
    world.join("a", "orders")
    response = world.beat("a", 1)
    assert world.written == []
    assert response.assignment is None
    assert response.member_epoch == 1


def test_a_full_request_is_told_its_assignment_again() -> None:
    """A client that lost a response sends all its state and needs its whole assignment."""
    world = World(orders=2)
    world.join("a", "orders")
    response = world.beat(
        "a", 1, {"orders": [0, 1]}, topics=["orders"], rebalance_timeout_ms=10_000
    )
    assert world.written == []
    assert world.assigned(response) == {"orders": {0, 1}}


def test_a_second_member_waits_until_the_first_has_given_up_its_share() -> None:
    """KIP-848: the first member revokes and acknowledges, then the second is assigned."""
    world = World(orders=4)
    world.join("a", "orders")
    joined = world.join("b", "orders")
    assert joined.member_epoch == 2
    assert world.assigned(joined) == {}
    assert world.group.state_name == "Reconciling"
    told = world.beat("a", 1)
    assert told.member_epoch == 1, "its epoch stays until it has given up"
    kept = world.assigned(told)
    assert kept is not None
    assert len(kept["orders"]) == 2
    assert world.beat("b", 2).assignment is None, "not released yet"
    acknowledged = world.beat("a", 1, kept)
    assert acknowledged.member_epoch == 2
    assert acknowledged.assignment is None
    taken = world.assigned(world.beat("b", 2))
    assert taken is not None
    assert taken["orders"] | kept["orders"] == {0, 1, 2, 3}
    settled(world, "a", "b")
    assert world.group.state_name == "Stable"


def test_a_revocation_is_not_acknowledged_by_a_heartbeat_without_partitions() -> None:
    """A heartbeat without partitions does not say what the member owns."""
    world = World(orders=2)
    world.join("a", "orders")
    world.join("b", "orders")
    world.beat("a", 1)
    again = world.beat("a", 1)
    assert again.member_epoch == 1
    assert world.group.image.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    world.beat("a", 1, {"orders": [0, 1]})
    assert world.group.image.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_partitions_in_revocation_may_come_back_to_their_owner() -> None:
    """The member that should have got them left before they were revoked."""
    world = World(orders=2)
    world.join("a", "orders")
    world.join("b", "orders")
    told = world.assigned(world.beat("a", 1))
    world.leave("b")
    back = world.beat("a", 1, told)
    assert world.assigned(back) == {"orders": {0, 1}}
    assert back.member_epoch == 3


def test_a_member_waiting_for_partitions_keeps_those_it_has() -> None:
    """The third member's partitions are consumed while two slow members still revoke."""
    world = World(orders=6)
    for member_id in "abc":
        world.join(member_id, "orders")
        settled(world, *"abc"[: "abc".index(member_id) + 1])
    epoch = world.group.image.epoch
    world.leave("a")
    response = world.beat("b", epoch)
    assert response.member_epoch == epoch + 1
    assert response.assignment is not None


def test_a_group_is_full_at_its_maximum_size() -> None:
    """A new member gets GROUP_MAX_SIZE_REACHED; existing members stay."""
    world = World(settings={"group.consumer.max.size": 1}, orders=1)
    world.join("a", "orders")
    with pytest.raises(GroupMaxSizeReached, match="maximum capacity of 1 members"):
        world.join("b", "orders")
    world.beat("a", 1)
    world.join("a", "orders")


def test_a_static_member_comes_back_to_a_full_group() -> None:
    """It keeps its place, whatever member id it has now."""
    world = World(settings={"group.consumer.max.size": 1}, orders=1)
    world.join("a", "orders", instance="i")
    world.leave("a", instance="i", for_good=False)
    world.join("a2", "orders", instance="i")
    assert list(world.group.image.members) == ["a2"]


def test_only_a_join_makes_a_group() -> None:
    """A member of a group that expired has to start afresh."""
    world = World(orders=1)
    with pytest.raises(GroupIdNotFound):
        world.beat("a", 3)
    with pytest.raises(GroupIdNotFound):
        world.leave("a")


# Epochs


@pytest.mark.parametrize("received", [2, 7])
def test_an_epoch_from_the_future_is_fenced(received: int) -> None:
    """The coordinator may have lost its log, so the member cannot continue safely."""
    world = World(orders=1)
    world.join("a", "orders")
    with pytest.raises(FencedMemberEpoch, match="greater member epoch"):
        world.beat("a", received)


def test_a_lost_reply_is_repeated_for_who_owns_no_more_than_it_should() -> None:
    """The member never saw its new epoch, and sends the previous epoch with all that it owns."""
    world = World(orders=2)
    world.join("a", "orders")
    world.topics.grow("orders", 3)
    lost = world.beat("a", 1)
    assert lost.member_epoch == 2
    again = world.beat("a", 1, {"orders": [0, 1]}, topics=["orders"], rebalance_timeout_ms=10_000)
    assert again.member_epoch == 2
    assert world.assigned(again) == {"orders": {0, 1, 2}}


def test_a_previous_epoch_without_the_partitions_is_fenced() -> None:
    """Without its partitions it is unknown whether the member still owns revoked ones."""
    world = World(orders=2)
    world.join("a", "orders")
    world.topics.grow("orders", 3)
    world.beat("a", 1)
    with pytest.raises(FencedMemberEpoch, match="smaller member epoch"):
        world.beat("a", 1)


def test_a_previous_epoch_with_foreign_partitions_is_fenced() -> None:
    """It owns a partition that was not assigned to it at the newer epoch."""
    world = World(orders=4)
    world.join("a", "orders")
    world.join("b", "orders")
    kept = world.assigned(world.beat("a", 1))
    assert kept is not None
    assert world.beat("a", 1, kept).member_epoch == 2
    with pytest.raises(FencedMemberEpoch):
        world.beat("a", 1, {"orders": [0, 1, 2, 3]})


def test_an_epoch_older_than_the_previous_one_is_fenced() -> None:
    """Two responses were lost, and too much has changed since."""
    world = World(orders=1)
    world.join("a", "orders")
    for count in (2, 3):
        world.topics.grow("orders", count)
        world.beat("a", count - 1)
    with pytest.raises(FencedMemberEpoch):
        world.beat("a", 1, {"orders": [0]})


def test_a_fenced_member_joins_again_with_epoch_zero() -> None:
    """It has abandoned its partitions, and gets back at once those that nobody else has."""
    world = World(orders=2)
    world.join("a", "orders")
    response = world.join("a", "orders")
    assert response.member_epoch == 1
    assert world.assigned(response) == {"orders": {0, 1}}


def test_a_member_in_revocation_that_joins_again_has_given_up() -> None:
    """A fenced client abandons all partitions before it rejoins."""
    world = World(orders=2)
    world.join("a", "orders")
    world.join("b", "orders")
    world.beat("a", 1)
    again = world.join("a", "orders")
    assert again.member_epoch == 2
    assert world.assigned(world.beat("b", 2)) is not None


def test_an_unknown_member_gets_25() -> None:
    """It was removed while it was away."""
    world = World(orders=1)
    world.join("a", "orders")
    with pytest.raises(UnknownMemberId, match="Member b is not a member of group g"):
        world.beat("b", 1)


# Time


def test_a_silent_member_is_fenced_at_its_session_timeout() -> None:
    """Its partitions go to the others at the next heartbeat."""
    world = World(orders=2)
    world.join("a", "orders")
    world.join("b", "orders")
    settled(world, "a", "b")
    for _ in range(5):
        world.advance(10)
        if "a" in world.group.image.members:
            world.beat("b", world.group.image.members["b"].member_epoch)
    assert set(world.group.image.members) == {"b"}
    settled(world, "b")
    assert set(world.owners().values()) == {"b"}
    with pytest.raises(UnknownMemberId):
        world.beat("a", 2)


def test_a_heartbeat_prolongs_the_session() -> None:
    """The session starts again with each heartbeat."""
    world = World(orders=1)
    world.join("a", "orders")
    for _ in range(4):
        world.advance(SESSION - 1)
        world.beat("a", 1)
    world.advance(SESSION - 1)
    assert "a" in world.group.image.members
    world.advance(2)
    assert world.group.is_empty
    assert world.group.state_name == "Empty"
    assert len(world.timers) == 0


def test_a_slow_revoker_is_fenced_at_its_rebalance_timeout() -> None:
    """It sends heartbeats but never revokes; the others wait for its rebalance timeout only."""
    world = World(orders=2)
    world.join("a", "orders", rebalance_timeout_ms=7000)
    world.join("b", "orders")
    world.beat("a", 1)
    for _ in range(6):
        world.advance(1)
        world.beat("a", 1)
        world.beat("b", 2)
    assert set(world.group.image.members) == {"a", "b"}
    world.advance(1.5)
    assert set(world.group.image.members) == {"b"}
    settled(world, "b")
    assert len(world.owners()) == 2


def test_a_member_that_revokes_in_time_is_not_fenced_later() -> None:
    """The timer of a revocation ends with the revocation."""
    world = World(orders=2)
    world.join("a", "orders", rebalance_timeout_ms=7000)
    world.join("b", "orders")
    kept = world.assigned(world.beat("a", 1))
    world.advance(5)
    world.beat("a", 1, kept)
    world.advance(5)
    assert "a" in world.group.image.members


# Leaving


def test_a_member_that_leaves_frees_its_partitions_at_once() -> None:
    """The other members do not wait for its session to expire."""
    world = World(orders=2)
    world.join("a", "orders")
    world.join("b", "orders")
    settled(world, "a", "b")
    response = world.leave("a")
    assert (response.member_id, response.member_epoch) == ("a", -1)
    taken = world.beat("b", 2)
    assert taken.member_epoch == 3
    assert world.assigned(taken) == {"orders": {0, 1}}


def test_leaving_twice_is_25() -> None:
    """The response to the first request was lost."""
    world = World(orders=1)
    world.join("a", "orders")
    world.leave("a")
    with pytest.raises(UnknownMemberId):
        world.leave("a")


def test_the_last_member_leaves_an_empty_group_with_its_epoch() -> None:
    """Epochs never decrease, also when all members have left."""
    world = World(orders=1)
    world.join("a", "orders")
    world.leave("a")
    assert world.group.state_name == "Empty"
    assert world.join("b", "orders").member_epoch == 3


# Static members


def test_an_instance_id_in_use_is_unreleased() -> None:
    """Two processes were started with the same configuration."""
    world = World(orders=1)
    world.join("a", "orders", instance="i")
    with pytest.raises(UnreleasedInstanceId, match="owned by a member"):
        world.join("b", "orders", instance="i")


def test_a_static_member_that_comes_back_has_its_partitions_and_nobody_moves() -> None:
    """In a rolling restart there is no rebalance, whatever the new member id is."""
    world = World(orders=4)
    world.join("a", "orders", instance="i")
    world.join("b", "orders")
    settled(world, "a", "b")
    before = {owner: place for place, owner in world.owners().items()}
    epoch = world.group.image.epoch
    left = world.leave("a", instance="i", for_good=False)
    assert (left.member_id, left.member_epoch) == ("a", -2)
    assert world.beat("b", epoch).assignment is None
    back = world.join("a2", "orders", instance="i")
    assert back.member_epoch == epoch
    assert world.group.image.epoch == epoch
    mine = world.assigned(back)
    assert mine is not None
    assert len(mine["orders"]) == 2
    after = {owner: place for place, owner in world.owners().items()}
    assert after["b"] == before["b"]
    assert world.group.state_name == "Stable"
    with pytest.raises(UnknownMemberId):
        world.beat("a", epoch)


def test_a_static_member_away_keeps_its_partitions_until_its_session_ends() -> None:
    """If it does not come back in time, the others get them."""
    world = World(orders=2)
    world.join("a", "orders", instance="i")
    world.join("b", "orders")
    settled(world, "a", "b")
    world.leave("a", instance="i", for_good=False)
    for _ in range(4):
        world.advance(10)
        world.beat("b", 2)
    assert len(world.owners()) == 2
    world.advance(6)
    assert set(world.group.image.members) == {"b"}
    assert world.assigned(world.beat("b", 2)) == {"orders": {0, 1}}


def test_a_static_member_comes_back_with_its_old_member_id() -> None:
    """Some client libraries keep their member id across restarts."""
    world = World(orders=2)
    world.join("a", "orders", instance="i")
    world.leave("a", instance="i", for_good=False)
    back = world.join("a", "orders", instance="i")
    assert back.member_epoch == 1
    assert world.assigned(back) == {"orders": {0, 1}}


def test_a_replaced_static_member_leaves_no_timers() -> None:
    """A program may restart every minute for a year."""
    world = World(orders=1)
    for number in range(5):
        world.join(f"a{number}", "orders", instance="i")
        world.leave(f"a{number}", instance="i", for_good=False)
    assert len(world.timers) == 1


def test_a_replaced_static_member_is_fenced_by_its_instance_id() -> None:
    """The old process wakes up after its successor has joined."""
    world = World(orders=1)
    world.join("a", "orders", instance="i")
    world.leave("a", instance="i", for_good=False)
    world.join("a2", "orders", instance="i")
    for call in (
        lambda: world.beat("a", 1, instance="i"),
        lambda: world.leave("a", instance="i", for_good=False),
    ):
        with pytest.raises(FencedInstanceId, match="fenced by member a2"):
            call()
    with pytest.raises(UnknownMemberId, match="Instance id j is unknown"):
        world.beat("a", 1, instance="j")


def test_a_static_member_away_takes_no_ordinary_heartbeats() -> None:
    """A late heartbeat of the process that left must not make it a member again."""
    world = World(orders=1)
    world.join("a", "orders", instance="i")
    world.leave("a", instance="i", for_good=False)
    with pytest.raises(FencedMemberEpoch):
        world.beat("a", 1, instance="i")


def test_a_static_member_that_comes_back_with_other_topics_rebalances() -> None:
    """The new version of the program subscribes to more topics."""
    world = World(orders=2, audits=2)
    world.join("a", "orders", instance="i")
    world.leave("a", instance="i", for_good=False)
    back = world.join("a2", "orders", "audits", instance="i")
    assert back.member_epoch == 2
    assert world.assigned(back) == {"orders": {0, 1}, "audits": {0, 1}}


# Subscriptions and topics


def test_a_changed_subscription_takes_the_old_topic_away_first() -> None:
    """Partitions of unsubscribed topics are revoked before new ones are assigned."""
    world = World(orders=2, audits=2)
    world.join("a", "orders")
    told = world.beat("a", 1, topics=["audits"])
    assert told.member_epoch == 1
    assert world.assigned(told) == {}
    done = world.beat("a", 1, {})
    assert done.member_epoch == 2
    assert world.assigned(done) == {"audits": {0, 1}}


def test_added_partitions_are_assigned_at_the_next_heartbeat() -> None:
    """Partitions are added to a topic while a group reads it."""
    world = World(orders=1)
    world.join("a", "orders")
    world.topics.grow("orders", 3)
    response = world.beat("a", 1)
    assert response.member_epoch == 2
    assert world.assigned(response) == {"orders": {0, 1, 2}}


def test_a_deleted_topic_is_revoked() -> None:
    """The member revokes the deleted partitions and continues."""
    world = World(orders=1, audits=1)
    world.join("a", "orders", "audits")
    world.topics.delete("audits")
    told = world.beat("a", 1)
    assert world.assigned(told) == {"orders": {0}}
    assert world.beat("a", 1, {"orders": [0]}).member_epoch == 2


def test_a_topic_made_anew_is_another_topic() -> None:
    """The topic was recreated between two heartbeats: new id, old partitions revoked."""
    world = World(orders=1)
    world.join("a", "orders")
    old = world.topics.id("orders")
    world.topics.delete("orders")
    new = world.topics.create("orders", 2)
    world.beat("a", 1)
    response = world.beat("a", 1, {})
    assert response.assignment is not None
    assert [part.topic_id for part in response.assignment.topic_partitions] == [new]
    assert old not in world.group.image.members["a"].assigned


def test_topics_nobody_subscribes_to_change_nothing() -> None:
    """On a broker with many topics only the subscribed groups rebalance."""
    world = World(orders=1)
    world.join("a", "orders")
    world.topics.create("other", 5)
    world.beat("a", 1)
    assert world.written == []
    assert world.group.image.epoch == 1


def test_members_with_different_topics_share_only_what_both_want() -> None:
    """Subscriptions are mixed while a new version is being deployed."""
    world = World(orders=2, audits=2)
    world.join("a", "orders")
    world.join("b", "orders", "audits")
    settled(world, "a", "b")
    audits = world.topics.id("audits")
    owners = world.owners()
    assert {owner for (topic, _), owner in owners.items() if topic == audits} == {"b"}
    assert len(owners) == 4
    assert sorted(owners.values()).count("a") == 2


def test_the_assignor_of_the_majority_is_used() -> None:
    """Range assigns the first partitions of both topics to one member; uniform would not."""
    world = World(orders=2, audits=2)
    world.join("a", "orders", "audits", assignor="range")
    world.join("b", "orders", "audits", assignor="range")
    settled(world, "a", "b")
    owners = world.owners()
    for number, owner in ((0, "a"), (1, "b")):
        assert {owners[world.topics.id(name), number] for name in ("orders", "audits")} == {owner}
    assert world.group.describe().assignor_name == "range"


def test_racks_reach_the_assignor() -> None:
    """The member's rack is in its record and in the description."""
    world = World(orders=1)
    world.join("a", "orders", rack="r1")
    assert world.group.describe().members[0].rack_id == "r1"


# Offsets


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("a", 1, 9, None),
        ("a", 0, 9, StaleMemberEpoch),
        ("a", 2, 9, StaleMemberEpoch),
        ("a", -1, 9, StaleMemberEpoch),
        ("b", 1, 9, UnknownMemberId),
        ("", -1, 9, UnknownMemberId),
        ("a", 1, 8, UnsupportedVersion),
    ],
)
def test_commits_are_checked_against_the_member_epoch(
    member_id: str, epoch: int, version: int, error: type[BrokerError] | None
) -> None:
    """A commit of a member that no longer owns its partitions must not take effect."""
    world = World(orders=1)
    world.join("a", "orders")

    def commit() -> None:
        world.group.validate_offset_commit(
            member_id, None, epoch, world.instant, transactional=False, version=version
        )

    if error is None:
        commit()
    else:
        with pytest.raises(error):
            commit()


def test_commits_without_an_epoch_are_taken_by_an_empty_group_only() -> None:
    """Offsets can be reset only while the group is empty."""
    world = World(orders=1)
    world.join("a", "orders")
    with pytest.raises(UnknownMemberId):
        world.group.validate_offset_commit("", None, -1, world.instant, version=9)
    world.group.validate_offset_commit("", None, -1, world.instant, transactional=True, version=3)
    world.leave("a")
    world.group.validate_offset_commit("", None, -1, world.instant, version=2)


def test_fetches_are_checked_where_they_name_a_member() -> None:
    """Admin clients name none."""
    world = World(orders=1)
    world.join("a", "orders")
    world.group.validate_offset_fetch(None, -1)
    world.group.validate_offset_fetch("a", 1)
    with pytest.raises(StaleMemberEpoch):
        world.group.validate_offset_fetch("a", 0)
    with pytest.raises(UnknownMemberId):
        world.group.validate_offset_fetch("b", 1)
    with pytest.raises(UnknownMemberId):
        world.group.validate_offset_fetch("", 1)


def test_subscribed_topics_are_known() -> None:
    """Offsets of subscribed topics do not expire and cannot be deleted."""
    world = World(orders=1)
    world.join("a", "orders")
    assert world.group.is_subscribed_to("orders")
    assert not world.group.is_subscribed_to("audits")
    world.leave("a")
    assert not world.group.is_subscribed_to("orders")
    assert world.group.offset_expiry_base() is None
    world.group.validate_offset_delete()


# The log


def test_a_reloaded_group_goes_on_with_the_same_epochs_and_members() -> None:
    """The coordinator moves during a revocation."""
    world = World(orders=4)
    world.join("a", "orders")
    world.join("b", "orders")
    kept = world.assigned(world.beat("a", 1))
    for compacted in (False, True):
        world.reload(compacted=compacted)
        member = world.group.image.members["a"]
        assert member.state is MemberState.UNREVOKED_PARTITIONS
        assert (member.member_epoch, world.group.image.epoch) == (1, 2)
        assert world.beat("b", 2).assignment is None
    assert world.beat("a", 1, kept).member_epoch == 2
    assert world.assigned(world.beat("b", 2)) is not None


def test_a_reload_without_changes_rebalances_nobody() -> None:
    """After a restart of the broker all members keep their assignments."""
    world = World(orders=4)
    world.join("a", "orders", regex="x.*")
    world.join("b", "orders")
    settled(world, "a", "b")
    epoch = world.group.image.epoch
    world.reload(compacted=True)
    for member_id in "ab":
        assert world.beat(member_id, epoch).assignment is None
        assert world.written == []


def test_topics_that_changed_while_the_group_was_unloaded_are_noticed() -> None:
    """Partitions were added to a topic during the failover."""
    world = World(orders=1)
    world.join("a", "orders")
    world.topics.grow("orders", 2)
    world.reload()
    assert world.assigned(world.beat("a", 1)) == {"orders": {0, 1}}


def test_a_reload_starts_sessions_and_revocations_afresh() -> None:
    """No member is fenced for the time without a coordinator."""
    world = World(orders=2)
    world.join("a", "orders", rebalance_timeout_ms=20_000)
    world.join("b", "orders")
    world.beat("a", 1)
    world.now += 1000
    world.reload()
    world.advance(19)
    assert set(world.group.image.members) == {"a", "b"}
    world.advance(2)
    assert set(world.group.image.members) == {"b"}, "the revocation goes on where it was"
    world.advance(SESSION)
    assert world.group.is_empty


def test_an_unloaded_group_has_no_timers() -> None:
    """Another node coordinates the group now."""
    world = World(orders=2)
    world.join("a", "orders")
    world.join("b", "orders")
    world.beat("a", 1)
    world.group.unloaded()
    assert len(world.timers) == 0


def test_records_that_were_never_written_are_made_again() -> None:
    """The log rejected a batch; the next heartbeat makes the same change again."""
    world = World(orders=1)
    world.join("a", "orders")
    world.topics.grow("orders", 2)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    lost = world.group.heartbeat(request, Caller("c", "/127.0.0.1", 1, frozenset), world.instant)
    assert lost.records
    assert world.group.image.epoch == 1, "only replaying changes the group"
    assert world.assigned(world.beat("a", 1)) == {"orders": {0, 1}}


def test_a_leave_that_was_never_written_leaves_the_session_running() -> None:
    """The log rejected the batch and the client is gone, so its session must still expire."""
    world = World(orders=1)
    world.join("a", "orders")
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1)
    lost = world.group.heartbeat(request, Caller("c", "/127.0.0.1", 1, frozenset), world.instant)
    assert lost.on_written is not None
    lost.on_written(KafkaStorage())
    world.advance(SESSION + 1)
    assert world.group.is_empty


def test_deleting_needs_an_empty_group_and_leaves_nothing() -> None:
    """The tombstones cover every record that the group ever wrote."""
    world = World(orders=2)
    world.join("a", "orders", regex="o.*")
    with pytest.raises(GroupNotEmpty):
        world.group.validate_delete()
    world.leave("a")
    world.group.validate_delete()
    world.write(world.group.tombstones())
    assert world.group.is_gone
    last = dict(world.log)
    assert set(last.values()) == {None}
    assert type(world.written[-1].key) is ConsumerGroupMetadataKey


def test_what_brokers_before_4_1_wrote_is_removed() -> None:
    """In a directory of Kafka 4.0 a hash replaces the records of partition metadata."""
    world = World(orders=1)
    world.join("a", "orders")
    key = ConsumerGroupPartitionMetadataKey(group_id="g")
    world.write([CoordinatorRecord(key, ConsumerGroupPartitionMetadataValue())])
    world.topics.create("other", 1)
    world.beat("a", 1)
    assert world.written == [CoordinatorRecord(key, None)]
    assert not world.group.image.has_partition_metadata


def test_a_state_of_a_newer_version_makes_the_member_join_again() -> None:
    """The log was written by a newer broker with more states."""
    world = World(orders=1)
    world.join("a", "orders")
    world.write(
        [
            CoordinatorRecord(
                ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
                ConsumerGroupCurrentMemberAssignmentValue(
                    member_epoch=1, previous_member_epoch=0, state=9
                ),
            )
        ]
    )
    with pytest.raises(FencedMemberEpoch, match="unknown state"):
        world.beat("a", 1)
    assert world.assigned(world.join("a", "orders")) == {"orders": {0}}


# Descriptions


def test_the_description_has_current_and_target_assignments() -> None:
    """This is `kafka-consumer-groups --describe` during a rebalance."""
    world = World(orders=2)
    world.join("a", "orders", instance="i")
    world.join("b", "orders")
    described = world.group.describe()
    assert (described.group_id, described.group_state) == ("g", "Reconciling")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert described.assignor_name == "uniform"
    first, second = described.members
    assert (first.member_id, first.instance_id, first.member_epoch) == ("a", "i", 1)
    assert (first.client_id, first.client_host, first.member_type) == ("c", "/127.0.0.1", 1)
    assert first.subscribed_topic_names == ["orders"]
    (shown,) = first.assignment.topic_partitions
    assert (shown.topic_name, shown.partitions) == ("orders", [0, 1])
    assert isinstance(shown.topic_id, uuid.UUID)
    assert len(first.target_assignment.topic_partitions[0].partitions) == 1
    assert second.assignment.topic_partitions == []


def test_a_deleted_topic_is_not_described() -> None:
    """It has no name any more."""
    world = World(orders=1)
    world.join("a", "orders")
    world.topics.delete("orders")
    assert world.group.describe().members[0].assignment.topic_partitions == []


def test_the_group_assigns_between_a_leave_and_the_next_heartbeat() -> None:
    """The group epoch has increased, and the target is not computed yet."""
    world = World(orders=1)
    world.join("a", "orders")
    world.join("b", "orders")
    world.leave("a")
    assert world.group.state_name == "Assigning"


def test_a_topic_seen_by_a_heartbeat_that_was_not_written_is_seen_by_the_next_one() -> None:
    """Regression: after a failed write, only the next change of a topic updated an expression."""
    world = World(a1=2)
    world.join("m", regex="a.*")
    world.join("n", regex="a.*")
    world.beat("m", 1, {"a1": [0]})
    epoch = world.beat("m", world.group.image.epoch, {"a1": [0]}).member_epoch
    world.topics.create("a2", 1)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    outcome = world.group.heartbeat(request, Caller("c", "/127.0.0.1", 1, frozenset), world.instant)
    assert outcome.records
    outcome.on_written(KafkaStorage("disk full"))
    world.leave("n")  # has the group epoch that was not written
    assert world.assigned(world.beat("m", epoch)) == {"a1": {0, 1}, "a2": {0}}
