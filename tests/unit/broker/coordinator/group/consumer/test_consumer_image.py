"""Replay of records in the orders that a compacted log may have; hashes and votes."""

from __future__ import annotations

import uuid

from aiokq.broker.coordinator.group.consumer.image import GroupImage
from aiokq.broker.coordinator.group.consumer.member import ConsumerMember, MemberState
from aiokq.broker.coordinator.group.consumer.records import (
    current_assignment_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    target_record,
)
from aiokq.broker.coordinator.group.consumer.subscribed_topics import metadata_hash
from aiokq.broker.coordinator.group.consumer.target_assignment import preferred_assignor
from aiokq.broker.coordinator.group.topic_view import ViewedTopic
from aiokq.wire.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from tests.unit.broker.coordinator.group.consumer.consumer_harness import Topics

T1 = uuid.UUID(int=1)


def owner(member_id: str, epoch: int, *numbers: int) -> ConsumerMember:
    return ConsumerMember(member_id, member_epoch=epoch, assigned={T1: frozenset(numbers)})


def test_a_partition_has_the_owner_that_the_log_named_last() -> None:
    """Compaction may have dropped the record with which the first owner released it."""
    image = GroupImage("g")
    for member in (owner("a", 5, 0, 1), owner("b", 7, 1)):
        image.replay(member_record("g", member))
        image.replay(current_assignment_record("g", member))
    assert image.owner_of(T1, 1) == "b"
    image.replay(current_assignment_record("g", owner("a", 7, 0)))
    assert image.owner_of(T1, 0) == "a"
    assert image.owner_of(T1, 1) == "b", "what a gives up late does not touch b's"


def test_tombstones_free_what_the_member_had() -> None:
    """They also free its instance id and remove its target."""
    image = GroupImage("g")
    member = ConsumerMember(
        "a",
        member_epoch=1,
        instance_id="i",
        assigned={T1: frozenset({0})},
        pending_revocation={T1: frozenset({1})},
        topic_names=frozenset({"orders"}),
    )
    image.replay(member_record("g", member))
    image.replay(target_record("g", "a", {T1: frozenset({0})}))
    image.replay(current_assignment_record("g", member))
    assert image.static_member("i") == member
    assert image.owner_of(T1, 1) == "a"
    assert image.topic_names == {"orders"}
    first, *rest = member_tombstones("g", "a")
    image.replay(first)
    assert image.members["a"].member_epoch == -1
    assert image.owner_of(T1, 0) is None
    for record in rest:
        image.replay(record)
    assert (image.members, image.targets, image.static_members) == ({}, {}, {})
    assert image.topic_names == frozenset()


def test_tombstones_of_nothing_are_ignored() -> None:
    """Compaction keeps tombstones longer than what they delete."""
    image = GroupImage("g")
    for record in group_tombstones("g", ["a"], ["o.*"]):
        image.replay(record)
    assert image.is_gone
    assert image.members == {}


def test_an_instance_id_stays_with_who_took_it_over() -> None:
    """The tombstone of the predecessor comes later than the new member's record."""
    image = GroupImage("g")
    for member_id in ("a", "a2"):
        image.replay(member_record("g", ConsumerMember(member_id, instance_id="i")))
    for record in member_tombstones("g", "a"):
        image.replay(record)
    taken = image.static_member("i")
    assert taken is not None
    assert taken.member_id == "a2"


def test_a_member_record_without_an_expression_may_say_null() -> None:
    """Kafka 4.0 wrote null; later releases write an empty string."""
    image = GroupImage("g")
    record = member_record("g", ConsumerMember("a"))
    assert isinstance(record.value, ConsumerGroupMemberMetadataValue)
    record.value.subscribed_topic_regex = None
    image.replay(record)
    assert image.members["a"].topic_regex == ""


def test_an_unknown_member_state_is_kept_as_such() -> None:
    """The state decides the response to the member's next heartbeat."""
    image = GroupImage("g")
    record = current_assignment_record("g", ConsumerMember("a", member_epoch=3))
    assert isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue)
    record.value.state = 99
    image.replay(record)
    assert image.members["a"].state is MemberState.UNKNOWN


def test_the_groups_epochs_are_those_of_the_log() -> None:
    """Earlier values are overwritten."""
    image = GroupImage("g")
    image.replay(epoch_record("g", 4, -7))
    assert (image.epoch, image.metadata_hash) == (4, -7)


def test_the_hash_follows_ids_partitions_and_racks_of_existing_topics() -> None:
    """The hash changes with anything that may change the assignment, and with nothing else."""
    topics = Topics(orders=1, audits=1)
    seen = [metadata_hash(["orders"], topics)]
    assert metadata_hash(["missing", "orders"], topics) == seen[0]
    assert metadata_hash([], topics) == metadata_hash(["missing"], topics) == 0
    topics.create("other", 1)
    assert metadata_hash(["orders"], topics) == seen[0]
    topics.grow("orders", 2)
    seen.append(metadata_hash(["orders"], topics))
    orders = topics.topic("orders")
    assert isinstance(orders, ViewedTopic)
    topics._topics["orders"] = orders._replace(racks={0: frozenset({"r1"})})
    seen.append(metadata_hash(["orders"], topics))
    topics.delete("orders")
    topics.create("orders", 2)
    seen.append(metadata_hash(["orders"], topics))
    seen.append(metadata_hash(["orders", "audits"], topics))
    assert len(set(seen)) == len(seen)
    assert all(-(2**63) <= value < 2**63 for value in seen)
    assert metadata_hash(["audits", "orders"], topics) == seen[-1]


def test_the_assignor_with_most_votes_wins_and_the_first_one_ties() -> None:
    """Members without a preference do not vote; unknown assignors are no candidates."""

    def chosen(*wishes: str | None) -> str:
        members = [ConsumerMember(str(n), server_assignor=wish) for n, wish in enumerate(wishes)]
        return preferred_assignor(members, {"uniform": 1, "range": 2})

    assert chosen() == "uniform"
    assert chosen(None, None) == "uniform"
    assert chosen(None, None, "range") == "range"
    assert chosen("range", "uniform") == "uniform"
    assert chosen("theirs", "theirs", "range") == "range"
