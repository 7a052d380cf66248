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
    """That is what they are for."""
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
    """A consumer begins by its reset policy then."""
    world = ShardWorld()
    assert world.fetch(("t", 0)) == [(-1, "", 0)]
    assert world.committed() == {}
    assert world.shard.groups == {}


def test_metadata_that_is_too_long_refuses_its_offset_alone():
    """12, and the others are committed."""
    world = ShardWorld(offset_metadata_max_bytes=3)
    assert world.commit({("t", 0): 1}, metadata="four").codes == [12]
    assert world.commit({("t", 0): 1}, metadata="abc").codes == [0]


def test_a_commit_that_cannot_be_stored_does_not_count():
    """The client is told, and commits again."""
    world = ShardWorld()
    world.commit({("t", 0): 1})
    world.refuse_writes = DISK_FULL
    assert world.commit({("t", 0): 2}).code == 16
    assert world.committed() == {("t", 0): 1}


def test_a_commit_makes_a_simple_group():
    """Empty, without protocol type: what a consumer that assigns itself is listed as."""
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
    """Old clients know 22 only."""
    world = ShardWorld()
    answer = world.commit({("t", 0): 1}, member_id="m", generation=3, version=version)
    assert answer.code == code


def test_a_commit_of_an_old_generation_changes_nothing():
    """The partition has another owner, whose offset it would undo."""
    world = ShardWorld()
    [member] = world.stable()
    world.commit({("t", 0): 5}, member_id=member.member_id, generation=1)
    assert world.commit({("t", 0): 3}, member_id=member.member_id, generation=0).code == 22
    assert world.committed() == {("t", 0): 5}


def test_a_topic_of_the_same_name_begins_without_offsets():
    """The topic was deleted and made anew: its offsets are another topic's."""
    world = ShardWorld()
    world.commit({("t", 0): 5})
    world.topics.delete("t")
    assert world.fetch(("t", 0)) == [(5, "", 0)]
    world.topics.create("t", 1)
    assert world.fetch(("t", 0)) == [(-1, "", 0)]
    assert world.committed() == {}


def test_deleted_partitions_take_their_offsets_along():
    """Of every group, and for good."""
    world = ShardWorld()
    for group in ("g", "h"):
        world.commit({("t", 0): 5, ("t", 3): 6, ("u", 0): 7}, group=group)
    gone = [TopicPartition("t", partition) for partition in range(4)]
    world.apply(world.shard.partitions_deleted(gone))
    for _ in range(2):
        assert world.committed("g") == world.committed("h") == {("u", 0): 7}
        world.restart()


# deletion by request


def test_offsets_are_deleted_where_nobody_is_subscribed():
    """86 where a member is; what was never committed is no error."""
    world = ShardWorld()
    [member] = world.stable(topics=["t"])
    for topic in ("t", "u"):
        world.commit({(topic, 0): 5}, member_id=member.member_id, generation=1)
    assert world.delete_offsets(("t", 0), ("u", 0), ("u", 1)).codes == [86, 0, 0]
    assert world.committed() == {("t", 0): 5}


def test_offsets_of_members_that_are_no_consumers_stay():
    """The broker cannot know what they are subscribed to (68)."""
    world = ShardWorld()
    world.stable(protocol_type="connect", protocols={"sessioned": b"?"})
    assert world.delete_offsets(("t", 0)).code == 68
    assert world.delete_offsets(("t", 0), group="none").code == 69


def test_a_deleted_group_takes_its_offsets_along():
    """And nothing of it comes back with the next coordinator."""
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


# expiry


def test_offsets_of_an_empty_group_expire_a_week_after_its_last_member_left():
    """However old the commits are; then the group goes too."""
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
    """Nobody's membership keeps them."""
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
    """Those of the others stay as long as there are members (KIP-496)."""
    world = ShardWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    world.restart()
    [member] = world.stable(topics=["t"], session_ms=1_000_000)
    for topic in ("t", "u"):
        world.commit({(topic, 0): 5}, member_id=member.member_id, generation=1)
    world.pass_time(62)
    assert world.committed() == {("t", 0): 5}


def test_a_retention_that_the_client_named_decides():
    """OffsetCommit 2 to 4 have it."""
    world = ShardWorld(offsets_retention_check_interval_ms=1000)
    world.restart()
    world.commit({("t", 0): 1}, retention_ms=10_000, version=2)
    world.pass_time(9)
    assert world.committed() == {("t", 0): 1}
    world.pass_time(2)
    assert world.committed() == {}


def test_an_empty_group_without_offsets_goes_with_the_next_look():
    """Nothing of it is worth keeping."""
    world = ShardWorld(offsets_retention_check_interval_ms=1000)
    world.restart()
    [member] = world.stable()
    world.pass_time(2)
    assert world.state == "Stable"
    world.leave((member.member_id, None))
    world.pass_time(2)
    assert world.shard.groups == {}


def test_expiry_looks_at_a_few_groups_at_a_time():
    """Ten thousand groups must not hold up the loop; all are looked at."""
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
    """Nothing is forgotten that the log still has."""
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


# transactions


def committed(store):
    return {topic: {p: one.offset for p, one in ps.items()} for topic, ps in store.topics_of("g")}


def put(store, offset, at, *, producer_id=-1, partition=0):
    value = CommittedOffset(offset, -1, "", 1, -1, ZERO_UUID, -1)
    key, value = offset_record("g", "t", partition, value)
    store.replay(key, value, offset=at, producer_id=producer_id)


def test_offsets_of_a_transaction_count_when_it_commits():
    """And not before: until then the partition is unstable (KIP-447)."""
    store = OffsetStore()
    put(store, 1, 0)
    put(store, 5, 1, producer_id=7)
    assert committed(store) == {"t": {0: 1}}
    assert store.is_unstable("g", "t", 0)
    store.end_transaction(7, committed=True)
    assert committed(store) == {"t": {0: 5}}
    assert not store.is_unstable("g", "t", 0)


def test_offsets_of_an_aborted_transaction_never_count():
    """The records they belong to were not written either."""
    store = OffsetStore()
    put(store, 5, 1, producer_id=7)
    assert store.has_offsets("g")
    store.end_transaction(7, committed=False)
    assert not store.has_offsets("g")


def test_a_commit_beside_a_transaction_and_after_it_stays():
    """The later record in the log decides, not which marker comes last."""
    store = OffsetStore()
    put(store, 5, 1, producer_id=7)
    put(store, 9, 2)
    store.end_transaction(7, committed=True)
    assert committed(store) == {"t": {0: 9}}


def test_a_deletion_ends_what_a_transaction_would_commit():
    """An offset that was deleted must not come back by a marker."""
    store = OffsetStore()
    put(store, 5, 1, producer_id=7)
    [tombstone] = store.tombstones("g")
    store.replay(tombstone.key, None, offset=2)
    store.end_transaction(7, committed=True)
    assert not store.has_offsets("g")


def test_an_unstable_offset_is_refused_where_stability_is_asked_for():
    """88: the consumer asks again."""
    world = ShardWorld()
    world.commit({("t", 0): 1})
    put(world.shard.offsets, 5, 1, producer_id=7)
    assert world.fetch(("t", 0)) == [(1, "", 0)]
    assert world.fetch(("t", 0), require_stable=True) == [(-1, "", 88)]
    assert world.committed(require_stable=True) == {("t", 0): 88}
