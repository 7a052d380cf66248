"""Classic groups: the response to each event in each state, and the transitions."""

from __future__ import annotations

import pytest

from aiokq.broker.coordinator.group.classic.states import PERMITTED_TRANSITIONS, ClassicState
from tests.unit.broker.coordinator.group.shard_harness import ShardWorld


def empty(world):
    """A group whose only member has left."""
    [member] = world.stable()
    world.leave((member.member_id, None))
    return member


def preparing(world):
    """A rebalance for a second member, which the first member has not rejoined yet."""
    [member] = world.stable()
    world.enter(client="other")
    return member


def completing(world):
    """All members have joined, and the leader has not assigned."""
    return world.enter().response


def stable(world):
    return world.stable()[0]


STATES = {
    "Empty": empty,
    "PreparingRebalance": preparing,
    "CompletingRebalance": completing,
    "Stable": stable,
}

EVENTS = {
    "heartbeat": lambda w, m: w.heartbeat(m.member_id, m.generation_id),
    "heartbeat of an old generation": lambda w, m: w.heartbeat(m.member_id, m.generation_id - 1),
    "heartbeat of a stranger": lambda w, m: w.heartbeat("stranger", m.generation_id),
    "sync": lambda w, m: w.sync(m.member_id, m.generation_id),
    "sync of an old generation": lambda w, m: w.sync(m.member_id, m.generation_id - 1),
    "sync of a stranger": lambda w, m: w.sync("stranger", m.generation_id),
    "sync by another protocol": lambda w, m: w.sync(
        m.member_id, m.generation_id, protocol_name="roundrobin"
    ),
    "sync by another type": lambda w, m: w.sync(
        m.member_id, m.generation_id, protocol_type="connect"
    ),
    "join again": lambda w, m: w.join(m.member_id, client="c0"),
    "join of a stranger": lambda w, m: w.join("stranger"),
    "join by another type": lambda w, m: w.join(protocol_type="connect"),
    "join by another protocol": lambda w, m: w.join(protocols=["roundrobin"]),
    "join without a protocol": lambda w, m: w.join(protocols=[]),
    "commit": lambda w, m: w.commit(
        {("t", 0): 1}, member_id=m.member_id, generation=m.generation_id
    ),
    "commit of an old generation": lambda w, m: w.commit(
        {("t", 0): 1}, member_id=m.member_id, generation=m.generation_id - 1
    ),
    "commit of a stranger": lambda w, m: w.commit(
        {("t", 0): 1}, member_id="stranger", generation=m.generation_id
    ),
    "commit of no member": lambda w, m: w.commit({("t", 0): 1}),
    "delete": lambda w, m: w.delete_group(),
}

#                                   Empty  Preparing  Completing  Stable
ANSWERS = {
    "heartbeat": (25, 27, 0, 0),
    "heartbeat of an old generation": (25, 22, 22, 22),
    "heartbeat of a stranger": (25, 25, 25, 25),
    "sync": (25, 27, "waits", 0),
    "sync of an old generation": (25, 22, 22, 22),
    "sync of a stranger": (25, 25, 25, 25),
    "sync by another protocol": (25, 23, 23, 23),
    "sync by another type": (25, 23, 23, 23),
    "join again": (25, 0, 0, 0),
    "join of a stranger": (25, 25, 25, 25),
    "join by another type": (79, 23, 23, 23),
    "join by another protocol": (79, 23, 23, 23),
    "join without a protocol": (23, 23, 23, 23),
    "commit": (25, 0, 27, 0),
    "commit of an old generation": (25, 22, 22, 22),
    "commit of a stranger": (25, 25, 25, 25),
    "commit of no member": (0, 25, 25, 25),
    "delete": (0, 68, 68, 68),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_answers_every_event_as_kafka_does(state, event):
    """A wrong code would make members rejoin for ever, or let a fenced member commit."""
    world = ShardWorld()
    member = STATES[state](world)
    assert world.state == state
    expected = ANSWERS[event][list(STATES).index(state)]
    if (state, event) == ("Stable", "sync"):
        assert world.sync(member.member_id, member.generation_id).assignment == (
            member.member_id.encode()
        )
    if (state, event) == ("CompletingRebalance", "sync"):
        # only the leader's assignment is missing
        assert world.sync(member.member_id, member.generation_id, {}).code == 0
        return
    assert EVENTS[event](world, member).code == expected


def test_the_table_of_moves_is_kafkas():
    """A transition outside the table is a bug and is not made."""
    assert {
        state.name: {to.name for to in moves} for state, moves in PERMITTED_TRANSITIONS.items()
    } == {
        "EMPTY": {"PREPARING_REBALANCE", "DEAD"},
        "PREPARING_REBALANCE": {"COMPLETING_REBALANCE", "EMPTY", "DEAD"},
        "COMPLETING_REBALANCE": {"STABLE", "PREPARING_REBALANCE", "DEAD"},
        "STABLE": {"PREPARING_REBALANCE", "DEAD"},
        "DEAD": {"DEAD"},
    }
    world = ShardWorld()
    world.stable()
    with pytest.raises(RuntimeError, match="transition from STABLE to EMPTY is not permitted"):
        world.group().transition_to(ClassicState.EMPTY, 0)


def test_a_group_is_described_with_subscriptions_only_while_it_is_stable():
    """Between generations the protocol of the subscriptions is not decided."""
    world = ShardWorld()
    [member] = world.stable()
    described = world.group().describe()
    [one] = described.members
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert one.member_id == member.member_id
    assert (one.client_id, one.client_host) == ("c0", "/10.0.0.9")
    assert one.member_metadata
    assert one.member_assignment == member.member_id.encode()
    world.enter()
    described = world.group().describe()
    assert described.group_state == "PreparingRebalance"
    assert described.protocol_data == ""
    assert [one.member_metadata for one in described.members] == [b"", b""]


def test_the_protocol_most_members_want_is_elected():
    """Candidates are supported by all members; each votes for the first candidate in its list."""
    world = ShardWorld(group_initial_rebalance_delay_ms=1000)
    for protocols in (["a", "b", "c"], ["c", "b"], ["c", "b", "a"]):
        world.enter(protocols=protocols)
    world.pass_time(10)
    assert world.group().protocol_name == "c"


def test_unreadable_subscriptions_keep_every_offset():
    """Members may be subscribed to anything, so no offset may be deleted or expire."""
    world = ShardWorld()
    world.stable(protocols={"range": b"\x00"})
    assert world.group().is_subscribed_to("anything")
    assert world.group().offset_expiry_base() == -1


def test_a_restored_group_is_as_it_was_written():
    """A new coordinator restores members, assignments, leader and generation."""
    world = ShardWorld()
    world.stable(2)
    before = world.group().describe()
    leader = world.group().roster.leader_id
    world.restart()
    assert world.group().describe() == before
    assert world.group().roster.leader_id == leader
    for member in before.members:
        assert world.heartbeat(member.member_id, world.group().generation).code == 0
        assert world.sync(member.member_id, world.group().generation).assignment == (
            member.member_assignment
        )
