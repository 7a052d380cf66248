"""Stickiness as a measure: partitions that left a remaining member, and how many had to.

Twenty histories with twenty changes each; members join and leave, and moves are counted after each
change.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping

import pytest

from aiokq.assign.assignor import ASSIGNORS
from aiokq.assign.model import Assignment, Subscription, Topology
from aiokq.assign.server import SERVER_ASSIGNORS, GroupSpec, ServerMember, TopicSpec
from aiokq.core.types import TopicPartition

Owned = dict[str, frozenset[TopicPartition]]
Topics = Mapping[str, tuple[str, ...]]
"""The topics that each member subscribes to."""
Assign = Callable[[Mapping[str, int], Topics, Owned], Owned]

HISTORIES = 20
CHANGES = 20


class Client:
    """A client-side assignor, with the data that members exchange."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._generation = 0

    def __call__(self, counts: Mapping[str, int], topics: Topics, owned: Owned) -> Owned:
        make = ASSIGNORS[self._name]
        while True:
            self._generation += 1
            members = {}
            for member, wanted in topics.items():
                mine = make()
                had = tuple(sorted(owned.get(member, ())))
                if member in owned:
                    mine.assigned(Assignment(had), self._generation - 1)
                data = mine.user_data(wanted)
                told = had if self._name.startswith("cooperative") else ()
                members[member] = Subscription(wanted, told, self._generation - 1, user_data=data)
            found = make().assign(Topology(counts), members)
            after = {member: frozenset(part.partitions) for member, part in found.items()}
            if sum(map(len, after.values())) == sum(
                counts[topic] for topic in {topic for of in topics.values() for topic in of}
            ):
                return after
            owned = after  # a partition that moves has no owner for one rebalance


def server(name: str) -> Assign:
    """Return a server-side assignor of the broker."""

    def assign(counts: Mapping[str, int], topics: Topics, owned: Owned) -> Owned:
        ids = {topic: uuid.UUID(int=n) for n, topic in enumerate(sorted(counts), 1)}
        names = {topic_id: topic for topic, topic_id in ids.items()}
        members = {}
        for member, wanted in topics.items():
            had: dict[uuid.UUID, frozenset[int]] = {}
            for topic, number in owned.get(member, ()):
                had[ids[topic]] = had.get(ids[topic], frozenset()) | {number}
            members[member] = ServerMember(frozenset(ids[topic] for topic in wanted), had)
        specs = {ids[topic]: TopicSpec(topic, count) for topic, count in counts.items()}
        return {
            member: frozenset(
                TopicPartition(names[topic_id], number)
                for topic_id, numbers in partitions.items()
                for number in numbers
            )
            for member, partitions in SERVER_ASSIGNORS[name]
            .assign(GroupSpec(members, specs))
            .items()
        }

    return assign


def changes(seed: int, *, equal: bool) -> Iterator[tuple[Mapping[str, int], Topics]]:
    """Yield the changing members of a group: about ten members, some forty partitions."""
    rng = random.Random(seed)
    counts = {f"t{n}": rng.randrange(1, 15) for n in range(6)}
    everything = tuple(counts)
    members: dict[str, tuple[str, ...]] = {}
    for change in range(CHANGES):
        if len(members) < 3 or (len(members) < 20 and rng.random() < 0.55):
            size = len(everything) if equal else rng.randrange(1, len(everything) + 1)
            wanted = tuple(sorted(rng.sample(everything, size)))
            members[f"m{rng.randrange(100)}-{change}"] = wanted
        else:
            del members[rng.choice(sorted(members))]
        yield counts, dict(members)


def lost(before: Owned, after: Owned) -> int:
    """Return how many partitions left a member that stayed."""
    return sum(len(had - after[member]) for member, had in before.items() if member in after)


def needed(before: Owned, after: Owned) -> int:
    """Return how many partitions must leave their members to get the loads of `after`.

    Members must give up what exceeds their new loads. In the best case, among members with equal
    subscriptions, those with the most partitions get the larger loads.
    """
    staying = [member for member in before if member in after]
    return sum(max(0, len(before[member]) - len(after[member])) for member in staying)


def least(before: Owned, after: Owned) -> int:
    """Like `needed`, for the best possible balance if all members subscribe to the same topics."""
    share, larger = divmod(sum(map(len, after.values())), len(after))
    sizes = sorted((len(had) for m, had in before.items() if m in after), reverse=True)
    return sum(max(0, size - share - (rank < larger)) for rank, size in enumerate(sizes))


def measured(
    assign: Assign, bound: Callable[[Owned, Owned], int], *, equal: bool
) -> tuple[int, int]:
    """Return the partitions that moved and those that had to, over all histories."""
    moved = had_to = 0
    for seed in range(HISTORIES):
        owned: Owned = {}
        for counts, topics in changes(seed, equal=equal):
            after = assign(counts, topics, owned)
            moved += lost(owned, after)
            had_to += bound(owned, after)
            owned = after
    return moved, had_to


STICKY = {
    "sticky": Client("sticky"),
    "cooperative-sticky": Client("cooperative-sticky"),
    "uniform": server("uniform"),
}


@pytest.mark.parametrize("name", STICKY)
def test_equal_subscriptions_move_no_partition_without_need(name: str) -> None:
    """Each unnecessary move stops a partition and refills its caches elsewhere.

    2660 partitions have to move in these histories; range moves 5698, roundrobin 11635.
    """
    moved, had_to = measured(STICKY[name], least, equal=True)
    assert (moved, had_to) == (2660, 2660)


@pytest.mark.parametrize(("name", "most"), [("sticky", 1.2), ("uniform", 1.25)])
def test_different_subscriptions_move_few_partitions_without_need(name: str, most: float) -> None:
    """Balance comes first: a sequence of moves may pass through members that keep their number.

    Measured: sticky moves 1.16 times what its own balance needs, uniform 1.24, roundrobin 3.05.
    """
    moved, had_to = measured(STICKY[name], needed, equal=False)
    assert 1 <= moved / had_to <= most


def test_an_assignor_that_is_not_sticky_moves_more() -> None:
    """Otherwise the measure would be meaningless."""
    moved, had_to = measured(Client("roundrobin"), least, equal=True)
    assert moved > 4 * had_to
