"""The broker's assignors: complete, balanced, sticky and fast."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq.assign.server import (
    SERVER_ASSIGNORS,
    GroupSpec,
    ServerAssignor,
    ServerMember,
    ServerRangeAssignor,
    TopicSpec,
    UniformAssignor,
)

Result = dict[str, dict[uuid.UUID, frozenset[int]]]

UNIFORM = UniformAssignor()
RANGE = ServerRangeAssignor()
T1, T2, T3 = (uuid.UUID(int=number) for number in (1, 2, 3))


def topics(*partitions: int) -> dict[uuid.UUID, TopicSpec]:
    """Return topics t0, t1, ... with ids 1, 2, ..."""
    return {
        uuid.UUID(int=number + 1): TopicSpec(f"t{number}", count)
        for number, count in enumerate(partitions)
    }


def sizes(result: Result) -> dict[str, int]:
    return {member: sum(map(len, partitions.values())) for member, partitions in result.items()}


def places(partitions: dict[uuid.UUID, frozenset[int]]) -> set[tuple[uuid.UUID, int]]:
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def again(group: GroupSpec, result: Result) -> GroupSpec:
    """Return the same group with `result` as its current assignment."""
    return GroupSpec(
        {
            member_id: ServerMember(
                member.topics, result[member_id], member.rack, member.instance_id
            )
            for member_id, member in group.members.items()
        },
        group.topics,
    )


def check_complete(group: GroupSpec, result: Result) -> None:
    """Check that each subscribed partition is assigned to a subscriber, and no other partition."""
    assert result.keys() == group.members.keys()
    given_ = Counter(place for partitions in result.values() for place in places(partitions))
    wanted = {
        (topic_id, number)
        for member in group.members.values()
        for topic_id in member.topics & group.topics.keys()
        for number in range(group.topics[topic_id].partitions)
    }
    assert given_ == Counter(wanted)
    for member_id, partitions in result.items():
        assert partitions.keys() <= group.members[member_id].topics
        assert all(partitions.values()), "no empty sets"


@st.composite
def groups(draw: st.DrawFn, *, equal: bool) -> GroupSpec:
    """Draw a group with some history, which may be damaged or of another subscription."""
    known = topics(*draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)))
    ids = [*known, uuid.UUID(int=99)]  # the last topic does not exist
    members_count = draw(st.integers(1, 6))
    common = frozenset(draw(st.sets(st.sampled_from(ids))))
    members = {}
    for number in range(members_count):
        wanted = common if equal else frozenset(draw(st.sets(st.sampled_from(ids))))
        assigned = draw(
            st.dictionaries(
                st.sampled_from(ids), st.frozensets(st.integers(0, 11), min_size=1), max_size=3
            )
        )
        rack = draw(st.sampled_from([None, "r1", "r2"]))
        instance = draw(st.sampled_from([None, f"i{9 - number}"]))
        members[f"m{number}"] = ServerMember(wanted, assigned, rack, instance)
    return GroupSpec(members, known)


@pytest.mark.parametrize("assignor", SERVER_ASSIGNORS.values(), ids=SERVER_ASSIGNORS)
@given(group=st.one_of(groups(equal=True), groups(equal=False)), seed=st.integers(0, 9))
@settings(deadline=None)
def test_any_group_is_assigned_completely_and_the_same_way_in_any_order(
    assignor: ServerAssignor, group: GroupSpec, seed: int
) -> None:
    """No partition is left out or assigned twice, and the order of members does not matter."""
    result = assignor.assign(group)
    check_complete(group, result)
    shuffled = list(group.members.items())
    random.Random(seed).shuffle(shuffled)
    assert assignor.assign(GroupSpec(dict(shuffled), group.topics)) == result


@given(group=groups(equal=True))
@settings(deadline=None)
def test_uniform_balances_equal_subscriptions_and_moves_as_little_as_that_takes(
    group: GroupSpec,
) -> None:
    """Counts differ by one at most, and as many partitions as possible stay."""
    result = UNIFORM.assign(group)
    counts = sizes(result)
    assert max(counts.values()) - min(counts.values()) <= 1
    # The first claim of a partition, by member id, is valid; later claims of it are ignored.
    held: dict[str, set[tuple[uuid.UUID, int]]] = {}
    claimed: set[tuple[uuid.UUID, int]] = set()
    for member_id in sorted(group.members):
        member = group.members[member_id]
        held[member_id] = {
            (topic_id, number)
            for topic_id, number in places(dict(member.assigned))
            if topic_id in member.topics
            and topic_id in group.topics
            and number < group.topics[topic_id].partitions
        } - claimed
        claimed |= held[member_id]
    quota, extra = divmod(sum(counts.values()), len(counts))
    larger = sum(len(mine) > quota for mine in held.values())
    can_stay = sum(min(len(mine), quota) for mine in held.values()) + min(extra, larger)
    stayed = sum(len(held[member_id] & places(result[member_id])) for member_id in held)
    assert stayed == can_stay


@given(group=groups(equal=False))
@settings(deadline=None)
def test_uniform_leaves_no_move_between_two_members_that_would_even_them_out(
    group: GroupSpec,
) -> None:
    """No member has two partitions more than another that could take one of them."""
    result = UNIFORM.assign(group)
    counts = sizes(result)
    for giver, partitions in result.items():
        for topic_id in partitions:
            for taker, member in group.members.items():
                if topic_id in member.topics:
                    assert counts[giver] - counts[taker] <= 1


@given(group=st.one_of(groups(equal=True), groups(equal=False)))
@settings(deadline=None)
def test_uniform_changes_nothing_that_is_balanced(group: GroupSpec) -> None:
    """An epoch that increases without a change must not move partitions."""
    result = UNIFORM.assign(group)
    assert UNIFORM.assign(again(group, result)) == result


def test_a_member_that_leaves_moves_only_its_own_partitions() -> None:
    """The other members keep all their partitions."""
    group = GroupSpec({f"m{n}": ServerMember(frozenset({T1})) for n in range(4)}, topics(12))
    before = UNIFORM.assign(group)
    rest = again(group, before)
    after = UNIFORM.assign(
        GroupSpec({k: v for k, v in rest.members.items() if k != "m2"}, group.topics)
    )
    for member_id in after:
        assert places(before[member_id]) <= places(after[member_id])
    assert set(sizes(after).values()) == {4}


def test_a_new_member_takes_its_share_and_no_more() -> None:
    """Of the eight previous members seven lose at most two partitions."""
    group = GroupSpec({f"m{n}": ServerMember(frozenset({T1})) for n in range(7)}, topics(56))
    members = dict(again(group, UNIFORM.assign(group)).members)
    members["new"] = ServerMember(frozenset({T1}))
    after = UNIFORM.assign(GroupSpec(members, group.topics))
    assert set(sizes(after).values()) == {7}
    moved = sum(
        len(places(dict(member.assigned)) - places(after[member_id]))
        for member_id, member in members.items()
    )
    assert moved == 7


def test_mixed_subscriptions_even_out_across_topics() -> None:
    """The only reader of a topic gets fewer partitions of the shared topic."""
    group = GroupSpec(
        {
            "a": ServerMember(frozenset({T1})),
            "b": ServerMember(frozenset({T1, T2})),
            "c": ServerMember(frozenset({T1, T2, T3})),
        },
        topics(6, 3, 3),
    )
    assert set(sizes(UNIFORM.assign(group)).values()) == {4}


def test_mixed_subscriptions_prefer_to_move_what_is_new() -> None:
    """Balancing moves unowned partitions before owned ones."""
    group = GroupSpec(
        {
            "a": ServerMember(frozenset({T1, T2}), {T1: frozenset({0, 1})}),
            "b": ServerMember(frozenset({T1}), {T1: frozenset({2, 3})}),
            "c": ServerMember(frozenset({T2})),
        },
        topics(4, 4),
    )
    result = UNIFORM.assign(group)
    assert result["a"][T1] == {0, 1}
    assert result["b"][T1] == {2, 3}
    check_complete(group, result)


def test_free_partitions_go_to_members_in_a_rack_with_a_replica() -> None:
    """Reads across racks cost money, but the balance has priority."""
    racks = {number: frozenset({f"r{number % 2}"}) for number in range(6)}
    known = {T1: TopicSpec("t0", 6, racks)}
    group = GroupSpec(
        {
            "a": ServerMember(frozenset({T1}), rack="r1"),
            "b": ServerMember(frozenset({T1}), rack="r0"),
        },
        known,
    )
    assert UNIFORM.assign(group) == {"a": {T1: {1, 3, 5}}, "b": {T1: {0, 2, 4}}}
    lonely = GroupSpec(
        {
            "a": ServerMember(frozenset({T1}), rack="r1"),
            "b": ServerMember(frozenset({T1}), rack="r9"),
        },
        known,
    )
    assert sizes(UNIFORM.assign(lonely)) == {"a": 3, "b": 3}


def test_range_gives_contiguous_ranges_the_longer_ones_first() -> None:
    """As in Kafka, seven partitions for three members are divided into 3, 2, 2."""
    group = GroupSpec({name: ServerMember(frozenset({T1, T2})) for name in "cab"}, topics(7, 2))
    assert RANGE.assign(group) == {
        "a": {T1: {0, 1, 2}, T2: {0}},
        "b": {T1: {3, 4}, T2: {1}},
        "c": {T1: {5, 6}},
    }


def test_range_puts_static_members_first_by_instance_id() -> None:
    """They keep their ranges when they rejoin with a new member id."""
    wanted = frozenset({T1})
    group = GroupSpec(
        {
            "z": ServerMember(wanted, instance_id="i1"),
            "y": ServerMember(wanted, instance_id="i2"),
            "a": ServerMember(wanted),
        },
        topics(3),
    )
    assert RANGE.assign(group) == {"z": {T1: {0}}, "y": {T1: {1}}, "a": {T1: {2}}}


def test_range_counts_only_the_subscribers_of_a_topic() -> None:
    """With mixed subscriptions each topic is divided separately."""
    group = GroupSpec(
        {"a": ServerMember(frozenset({T1})), "b": ServerMember(frozenset({T1, T2}))},
        topics(4, 4),
    )
    assert RANGE.assign(group) == {"a": {T1: {0, 1}}, "b": {T1: {2, 3}, T2: {0, 1, 2, 3}}}


def test_a_group_without_members_has_no_assignment() -> None:
    """All members have left."""
    for assignor in SERVER_ASSIGNORS.values():
        assert assignor.assign(GroupSpec({}, topics(1))) == {}


def test_the_default_is_uniform() -> None:
    """It is the default of Kafka's group.consumer.assignors."""
    assert list(SERVER_ASSIGNORS) == ["uniform", "range"]


@pytest.mark.parametrize(
    ("count", "partitions", "members", "mixed", "seconds"),
    [(1, 1000, 50, False, 0.2), (10, 10_000, 1000, False, 1.5), (100, 1000, 1000, True, 6)],
)
def test_large_groups_take_no_time_to_speak_of(
    count: int, partitions: int, members: int, mixed: bool, seconds: float
) -> None:
    """It blocks the broker's loop. The limits are ten times what a slow machine takes."""
    known = topics(*[partitions] * count)
    ids, rng = sorted(known), random.Random(5)
    every = frozenset(ids)
    group = GroupSpec(
        {
            f"m{number:04}": ServerMember(
                frozenset(rng.sample(ids, count // 2)) if mixed else every
            )
            for number in range(members)
        },
        known,
    )
    for assignor in SERVER_ASSIGNORS.values():
        began = time.perf_counter()
        assignor.assign(group)
        assert time.perf_counter() - began < seconds
