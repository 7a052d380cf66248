"""Committed offsets: commit, fetch, delete, expiry, transactions."""

from __future__ import annotations

import pytest

from aiokq.broker.coordinator.group.committed_offsets import (
    CommittedOffset,
    OffsetStore,
    offset_record,
)
from aiokq.core.types import TopicPartition
from aiokq.wire.fields import ZERO_UUID
from tests.unit.broker.coordinator.group.shard_harness import DISK_FULL, ShardWorld

WEEK = 7 * 24 * 3600


def test_offsets_are_there_after_a_restart():
    """A restarted shard replays them from the log."""
    world = ShardWorld()
    world.commit({("t", 0): 5, ("t", 1): 6, ("u", 0): 7}, metadata="where")
    world.commit({("t", 0): 8})
    world.restart()
    assert world.committed() == {("t", 0): 8, ("t", 1): 6, ("u", 0): 7}
    assert world.fetch(("t", 1), ("t", 3), ("u", 0)) == [
        (6, "where", 0),
        (-1, "", 0),
        (7, "where", 0),
    ]


def test_an_unknown_group_has_no_offsets_and_no_error():
    """A consumer then starts according to its reset policy."""
    world = ShardWorld()
    assert world.fetch(("t", 0)) == [(-1, "", 0)]
    assert world.committed() == {}
    assert world.shard.groups == {}


def test_metadata_that_is_too_long_refuses_its_offset_alone():
    """Only this partition gets OFFSET_METADATA_TOO_LARGE; the others are committed."""
    world = ShardWorld(offset_metadata_max_bytes=3)
    assert world.commit({("t", 0): 1}, metadata="four").codes == [12]
    assert world.commit({("t", 0): 1}, metadata="abc").codes == [0]


def test_a_commit_that_cannot_be_stored_does_not_count():
    """The client gets an error and commits again."""
    world = ShardWorld()
    world.commit({("t", 0): 1})
    world.refuse_writes = DISK_FULL
    assert world.commit({("t", 0): 2}).code == 16
    assert world.committed() == {("t", 0): 1}


def test_a_commit_makes_a_simple_group():
    """It is empty and has no protocol type, like the group of a self-assigning consumer."""
    world = ShardWorld()
    world.commit({("t", 0): 1})
    [listed] = world.shard.list_groups([], [])
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g",
        "",
        "Empty",
        "classic",
    )


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
def test_a_member_of_a_group_that_is_gone_may_not_commit(version, code):
    """Old clients know only ILLEGAL_GENERATION."""
    world = ShardWorld()
    answer = world.commit({("t", 0): 1}, member_id="m", generation=3, version=version)
    assert answer.code == code


def test_a_commit_of_an_old_generation_changes_nothing():
    """The partition has another owner, whose commit it would overwrite."""
    world = ShardWorld()
    [member] = world.stable()
    world.commit({("t", 0): 5}, member_id=member.member_id, generation=1)
    assert world.commit({("t", 0): 3}, member_id=member.member_id, generation=0).code == 22
    assert world.committed() == {("t", 0): 5}


def test_a_topic_of_the_same_name_begins_without_offsets():
    """The committed offsets belong to the deleted topic."""
    world = ShardWorld()
    world.commit({("t", 0): 5})
    world.topics.delete("t")
    assert world.fetch(("t", 0)) == [(5, "", 0)]
    world.topics.create("t", 1)
    assert world.fetch(("t", 0)) == [(-1, "", 0)]
    assert world.committed() == {}


def test_deleted_partitions_take_their_offsets_along():
    """They are deleted from every group and from the log."""
    world = ShardWorld()
    for group in ("g", "h"):
        world.commit({("t", 0): 5, ("t", 3): 6, ("u", 0): 7}, group=group)
    gone = [TopicPartition("t", partition) for partition in range(4)]
    world.apply(world.shard.partitions_deleted(gone))
    for _ in range(2):
        assert world.committed("g") == world.committed("h") == {("u", 0): 7}
        world.restart()


# Deletion by request


def test_offsets_are_deleted_where_nobody_is_subscribed():
    """GROUP_SUBSCRIBED_TO_TOPIC if a member is subscribed; a missing offset is no error."""
    world = ShardWorld()
    [member] = world.stable(topics=["t"])
    for topic in ("t", "u"):
        world.commit({(topic, 0): 5}, member_id=member.member_id, generation=1)
    assert world.delete_offsets(("t", 0), ("u", 0), ("u", 1)).codes == [86, 0, 0]
    assert world.committed() == {("t", 0): 5}


def test_offsets_of_members_that_are_no_consumers_stay():
    """NON_EMPTY_GROUP, because the broker cannot know their subscriptions."""
    world = ShardWorld()
    world.stable(protocol_type="connect", protocols={"sessioned": b"?"})
    assert world.delete_offsets(("t", 0)).code == 68
    assert world.delete_offsets(("t", 0), group="none").code == 69


def test_a_deleted_group_takes_its_offsets_along():
    """A later coordinator finds nothing of it."""
    world = ShardWorld()
    [member] = world.stable()
    world.commit({("t", 0): 5}, member_id=member.member_id, generation=1)
    assert world.delete_group().code == 68
    world.leave((member.member_id, None))
    assert world.delete_group().code == 0
    for _ in range(2):
        assert world.shard.groups == {}
        assert world.committed() == {}
        world.restart()
    assert world.delete_group().code == 69


# Expiry


def test_offsets_of_an_empty_group_expire_a_week_after_its_last_member_left():
    """The age of the commits does not matter; the group is deleted with its last offset."""
    world = ShardWorld()
    world.restart()
    [member] = world.stable()
    world.commit({("t", 0): 5}, member_id=member.member_id, generation=1)
    for _ in range(3 * 7 * 24 * 360 // 9):
        world.pass_time(90)
        world.heartbeat(member.member_id, 1)
        if world.state != "Stable":
            break
    world.leave((member.member_id, None))
    world.restart()
    world.pass_time(WEEK - 3600)
    assert world.committed() == {("t", 0): 5}
    world.pass_time(2 * 3600)
    assert world.committed() == {}
    assert world.shard.groups == {}
    world.restart()
    assert world.shard.groups == {}


def test_offsets_of_a_simple_group_expire_a_week_after_they_were_committed():
    """There is no membership that would keep them."""
    world = ShardWorld()
    world.restart()
    world.commit({("t", 0): 1})
    world.pass_time(WEEK // 2)
    world.commit({("t", 1): 1})
    world.pass_time(WEEK // 2 + 3600)
    assert world.committed() == {("t", 1): 1}
    world.pass_time(WEEK // 2)
    assert world.shard.groups == {}


def test_offsets_of_topics_that_no_member_wants_expire():
    """Offsets of subscribed topics stay as long as there are members (KIP-496)."""
    world = ShardWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    world.restart()
    [member] = world.stable(topics=["t"], session_ms=1_000_000)
    for topic in ("t", "u"):
        world.commit({(topic, 0): 5}, member_id=member.member_id, generation=1)
    world.pass_time(62)
    assert world.committed() == {("t", 0): 5}


def test_a_retention_that_the_client_named_decides():
    """OffsetCommit versions 2 to 4 have a retention time."""
    world = ShardWorld(offsets_retention_check_interval_ms=1000)
    world.restart()
    world.commit({("t", 0): 1}, retention_ms=10_000, version=2)
    world.pass_time(9)
    assert world.committed() == {("t", 0): 1}
    world.pass_time(2)
    assert world.committed() == {}


def test_an_empty_group_without_offsets_goes_with_the_next_look():
    """The next expiry check deletes it."""
    world = ShardWorld(offsets_retention_check_interval_ms=1000)
    world.restart()
    [member] = world.stable()
    world.pass_time(2)
    assert world.state == "Stable"
    world.leave((member.member_id, None))
    world.pass_time(2)
    assert world.shard.groups == {}


def test_expiry_looks_at_a_few_groups_at_a_time():
    """Ten thousand groups must not block the loop, and each is checked."""
    world = ShardWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=100_000)
    world.restart()
    for number in range(1200):
        world.commit({("t", 0): 1}, group=f"g{number}")
    world.now += 200
    turns = 0
    while (due := world.timers.take_due(world.now)) is not None:
        outcome = due[1](world.instant)
        assert len(outcome.records) <= 1100
        world.apply(outcome)
        turns += 1
    assert turns >= 3
    assert world.shard.groups == {}


def test_an_expiry_that_cannot_be_written_is_tried_again():
    """An offset is not removed from memory while the log still has it."""
    world = ShardWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=100_000)
    world.restart()
    world.commit({("t", 0): 1})
    world.now += 200
    _, action = world.timers.take_due(world.now)
    world.refuse_writes = DISK_FULL
    with pytest.raises(type(DISK_FULL)):
        world.apply(action(world.instant))
    assert world.committed() == {("t", 0): 1}
    world.refuse_writes = None
    world.apply(action(world.instant))
    assert world.committed() == {}


# Transactions


def committed(store):
    return {topic: {p: one.offset for p, one in ps.items()} for topic, ps in store.topics_of("g")}


def put(store, offset, at, *, producer_id=-1, partition=0):
    value = CommittedOffset(offset, -1, "", 1, -1, ZERO_UUID, -1)
    key, value = offset_record("g", "t", partition, value)
    store.replay(key, value, offset=at, producer_id=producer_id)


def test_offsets_of_a_transaction_count_when_it_commits():
    """Until then the partition's offset is unstable (KIP-447)."""
    store = OffsetStore()
    put(store, 1, 0)
    put(store, 5, 1, producer_id=7)
    assert committed(store) == {"t": {0: 1}}
    assert store.is_unstable("g", "t", 0)
    store.end_transaction(7, committed=True)
    assert committed(store) == {"t": {0: 5}}
    assert not store.is_unstable("g", "t", 0)


def test_offsets_of_an_aborted_transaction_never_count():
    """The transaction's records were not written either."""
    store = OffsetStore()
    put(store, 5, 1, producer_id=7)
    assert store.has_offsets("g")
    store.end_transaction(7, committed=False)
    assert not store.has_offsets("g")


def test_a_commit_beside_a_transaction_and_after_it_stays():
    """The order of the records decides, not the order of the markers."""
    store = OffsetStore()
    put(store, 5, 1, producer_id=7)
    put(store, 9, 2)
    store.end_transaction(7, committed=True)
    assert committed(store) == {"t": {0: 9}}


def test_a_deletion_ends_what_a_transaction_would_commit():
    """The marker must not restore a deleted offset."""
    store = OffsetStore()
    put(store, 5, 1, producer_id=7)
    [tombstone] = store.tombstones("g")
    store.replay(tombstone.key, None, offset=2)
    store.end_transaction(7, committed=True)
    assert not store.has_offsets("g")


def test_an_unstable_offset_is_refused_where_stability_is_asked_for():
    """UNSTABLE_OFFSET_COMMIT makes the consumer retry."""
    world = ShardWorld()
    world.commit({("t", 0): 1})
    put(world.shard.offsets, 5, 1, producer_id=7)
    assert world.fetch(("t", 0)) == [(1, "", 0)]
    assert world.fetch(("t", 0), require_stable=True) == [(-1, "", 88)]
    assert world.committed(require_stable=True) == {("t", 0): 88}
