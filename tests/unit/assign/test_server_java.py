"""The broker's assignors, compared with those of Kafka's group coordinator (4.2)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiokq.assign.server import GroupSpec, ServerMember, ServerRangeAssignor, TopicSpec
from aiokq.assign.uniform import UniformAssignor

GROUPS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "assign" / "server_assignments.json").read_text()
)

Taken = Mapping[str, Mapping[str, list[int]]]


def topic_id(name: str) -> uuid.UUID:
    return uuid.UUID(int=int(name[1:]) + 1)


def spec(group: dict[str, Any], subscriptions: Mapping[str, list[str]], before: Taken) -> GroupSpec:
    return GroupSpec(
        {
            member: ServerMember(
                frozenset(map(topic_id, topics)),
                {topic_id(t): frozenset(n) for t, n in before.get(member, {}).items()},
                instance_id=group["instances"].get(member),
            )
            for member, topics in subscriptions.items()
        },
        {topic_id(name): TopicSpec(name, count) for name, count in group["partitions"].items()},
    )


def plain(result: Mapping[str, Mapping[uuid.UUID, frozenset[int]]]) -> dict[str, Any]:
    return {
        member: {f"t{topic.int - 1}": sorted(numbers) for topic, numbers in partitions.items()}
        for member, partitions in result.items()
    }


def squares(taken: Taken) -> int:
    """Return the sum of squares of the loads; smaller is better balanced."""
    return sum(sum(map(len, topics.values())) ** 2 for topics in taken.values())


def moved(before: Taken, after: Taken) -> int:
    """Return the partitions taken from members that stayed."""
    return sum(
        len(set(numbers).difference(after[member].get(topic, ())))
        for member, topics in before.items()
        if member in after
        for topic, numbers in topics.items()
    )


def test_range_is_kafkas_partition_by_partition() -> None:
    """A group that changes from one broker to the other keeps its ranges."""
    for group in GROUPS:
        found = ServerRangeAssignor().assign(spec(group, group["subscriptions"], {}))
        assert plain(found) == group["range"], group


def test_uniform_is_balanced_as_kafkas_and_moves_no_more() -> None:
    """One member leaves and one joins, with the same subscription.

    With different subscriptions both assignors stop when no move between two members helps. In
    three of these 200 assignments the results differ, and aiokq's is better in two of them.
    """
    ours = theirs = compared = 0
    for group in GROUPS:
        equal = len({tuple(topics) for topics in group["subscriptions"].values()}) == 1
        first = plain(UniformAssignor().assign(spec(group, group["subscriptions"], {})))
        changed = dict(group["subscriptions"])
        changed["new"] = changed.pop(group["gone"])
        before = group["uniform"]
        again = plain(UniformAssignor().assign(spec(group, changed, before)))
        for found, expected in ((first, before), (again, group["uniform_again"])):
            if equal:
                assert squares(found) == squares(expected), group
            ours += squares(found)
            theirs += squares(expected)
        if squares(again) == squares(group["uniform_again"]):
            assert moved(before, again) <= moved(before, group["uniform_again"]), group
            compared += 1
    assert ours <= theirs
    assert compared > 90
