"""Assignments of random groups are complete, balanced and sticky."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from aiokq.assign.assignor import ASSIGNORS
from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
from aiokq.assign.protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aiokq.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from aiokq.assign.sticky_data import encode_previous
from aiokq.core.errors import ProtocolError
from aiokq.core.types import TopicPartition

TOPICS = ("a", "b", "c", "d")
RACKS = ("r0", "r1", "r2")
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
topic_sets = st.sets(st.sampled_from(TOPICS)).map(lambda topics: tuple(sorted(topics)))
members_of_any_kind = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(8)]), topic_sets, min_size=1
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    partitions = draw(counts)
    if draw(st.booleans()):
        return Topology(partitions)
    racks = st.frozensets(st.sampled_from(RACKS), max_size=2)
    return Topology(
        partitions,
        {
            TopicPartition(t, n): draw(racks)
            for t, count in partitions.items()
            for n in range(count)
        },
    )


def loads(assignments: Mapping[str, Assignment]) -> dict[str, int]:
    return {member: len(assignment.partitions) for member, assignment in assignments.items()}


def spread(assignments: Mapping[str, Assignment]) -> int:
    sizes = loads(assignments).values()
    return max(sizes) - min(sizes)


def check_complete(
    topology: Topology, topics: Mapping[str, tuple[str, ...]], found: Mapping[str, Assignment]
) -> None:
    """Each subscribed partition is assigned to exactly one member that subscribes to its topic."""
    assert found.keys() == topics.keys()
    taken = [partition for assignment in found.values() for partition in assignment.partitions]
    wanted = {topic for of_member in topics.values() for topic in of_member}
    assert sorted(taken) == sorted(
        TopicPartition(topic, n)
        for topic in wanted
        for n in range(topology.partitions.get(topic, 0))
    )
    for member, assignment in found.items():
        assert {partition.topic for partition in assignment.partitions} <= set(topics[member])


@given(topologies(), members_of_any_kind, st.data())
def test_every_assignor_gives_each_partition_to_one_that_wants_it(
    topology: Topology, topics: dict[str, tuple[str, ...]], data: st.DataObject
) -> None:
    """A partition without an owner is never read, and one with two owners is read twice."""
    rack = st.none() | st.sampled_from(RACKS)
    members = {m: Subscription(of, rack=data.draw(rack)) for m, of in topics.items()}
    for make in ASSIGNORS.values():
        check_complete(topology, topics, make().assign(topology, members))


@given(topologies(), topic_sets, st.integers(1, 8), st.data())
def test_equal_subscriptions_differ_by_one_at_most(
    topology: Topology, topics: tuple[str, ...], size: int, data: st.DataObject
) -> None:
    """These three assignors promise balance; racks matter only if the loads are equal."""
    rack = st.none() | st.sampled_from(RACKS)
    members = {f"m{n}": Subscription(topics, rack=data.draw(rack)) for n in range(size)}
    for name in ("roundrobin", "sticky", "cooperative-sticky"):
        assert spread(ASSIGNORS[name]().assign(topology, members)) <= 1


def best_loads(topology: Topology, topics: Mapping[str, tuple[str, ...]]) -> list[int]:
    """Return the optimal loads: move single partitions while a move improves the balance.

    Moves go along paths of members; trying all paths is feasible for small groups only.
    """
    load = dict.fromkeys(topics, 0)
    holder: dict[TopicPartition, str] = {}
    for topic, count in topology.partitions.items():
        subscribers = [m for m, of in topics.items() if topic in of]
        for n in range(count if subscribers else 0):
            holder[TopicPartition(topic, n)] = subscribers[0]
            load[subscribers[0]] += 1
    improved = True
    while improved:
        improved = False
        for start in topics:
            paths: dict[str, list[tuple[TopicPartition, str]]] = {start: []}
            grew = True
            while grew:
                grew = False
                for partition, owner in holder.items():
                    if owner not in paths:
                        continue
                    for target, of in topics.items():
                        if partition.topic in of and target not in paths:
                            paths[target] = [*paths[owner], (partition, target)]
                            grew = True
            end = min(paths, key=lambda m: load[m])
            if load[start] - load[end] >= 2:
                for partition, target in paths[end]:
                    load[holder[partition]] -= 1
                    holder[partition] = target
                    load[target] += 1
                improved = True
    return sorted(load.values())


@given(counts, members_of_any_kind)
def test_sticky_balance_is_optimal_with_any_subscriptions(
    partitions: dict[str, int], topics: dict[str, tuple[str, ...]]
) -> None:
    """No assignment has smaller differences of load; Kafka's own assignor may have larger ones."""
    topology = Topology(partitions)
    members = {member: Subscription(of) for member, of in topics.items()}
    found = StickyAssignor().assign(topology, members)
    assert sorted(loads(found).values()) == best_loads(topology, topics)


@given(counts, topic_sets, st.integers(1, 8), st.integers(1, 8))
def test_no_more_moves_than_balance_requires(
    partitions: dict[str, int], topics: tuple[str, ...], before: int, after: int
) -> None:
    """A partition that moves is stopped, looked up and cached again: no move may be unnecessary."""
    topology = Topology(partitions)
    first = StickyAssignor().assign(
        topology, {f"m{n}": Subscription(topics) for n in range(before)}
    )
    members = {
        f"m{n}": Subscription(
            topics, owned=first[f"m{n}"].partitions if n < before else (), generation=1
        )
        for n in range(after)
    }
    second = CooperativeStickyAssignor().assign(topology, members)
    staying = [f"m{n}" for n in range(min(before, after))]
    lost = sum(len(set(first[m].partitions).difference(second[m].partitions)) for m in staying)
    total = sum(loads(first).values())
    share, larger = divmod(total, after)
    # Members must give up what exceeds their shares; the `larger` fullest may keep one more.
    sizes = sorted((len(first[m].partitions) for m in staying), reverse=True)
    allowed = [share + (rank < larger) for rank in range(len(sizes))]
    assert lost == sum(max(0, size - keep) for size, keep in zip(sizes, allowed, strict=True))


hostile_claims = st.lists(
    st.builds(TopicPartition, st.sampled_from((*TOPICS, "gone")), st.integers(-1, 12)), max_size=20
).map(tuple)
generations = st.integers(-1, 3) | st.sampled_from([-(2**31), 2**31 - 1])


@given(topologies(), topic_sets, st.integers(1, 8), st.data())
def test_no_claim_of_a_member_unbalances_its_group(
    topology: Topology, topics: tuple[str, ...], size: int, data: st.DataObject
) -> None:
    """Members claim any partitions at any generation, even unknown ones, or send garbage."""
    rack = st.none() | st.sampled_from(RACKS)
    members: dict[str, Subscription] = {}
    for n in range(size):
        claimed, generation = data.draw(hostile_claims), data.draw(generations)
        previous = st.just(encode_previous(claimed, generation))
        members[f"m{n}"] = Subscription(
            topics,
            claimed,
            data.draw(generations),
            data.draw(rack),
            user_data=data.draw(st.none() | st.binary() | previous),
        )
    wanted = dict.fromkeys(members, topics)
    sticky = StickyAssignor().assign(topology, members)
    check_complete(topology, wanted, sticky)
    assert spread(sticky) <= 1
    # Moved partitions are withheld for one rebalance; the next one, with true claims, completes.
    for generation in (4, 5):
        found = CooperativeStickyAssignor().assign(topology, members)
        members = {
            member: Subscription(topics, found[member].partitions, generation, each.rack)
            for member, each in members.items()
        }
    check_complete(topology, wanted, found)
    assert spread(found) <= 1


@given(topologies(), st.lists(members_of_any_kind, min_size=1, max_size=5))
def test_cooperative_members_never_share_a_partition_and_settle(
    topology: Topology, history: list[dict[str, tuple[str, ...]]]
) -> None:
    """After members or subscriptions change, the group settles within two rebalances (KIP-429)."""
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    generation = 0
    for topics in history:
        for _ in range(3):
            members = {
                m: Subscription(of, owned=owned.get(m, ()), generation=generation)
                for m, of in topics.items()
            }
            found = CooperativeStickyAssignor().assign(topology, members)
            for member, assignment in found.items():
                for other, had in owned.items():
                    if other != member and other in topics:
                        assert not set(assignment.partitions).intersection(had)
            settled = all(set(found[m].partitions) == set(owned.get(m, ())) for m in topics)
            owned = {m: assignment.partitions for m, assignment in found.items()}
            generation += 1
        assert settled
        check_complete(topology, topics, found)
    assert RebalanceProtocol.COOPERATIVE in CooperativeStickyAssignor.rebalance_protocols


partitions_of = st.lists(
    st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 2**31 - 1)), unique=True
).map(lambda found: tuple(sorted(found)))


@given(topic_sets, partitions_of, st.integers(-1, 2**31 - 1), st.none() | st.binary())
def test_subscriptions_and_assignments_survive_encoding(
    topics: tuple[str, ...],
    owned: tuple[TopicPartition, ...],
    generation: int,
    user_data: bytes | None,
) -> None:
    """Both embedded schemas, with all fields."""
    subscription = Subscription(topics, owned, generation, "rack", "instance", user_data)
    assert decode_subscription(encode_subscription(subscription), "instance") == subscription
    assignment = Assignment(owned, user_data)
    assert decode_assignment(encode_assignment(assignment)) == assignment


@given(st.binary())
def test_invalid_bytes_are_protocol_errors(data: bytes) -> None:
    """The bytes come from another member and must not be trusted."""
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except ProtocolError:
            continue
