"""JoinGroup: member ids, pending members, duration of rebalances, static members, group size."""

from __future__ import annotations

import pytest

from tests.unit.broker.coordinator.group.shard_harness import DISK_FULL, ShardWorld


def test_a_new_member_is_told_its_id_before_it_is_one():
    """A client that gives up and retries would otherwise leave a member behind each time."""
    world = ShardWorld()
    first = world.join(client="billing")
    assert first.code == 79
    assert first.member_id.startswith("billing-")
    assert world.state == "Empty"
    assert list(world.group().roster.pending_joins) == [first.member_id]
    joined = world.join(first.member_id, client="billing")
    assert (joined.code, joined.generation_id, joined.leader) == (0, 1, first.member_id)
    assert joined.protocol_type == "consumer"
    assert [member.member_id for member in joined.members] == [first.member_id]


def test_an_old_client_is_let_in_at_once():
    """It does not know MEMBER_ID_REQUIRED."""
    world = ShardWorld()
    joined = world.join(version=3)
    assert joined.code == 0
    assert joined.member_id.startswith("c-")


def test_a_pending_member_that_does_not_come_is_forgotten():
    """Its session starts when it gets its id; a rebalance does not wait beyond that session."""
    world = ShardWorld()
    pending = world.join(session_ms=10_000)
    world.pass_time(9.9)
    assert world.group().roster.pending_joins
    world.pass_time(0.2)
    assert not world.group().roster.pending_joins
    assert world.join(pending.member_id).code == 25


def test_a_rebalance_waits_for_a_pending_member():
    """It joins within a round trip; a generation without it would be replaced at once."""
    world = ShardWorld()
    [old] = world.stable()
    pending = world.join(client="new")
    assert world.state == "Stable"
    again = world.join(old.member_id, client="c0")
    assert again.waits
    joined = world.join(pending.member_id, client="new")
    assert joined.code == again.code == 0
    assert joined.generation_id == again.generation_id == 2


def test_a_rebalance_goes_on_when_its_pending_member_leaves_or_is_silent():
    """A client that never joined may not hold up the members."""
    for go in (
        lambda world, pending: world.leave((pending.member_id, None)),
        lambda world, pending: world.pass_time(10.1),
    ):
        world = ShardWorld()
        [old] = world.stable(session_ms=30_000)
        pending = world.join(client="new", session_ms=10_000)
        again = world.join(old.member_id, client="c0", session_ms=30_000)
        assert again.waits
        go(world, pending)
        assert again.code == 0


def test_the_first_rebalance_waits_for_companions():
    """Each new member extends the wait, up to the rebalance timeout in total."""
    world = ShardWorld(group_initial_rebalance_delay_ms=3000)
    joins = [world.enter(client="a", rebalance_ms=10_000)]
    world.pass_time(2.9)
    joins.append(world.enter(client="b", rebalance_ms=10_000))
    world.pass_time(2.9)
    assert [join.code for join in joins] == ["waits"] * 2
    joins.append(world.enter(client="c", rebalance_ms=10_000))
    world.pass_time(3.1)
    assert [join.code for join in joins] == ["waits"] * 3
    world.pass_time(1.0)
    assert [join.code for join in joins] == [0] * 3
    assert {join.generation_id for join in joins} == {1}
    assert len({join.leader for join in joins}) == 1


def test_the_first_rebalance_is_not_put_off_without_end():
    """A new member every second must not delay the group's start for ever."""
    world = ShardWorld(group_initial_rebalance_delay_ms=3000)
    first = world.enter(rebalance_ms=10_000)
    seconds = 0
    while first.waits:
        world.pass_time(1)
        seconds += 1
        world.enter(client=f"later{seconds}", rebalance_ms=10_000)
        assert seconds < 20
    assert seconds <= 10


def test_members_that_do_not_join_again_are_dropped():
    """The rebalance lasts at most as long as the largest rebalance timeout of its members."""
    world = ShardWorld()
    old = world.stable(2, session_ms=60_000, rebalance_ms=20_000)
    new = world.enter(client="new", session_ms=60_000, rebalance_ms=5_000)
    again = world.join(old[0].member_id, client="c0", session_ms=60_000, rebalance_ms=5_000)
    world.pass_time(19.9)
    assert new.waits
    assert again.waits
    world.pass_time(0.2)
    assert new.code == again.code == 0
    assert set(world.group().roster.members) == {old[0].member_id, new.member_id}
    assert world.heartbeat(old[1].member_id, old[1].generation_id).code == 25


def test_somebody_who_has_joined_leads_when_the_leader_has_not():
    """Otherwise nobody would assign partitions."""
    world = ShardWorld()
    leader, follower = world.stable(2, rebalance_ms=20_000, session_ms=60_000)
    again = world.join(follower.member_id, client="c1", topics=["u"], session_ms=60_000)
    assert again.waits
    world.pass_time(60)
    assert again.code == 0
    assert again.leader == follower.member_id != leader.member_id


def test_a_follower_that_repeats_itself_does_not_rebalance():
    """The response may have been lost, which is no reason for a rebalance."""
    world = ShardWorld()
    leader, follower = world.stable(2)
    again = world.join(follower.member_id, client="c1")
    assert (again.code, again.generation_id, again.members) == (0, leader.generation_id, [])
    assert world.state == "Stable"


@pytest.mark.parametrize("who", ["the leader", "a follower with another subscription"])
def test_a_join_of_a_stable_group_that_changes_something_rebalances(who):
    """A leader rejoins when topics have changed, which only the leader notices."""
    world = ShardWorld()
    leader, follower = world.stable(2)
    if who == "the leader":
        again = world.join(leader.member_id)
    else:
        again = world.join(follower.member_id, topics=["u"])
    assert again.waits
    assert world.state == "PreparingRebalance"


def test_a_member_that_repeats_its_join_gets_the_generation_that_begins():
    """The response was lost after the rebalance completed; the leader gets the members again."""
    world = ShardWorld()
    joined = world.enter()
    again = world.join(joined.member_id)
    assert again.code == 0
    assert again.generation_id == 1
    assert [member.member_id for member in again.members] == [joined.member_id]
    changed = world.join(joined.member_id, topics=["u"])
    assert changed.generation_id == 2


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first():
    """Its connection broke, and it joins on another: the wait of the first request must end."""
    world = ShardWorld()
    [old] = world.stable()
    first = world.enter(client="new")
    [new] = [m for m in world.group().roster.members if m != old.member_id]
    second = world.join(new, client="new")
    assert (first.code, second.code) == (27, "waits")
    world.join(old.member_id, client="c0")
    assert second.code == 0


def test_a_new_members_join_does_not_wait_for_ever():
    """If its client is gone nobody notices; a live client retries after UNKNOWN_MEMBER_ID."""
    world = ShardWorld()
    world.stable(rebalance_ms=1_000_000, session_ms=1_000_000)
    waiting = world.enter(client="new", rebalance_ms=1_000_000)
    world.pass_time(301)
    assert waiting.code == 25
    assert len(world.group().roster) == 1


def test_a_full_group_takes_nobody_in():
    """GROUP_MAX_SIZE_REACHED; during a rebalance the members that join last are removed."""
    world = ShardWorld(group_max_size=2)
    old = world.stable(2)
    assert world.join(client="third").code == 81
    assert world.join(old[0].member_id).waits
    assert world.join(old[1].member_id, client="c1").code == 0


def test_a_group_that_became_too_large_loses_who_comes_last():
    """After group.max.size was lowered, the next start rebalances the group to that size."""
    world = ShardWorld()
    members = world.stable(3)
    world.settings = type(world.settings)(group_max_size=2, group_initial_rebalance_delay_ms=0)
    world.restart()
    assert world.state == "PreparingRebalance"
    answers = [world.join(member.member_id) for member in members]
    assert [answer.code for answer in answers] == [0, 0, 81]
    assert len(world.group().roster) == 2


# Static members (KIP-345)


def test_a_static_member_comes_back_without_a_rebalance():
    """A restart within the session timeout costs the group nothing."""
    world = ShardWorld()
    [first] = world.stable(instance="i")
    assert first.member_id.startswith("i-")
    again = world.join(instance="i", client="c0")
    assert again.code == 0
    assert again.member_id != first.member_id
    assert (again.generation_id, world.state) == (first.generation_id, "Stable")
    # it leads but may not assign, because no other member rejoins
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    assert [member.member_id for member in again.members] == [again.member_id]
    synced = world.sync(again.member_id, again.generation_id, instance="i")
    assert synced.assignment == first.member_id.encode()
    world.restart()
    assert world.heartbeat(again.member_id, again.generation_id, instance="i").code == 0


def test_an_old_static_leader_is_not_told_that_it_leads():
    """It does not know skip_assignment, and would assign all partitions to itself."""
    world = ShardWorld()
    [first] = world.stable(instance="i")
    again = world.join(instance="i", client="c0", version=8)
    assert again.code == 0
    assert again.leader == first.member_id != again.member_id
    assert (again.members, again.skip_assignment) == ([], False)


@pytest.mark.parametrize("request_", ["heartbeat", "sync", "commit", "join", "leave"])
def test_the_static_member_that_was_replaced_is_fenced(request_):
    """With two processes of one instance id the older one gets FENCED_INSTANCE_ID and stops."""
    world = ShardWorld()
    [old] = world.stable(instance="i")
    world.join(instance="i", client="c0")
    answer = {
        "heartbeat": lambda: world.heartbeat(old.member_id, 1, instance="i"),
        "sync": lambda: world.sync(old.member_id, 1, instance="i"),
        "commit": lambda: world.commit(
            {("t", 0): 1}, member_id=old.member_id, generation=1, instance="i"
        ),
        "join": lambda: world.join(old.member_id, instance="i"),
        "leave": lambda: world.leave((old.member_id, "i")),
    }[request_]()
    if request_ == "leave":
        assert [member.error_code for member in answer.members] == [82]
    else:
        assert answer.code == 82


def test_a_static_member_that_waits_is_fenced_when_it_is_replaced():
    """A request that waits for the rebalance with the old member id fails."""
    world = ShardWorld()
    world.stable()
    old = world.join(instance="i", client="s")
    assert old.waits
    new = world.join(instance="i", client="s")
    assert old.code == 82
    assert new.waits


def test_a_replaced_static_member_ends_a_rebalance_that_was_being_completed():
    """The leader may be assigning to the old member id."""
    world = ShardWorld()
    first = world.join(instance="i")
    assert world.state == "CompletingRebalance"
    again = world.join(instance="i")
    assert again.code == 0
    assert again.generation_id == first.generation_id + 1


def test_a_static_member_with_another_protocol_rebalances():
    """Its assignment would be of a protocol that is no longer elected."""
    world = ShardWorld()
    world.stable(instance="i", protocols=["range", "roundrobin"])
    again = world.join(instance="i", protocols=["roundrobin", "range"])
    assert (again.code, again.generation_id, again.protocol_name) == (0, 2, "roundrobin")


def test_a_static_member_may_be_away_during_a_rebalance():
    """It stays a member and gets an assignment until its session expires."""
    world = ShardWorld()
    [away] = world.stable(instance="i", session_ms=120_000, rebalance_ms=5_000)
    new = world.enter(client="new", session_ms=120_000, rebalance_ms=5_000)
    world.pass_time(5.1)
    assert new.code == 0
    assert set(world.group().roster.members) == {away.member_id, new.member_id}
    assert new.leader == new.member_id


def test_a_rebalance_without_anybody_waits_for_absent_static_members():
    """A generation needs a leader; the sessions of the static members limit the wait."""
    world = ShardWorld()
    static = world.stable(instance="i", session_ms=30_000, rebalance_ms=5_000)[0]
    world.enter(client="new", session_ms=30_000, rebalance_ms=5_000)
    [new] = set(world.group().roster.members) - {static.member_id}
    world.leave((new, None))
    assert world.state == "PreparingRebalance"
    world.pass_time(20)
    assert world.state == "PreparingRebalance"
    world.pass_time(11)
    assert world.state == "Empty"


def test_a_static_replacement_that_cannot_be_stored_is_taken_back():
    """After a failover the log would have only the old member."""
    world = ShardWorld()
    [old] = world.stable(instance="i")
    world.refuse_writes = DISK_FULL
    assert world.join(instance="i").code == 16
    world.refuse_writes = None
    assert list(world.group().roster.members) == [old.member_id]
    assert world.heartbeat(old.member_id, 1, instance="i").code == 0
    assert world.join(instance="i").code == 0


def test_a_static_member_back_amid_a_rebalance_is_known_to_the_next_coordinator():
    """Otherwise the coordinator would fence it like its predecessor, and it would stop for good."""
    world = ShardWorld()
    [old] = world.stable(instance="i")
    new = world.join(instance="j", client="j")
    assert new.waits
    back = world.join(instance="i")
    assert (back.code, new.code, back.generation_id) == (0, 0, 2)
    world.restart()
    assert world.heartbeat(back.member_id, 2, instance="i").code == 22  # rejoin with its own id
    assert world.heartbeat(old.member_id, 1, instance="i").code == 82
    assert world.sync(new.member_id, 2, instance="j").code == 25
    assert [(m.member_id, m.assignment) for m in world.group().roster] == [
        (back.member_id, old.member_id.encode())
    ]


def test_a_static_member_back_when_all_have_joined_is_known_to_the_next_coordinator():
    """The same while the leader assigns."""
    world = ShardWorld()
    world.stable(instance="i")
    leader = world.join(instance="i", protocols=["range", "roundrobin"])
    rejoined = world.join(leader.member_id, instance="i", protocols=["range"])
    assert world.state == "CompletingRebalance"
    back = world.join(instance="i")
    assert (back.code, back.generation_id) == (0, rejoined.generation_id + 1)
    world.restart()
    assert world.heartbeat(back.member_id, back.generation_id, instance="i").code == 22


def test_two_static_members_have_two_places():
    """They are told apart by their instance ids."""
    world = ShardWorld()
    first = world.join(instance="i")
    second = world.join(instance="j")
    assert second.waits
    assert world.join(first.member_id, instance="i").code == 0
    assert world.group().roster.static_members.keys() == {"i", "j"}


# New groups


def test_a_group_is_only_made_by_somebody_without_a_member_id():
    """A member id is of a group that no longer exists, so its client must start afresh."""
    world = ShardWorld()
    assert world.join("c-1").code == 25
    assert world.shard.groups == {}


def test_a_new_group_is_in_the_log_before_it_has_a_generation():
    """A coordinator that takes over knows the group, and ListGroups returns it."""
    world = ShardWorld()
    world.join()
    [record] = world.records()
    assert (record.key.group, record.value.generation, record.value.members) == ("g", 0, [])
    world.restart()
    assert world.state == "Empty"


def test_a_new_group_that_cannot_be_stored_is_not_there():
    """The next attempt creates it, and no member waits for a generation that cannot come."""
    world = ShardWorld()
    world.refuse_writes = DISK_FULL
    assert world.join().code == 16
    assert world.join(version=3).code == 16
    assert world.shard.groups == {}
    assert len(world.timers) == 0


def test_absent_static_members_with_no_time_to_join_keep_nobody_busy():
    """Regression: with 1 ms the broker checked every millisecond until the sessions ended."""
    world = ShardWorld()
    world.stable(instance="one", rebalance_ms=1)
    other = world.join(version=3, rebalance_ms=1)
    world.pass_time(0.001)
    group = world.group()
    assert len(group.roster) == 2
    looks = []
    complete = group.rebalance.complete

    def look(instant):
        looks.append(instant.now)
        assert len(looks) < 12
        return complete(instant)

    group.rebalance.complete = look
    world.leave((other.member_id, None))
    world.pass_time(5)
    assert group.state_name == "PreparingRebalance"
    assert len(looks) > 2
    world.pass_time(10)
    assert group.state_name == "Empty"
