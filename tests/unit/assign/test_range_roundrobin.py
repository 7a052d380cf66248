"""Range and roundrobin: Java's assignments, partition by partition, and Kafka 0.8's rule."""

from __future__ import annotations

import time

import pytest

from aiokq.assign.model import Subscription, Topology
from aiokq.assign.range import RangeAssignor
from aiokq.assign.roundrobin import RoundRobinAssignor
from aiokq.core.types import TopicPartition
from tests.unit.assign.golden import GROUPS, partitions, subscriptions, topology


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=lambda a: a.name)
def test_assignments_are_those_of_java(assignor: RangeAssignor | RoundRobinAssignor) -> None:
    """A leader of another client must not move partitions needlessly."""
    rack_aware = 0
    for group in GROUPS:
        expected = group["assigned"][assignor.name]["first"]
        found = assignor.assign(topology(group), subscriptions(group))
        assert found.keys() == expected.keys()
        for member, rows in expected.items():
            # Java orders topics by a hash map.
            assert sorted(found[member].partitions) == sorted(partitions(rows)), group
        rack_aware += bool(group["racks"])
    assert rack_aware > 20


@pytest.mark.parametrize(("count", "members"), [(12, 3), (6, 6), (10, 5), (8, 1)])
def test_range_is_the_rule_of_kafka_08_where_it_divides_evenly(count: int, members: int) -> None:
    """Member i has the partitions i*N to (i+1)*N - 1, in the order of member ids."""
    ids = [f"m{number}" for number in range(members)]
    found = RangeAssignor().assign(
        Topology({"t": count}), {member: Subscription(("t",)) for member in reversed(ids)}
    )
    n = count // members
    for i, member in enumerate(ids):
        expected = tuple(TopicPartition("t", number) for number in range(i * n, (i + 1) * n))
        assert found[member].partitions == expected


def test_a_topic_that_does_not_exist_is_not_assigned() -> None:
    """A member may subscribe to a topic before it exists, and gets no partition of it yet."""
    members = {"a": Subscription(("nosuch", "t")), "b": Subscription(("nosuch",))}
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        found = assignor.assign(Topology({"t": 2}), members)
        assert [len(found[member].partitions) for member in "ab"] == [2, 0]


def test_neighbouring_topics_stay_co_partitioned() -> None:
    """Joins of two topics need one member to have the same partition of both."""
    racks = {
        TopicPartition(topic, number): frozenset({f"r{number % 3}"})
        for topic in ("a", "b")
        for number in range(6)
    }
    members = {f"m{i}": Subscription(("a", "b"), rack=f"r{i}") for i in range(3)}
    found = RangeAssignor().assign(Topology({"a": 6, "b": 6}, racks), members)
    for number, member in enumerate(sorted(members)):
        assert found[member].partitions == tuple(
            TopicPartition(topic, n) for topic in ("a", "b") for n in (number, number + 3)
        )


def test_roundrobin_passes_over_many_members_in_no_time_to_speak_of() -> None:
    """Regression: with a thousand members without common topics this took seconds."""
    members = {f"m{number:04}": Subscription((f"t{number:04}",)) for number in range(1000)}
    topology = Topology({f"t{number:04}": 100 for number in range(1000)})
    began = time.process_time()
    found = RoundRobinAssignor().assign(topology, members)
    assert time.process_time() - began < 2
    assert {len(assignment.partitions) for assignment in found.values()} == {100}
