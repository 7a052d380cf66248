"""The sticky assignors, compared with Java's: same bytes, no worse balance, no more moves."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import pytest

from aiokq.assign.balance import PORTION
from aiokq.assign.model import Assignment, Subscription, Topology
from aiokq.assign.protocol import decode_subscription, encode_subscription
from aiokq.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from aiokq.assign.sticky_data import decode_previous, encode_generation, encode_previous
from aiokq.core.types import TopicPartition
from tests.unit.assign.golden import GROUPS, partitions, subscriptions, topology

BOTH = pytest.mark.parametrize(
    "make", [StickyAssignor, CooperativeStickyAssignor], ids=lambda make: make.name
)

SUBSCRIBED = [group for group in GROUPS if all(group["subscriptions"].values())]
"""Groups without empty subscriptions, for which Java may assign partitions to the first member."""


def squares(assignments: Mapping[str, list[TopicPartition]]) -> int:
    """Return the sum of squares of the loads; smaller is better balanced."""
    return sum(len(taken) ** 2 for taken in assignments.values())


def plain(assignments: Mapping[str, Assignment]) -> dict[str, list[TopicPartition]]:
    return {member: list(assignment.partitions) for member, assignment in assignments.items()}


def java(rows: Mapping[str, Any]) -> dict[str, list[TopicPartition]]:
    return {member: partitions(taken) for member, taken in rows.items()}


@BOTH
def test_balance_is_at_least_that_of_java(
    make: type[StickyAssignor] | type[CooperativeStickyAssignor],
) -> None:
    """With unequal subscriptions Kafka's greedy passes may stop early; aiokq's do not."""
    for group in SUBSCRIBED:
        found = plain(make().assign(topology(group), subscriptions(group)))
        expected = java(group["assigned"][make.name]["first"])
        assert sorted(tp for taken in found.values() for tp in taken) == sorted(
            tp for taken in expected.values() for tp in taken
        )
        assert squares(found) <= squares(expected)


@BOTH
def test_fewer_partitions_leave_their_owners_than_with_java(
    make: type[StickyAssignor] | type[CooperativeStickyAssignor],
) -> None:
    """One member leaves and one joins; the others send the user data that Java would.

    Groups with racks are tested separately: Java's moves by rack are too many or too few.
    """
    compared = 0
    for group in SUBSCRIBED:
        row = group["assigned"][make.name]
        if group["racks"]:
            continue
        members = {
            member: decode_subscription(bytes.fromhex(data), group["instances"].get(member))
            for member, data in row["subscription_bytes"].items()
        }
        newcomer = make()
        topics = tuple(group["subscriptions"][row["gone"]])
        members["new"] = Subscription(topics, user_data=newcomer.user_data(topics))
        found = plain(newcomer.assign(topology(group), members))
        expected = java(row["second"])
        before = java(row["first"])

        def moved(
            after: Mapping[str, list[TopicPartition]],
            before: Mapping[str, list[TopicPartition]] = before,
            gone: str = row["gone"],
        ) -> int:
            return sum(
                len(set(taken).difference(after[member]))
                for member, taken in before.items()
                if member != gone
            )

        if squares(found) == squares(expected):
            assert moved(found) <= moved(expected), group
            compared += 1
        else:
            assert squares(found) < squares(expected)
    assert compared > 40


@BOTH
def test_the_subscription_bytes_are_those_of_java(
    make: type[StickyAssignor] | type[CooperativeStickyAssignor],
) -> None:
    """Java members decode them, and leaders of any client read their user data."""
    compared = 0
    for group in GROUPS:
        row = group["assigned"][make.name]
        for member, data in row["subscription_bytes"].items():
            found = decode_subscription(bytes.fromhex(data))
            assert encode_subscription(found) == bytes.fromhex(data)
            owned = partitions(row["first"][member])
            if make is CooperativeStickyAssignor:
                assert found.user_data == encode_generation(5)
                assert sorted(found.owned) == sorted(owned)
            else:  # Java orders topics by a hash map
                before, generation = decode_previous(found.user_data)
                assert (sorted(before), generation) == (sorted(owned), 5)
                assert encode_previous(before, generation) == found.user_data
            compared += 1
    assert compared > 200


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff",
    ],
)
def test_invalid_user_data_makes_the_member_a_new_one(data: bytes) -> None:
    """One member with invalid bytes must not stop the group."""
    for make in (StickyAssignor, CooperativeStickyAssignor):
        found = make().assign(
            Topology({"t": 2}),
            {"a": Subscription(("t",), user_data=data), "b": Subscription(("t",))},
        )
        assert [len(found[member].partitions) for member in "ab"] == [1, 1]


def test_data_of_the_older_schema_is_read() -> None:
    """Clients before Kafka 2.3 send no generation."""
    data = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x01"
    found = StickyAssignor().assign(
        Topology({"t": 2}), {"b": Subscription(("t",), user_data=data), "a": Subscription(("t",))}
    )
    assert found["b"].partitions == (TopicPartition("t", 1),)


def test_of_two_claims_the_newer_counts_and_of_equals_neither() -> None:
    """A zombie's claim must not take a partition from its successor."""
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    members = {
        "a": Subscription(("t",), owned=(t0, t1), generation=3),
        "b": Subscription(("t",), owned=(t1,), generation=4),
    }
    found = CooperativeStickyAssignor().assign(Topology({"t": 2}), members)
    assert (found["a"].partitions, found["b"].partitions) == ((t0,), (t1,))
    members["b"] = Subscription(("t",), owned=(t0, t1), generation=3)
    found = CooperativeStickyAssignor().assign(Topology({"t": 2}), members)
    assert [len(found[member].partitions) for member in "ab"] == [1, 1]


def test_a_partition_that_moves_has_no_owner_for_one_rebalance() -> None:
    """Its owner reads on until it has revoked it; with two owners both would read it (KIP-429)."""
    owned = tuple(TopicPartition("t", number) for number in range(4))
    members = {"a": Subscription(("t",), owned=owned, generation=1), "b": Subscription(("t",))}
    first = CooperativeStickyAssignor().assign(Topology({"t": 4}), members)
    assert first["b"].partitions == ()
    assert len(first["a"].partitions) == 2
    members = {
        "a": Subscription(("t",), owned=first["a"].partitions, generation=2),
        "b": Subscription(("t",), generation=2),
    }
    second = CooperativeStickyAssignor().assign(Topology({"t": 4}), members)
    assert second["a"] == first["a"]
    assert set(second["b"].partitions) == set(owned).difference(first["a"].partitions)


def test_racks_come_first_within_the_balance() -> None:
    """KIP-881 avoids reads from replicas in other zones."""
    racks = {TopicPartition("t", n): frozenset({f"r{n % 2}"}) for n in range(4)}
    members = {"a": Subscription(("t",), rack="r1"), "b": Subscription(("t",), rack="r0")}
    found = StickyAssignor().assign(Topology({"t": 4}, racks), members)
    assert [p.partition for p in found["a"].partitions] == [1, 3]
    assert [p.partition for p in found["b"].partitions] == [0, 2]


@pytest.mark.parametrize("topics_each", [1, 25])
def test_a_large_group_that_doubles_is_balanced_in_no_time_to_speak_of(topics_each: int) -> None:
    """The leader's loop is blocked meanwhile: half of 20,000 partitions move without long searches.

    Subscriptions differ, so loads are balanced along paths. The limit is ten times what a slow
    machine takes.
    """
    rng = random.Random(3)
    topics = [f"t{number}" for number in range(50)]
    members = {
        f"m{number:03}": Subscription(tuple(sorted(rng.sample(topics, topics_each))))
        for number in range(400)
    }
    group = Topology(dict.fromkeys(topics, 400))
    first = CooperativeStickyAssignor().assign(group, dict(list(members.items())[:200]))
    joined = {
        member: Subscription(
            subscription.topics,
            owned=first[member].partitions if member in first else (),
            generation=1,
        )
        for member, subscription in members.items()
    }
    began = time.process_time()
    second = CooperativeStickyAssignor().assign(group, joined)
    assert time.process_time() - began < 4
    lost = sum(len(first[m].partitions) - len(second[m].partitions) for m in first)
    assert lost > 7_000


def test_moving_several_at_once_ends_in_the_same_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving several partitions at once is faster; loads are the same, and few more move."""
    moves = {}
    found: dict[int, list[list[int]]] = {}
    for portion in (PORTION, 10**9):
        monkeypatch.setattr("aiokq.assign.balance.PORTION", portion)
        moves[portion], found[portion] = 0, []
        for seed in range(8):
            rng = random.Random(seed)
            topics = [f"t{number}" for number in range(12)]
            group = Topology({topic: rng.randrange(1, 120) for topic in topics})
            members = {
                f"m{number:02}": Subscription(tuple(rng.sample(topics, rng.randrange(1, 8))))
                for number in range(24)
            }
            first = StickyAssignor().assign(group, dict(list(members.items())[:6]))
            joined = {
                member: Subscription(
                    subscription.topics,
                    user_data=encode_previous(first[member].partitions, 1)
                    if member in first
                    else None,
                )
                for member, subscription in members.items()
            }
            second = StickyAssignor().assign(group, joined)
            found[portion].append(sorted(len(each.partitions) for each in second.values()))
            moves[portion] += sum(
                len(set(each.partitions).difference(second[member].partitions))
                for member, each in first.items()
            )
    assert found[PORTION] == found[10**9]
    assert moves[PORTION] <= 1.02 * moves[10**9]
