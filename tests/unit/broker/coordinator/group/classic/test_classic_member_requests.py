"""SyncGroup, Heartbeat, LeaveGroup, and the sessions of members."""

from __future__ import annotations

import pytest

from tests.unit.broker.coordinator.group.shard_harness import DISK_FULL, ShardWorld


def test_nobody_has_an_assignment_before_the_leader_gives_it():
    """Followers that send SyncGroup earlier wait."""
    world = ShardWorld()
    first = world.enter()
    second = world.enter(client="b")
    first = world.join(first.member_id)
    follower = world.sync(second.member_id, 2)
    assert follower.waits
    leader = world.sync(first.member_id, 2, {first.member_id: b"one", second.member_id: b"two"})
    assert (leader.assignment, follower.assignment) == (b"one", b"two")
    assert (follower.protocol_type, follower.protocol_name) == ("consumer", "range")


def test_a_member_the_leader_forgets_has_nothing():
    """It gets an empty assignment instead of an error."""
    world = ShardWorld()
    joined = world.enter()
    assert world.sync(joined.member_id, 1, {"somebody else": b"x"}).assignment == b""
    assert world.state == "Stable"


def test_the_assignment_is_stored_before_it_is_given():
    """Otherwise a failover could assign the same partitions again."""
    world = ShardWorld()
    first = world.enter()
    second = world.enter(client="b")
    first = world.join(first.member_id)
    follower = world.sync(second.member_id, 2)
    world.refuse_writes = DISK_FULL
    leader = world.sync(first.member_id, 2, {first.member_id: b"one"})
    assert (leader.code, follower.code) == (16, 16)
    assert world.state == "PreparingRebalance"
    world.refuse_writes = None
    again = [world.join(member.member_id, client=c) for member, c in ((first, "c"), (second, "b"))]
    assert [join.generation_id for join in again] == [3, 3]
    assert again[1].waits is False


def test_a_member_that_never_asks_for_its_assignment_is_dropped():
    """It has joined and died; the others do not wait for its session to expire."""
    world = ShardWorld()
    first = world.enter(rebalance_ms=5_000, session_ms=60_000)
    second = world.enter(client="b", rebalance_ms=5_000, session_ms=60_000)
    first = world.join(first.member_id, rebalance_ms=5_000, session_ms=60_000)
    assert world.sync(first.member_id, 2, {first.member_id: b"x"}).code == 0
    assert world.state == "Stable"
    world.pass_time(5.1)
    assert world.state == "PreparingRebalance"
    assert set(world.group().roster.members) == {first.member_id}
    assert world.heartbeat(second.member_id, 2).code == 25
    assert world.heartbeat(first.member_id, 2).code == 27


def test_a_new_rebalance_answers_the_syncs_that_wait():
    """The members get REBALANCE_IN_PROGRESS."""
    world = ShardWorld()
    first = world.enter()
    second = world.enter(client="b")
    first = world.join(first.member_id)
    waiting = world.sync(second.member_id, 2)
    world.enter(client="d")
    assert waiting.code == 27


def test_a_member_that_is_removed_while_it_waits_is_told():
    """Otherwise its client would wait until its request times out."""
    world = ShardWorld()
    first = world.enter()
    second = world.join(client="b", instance="i")
    first = world.join(first.member_id)
    waiting = world.sync(second.member_id, 2, instance="i")
    world.leave(("", "i"))
    assert waiting.code == 25


def test_a_second_sync_of_a_waiting_member_takes_the_place_of_the_first():
    """Its connection broke, and it retries on another."""
    world = ShardWorld()
    first = world.enter()
    second = world.enter(client="b")
    first = world.join(first.member_id)
    syncs = [world.sync(second.member_id, 2), world.sync(second.member_id, 2)]
    assert [sync.code for sync in syncs] == [27, "waits"]
    world.sync(first.member_id, 2, {second.member_id: b"two"})
    assert syncs[1].assignment == b"two"


def test_silence_ends_a_session():
    """The partitions of a dead member go to the others after session.timeout.ms."""
    world = ShardWorld()
    members = world.stable(2, session_ms=10_000)
    for _ in range(4):
        world.pass_time(5)
        world.heartbeat(members[0].member_id, members[0].generation_id)
    assert world.state == "PreparingRebalance"
    assert set(world.group().roster.members) == {members[0].member_id}


@pytest.mark.parametrize("sign", ["heartbeat", "commit"])
def test_a_member_that_is_heard_from_stays(sign):
    """A commit counts as a heartbeat, as in Kafka."""
    world = ShardWorld()
    [member] = world.stable(session_ms=10_000)
    for _ in range(10):
        world.pass_time(9)
        if sign == "heartbeat":
            answer = world.heartbeat(member.member_id, 1)
        else:
            answer = world.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        assert answer.code == 0
    assert world.state == "Stable"


def test_a_member_that_waits_for_an_answer_of_ours_need_not_heartbeat():
    """A rebalance may last longer than a session, and keeps the member's connection busy."""
    world = ShardWorld()
    old = world.stable(2, session_ms=10_000, rebalance_ms=100_000)
    again = world.join(old[0].member_id, session_ms=10_000, rebalance_ms=100_000)
    for _ in range(5):
        world.pass_time(9)
        world.heartbeat(old[1].member_id, old[1].generation_id)
    assert again.waits
    world.join(old[1].member_id, client="c1", session_ms=10_000, rebalance_ms=100_000)
    assert again.code == 0


def test_a_session_begins_anew_when_its_wait_ends():
    """A member that dies after its response is noticed."""
    world = ShardWorld()
    world.enter(session_ms=10_000, rebalance_ms=60_000)
    world.pass_time(10.1)
    assert world.state == "Empty"


def test_the_last_member_leaves_an_empty_group_in_the_log():
    """The generation continues to count when a new member joins."""
    world = ShardWorld()
    [member] = world.stable()
    left = world.leave((member.member_id, None))
    assert [one.error_code for one in left.members] == [0]
    assert world.state == "Empty"
    value = world.records()[-1].value
    assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)
    assert value.current_state_timestamp == world.instant.timestamp_ms
    world.restart()
    assert world.enter().generation_id == 3


def test_a_leave_of_many_answers_for_each():
    """By member id, by instance id only as admin clients do, and for an unknown member."""
    world = ShardWorld()
    [member] = world.stable()
    static = world.join(instance="i", client="s")
    pending = world.join(client="p")
    assert static.waits
    answer = world.leave(
        (member.member_id, None), ("", "i"), (pending.member_id, None), ("x", None), ("", "y")
    )
    assert [one.error_code for one in answer.members] == [0, 0, 0, 25, 25]
    assert static.code == 25
    assert world.state == "Empty"


def test_a_leave_lets_a_rebalance_complete():
    """The missing member will not join."""
    world = ShardWorld()
    old = world.stable(2)
    again = world.join(old[0].member_id)
    assert again.waits
    world.leave((old[1].member_id, None))
    assert again.code == 0


def test_an_unloaded_group_sends_everybody_away():
    """NOT_COORDINATOR sends the members to the new coordinator."""
    world = ShardWorld()
    old = world.stable(2)
    joining = world.join(old[0].member_id)
    world.shard.unloaded()
    assert joining.code == 16
    assert len(world.timers) == 0
    world = ShardWorld()
    first = world.enter()
    second = world.enter(client="b")
    world.join(first.member_id)
    syncing = world.sync(second.member_id, 2)
    world.shard.unloaded()
    assert syncing.code == 16


def test_members_of_the_log_have_a_session_to_come_back_in():
    """A new coordinator has seen no heartbeats yet, and removes no member for that."""
    world = ShardWorld()
    members = world.stable(2, session_ms=10_000)
    world.restart()
    world.pass_time(9.9)
    assert world.heartbeat(members[0].member_id, members[0].generation_id).code == 0
    world.pass_time(0.2)
    assert world.state == "PreparingRebalance"
    assert list(world.group().roster.members) == [members[0].member_id]


def test_protocol_type_is_not_asked_of_old_clients():
    """Requests below version 5 have no protocol type."""
    world = ShardWorld()
    joined = world.enter()
    assert world.sync(joined.member_id, 1, {}, protocol_type=None).code == 0
