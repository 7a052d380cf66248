"""The broker's default assignor, for groups whose members subscribe to the same topics.

`uniform_mixed` assigns if members subscribe to different topics.

Source: Kafka ``UniformAssignor.java``, ``UniformHomogeneousAssignmentBuilder.java`` (4.2).
Assignment by rack is an addition: Kafka removed it in 4.0 because of its cost; here it costs one
pass over the partitions. Tests: ``tests/unit/assign/test_server.py``.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from aiokq.assign.server_model import GroupSpec
from aiokq.assign.uniform_mixed import MixedAssignment

__all__ = ["UniformAssignor"]


class UniformAssignor:
    """Gives all members about the same number of partitions, with as few moves as possible."""

    name: Final = "uniform"

    def assign(self, group: GroupSpec) -> dict[str, dict[uuid.UUID, frozenset[int]]]:
        """Return an assignment that is as balanced as the subscriptions permit.

        With equal subscriptions, the members' numbers of partitions differ by at most one. With
        different subscriptions, single partitions move between two subscribers of a topic until no
        such move makes their numbers of partitions closer, or the limit of passes is reached
        (`uniform_mixed.ROUNDS`).
        """
        if not group.members:
            return {}
        if group.is_homogeneous:
            return _HomogeneousAssignment(group).build()
        return MixedAssignment(group).build()


class _HomogeneousAssignment:
    """The assignment of one group.

    Each member has a quota: the number of partitions divided by the number of members, rounded
    down. If there is a remainder r, the quota of r members is one higher. Members that already hold
    more than the lower quota are the first to get the higher quota. A member keeps its partitions
    up to its quota. Afterwards, free partitions go to members below their quota.
    """

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._members = sorted(group.members)
        wanted = group.members[self._members[0]].topics
        topics = [(topic_id, group.topics[topic_id]) for topic_id in wanted & group.topics.keys()]
        self._topics = dict(sorted(topics, key=lambda item: (item[1].name, item[0])))
        self._free = {
            topic_id: set(range(topic.partitions)) for topic_id, topic in self._topics.items()
        }
        """The free partitions by topic."""

    def build(self) -> dict[str, dict[uuid.UUID, frozenset[int]]]:
        kept = {member_id: self._claim(member_id) for member_id in self._members}
        held = {
            member_id: sum(map(len, partitions.values())) for member_id, partitions in kept.items()
        }
        quotas = self._quotas(held)
        for member_id, quota in quotas.items():
            if held[member_id] > quota:
                self._give_up(kept[member_id], held[member_id] - quota)
        room = {
            member_id: quota - held[member_id]
            for member_id, quota in quotas.items()
            if quota > held[member_id]
        }
        for member_id, partitions in self._hand_out(room).items():
            mine = kept[member_id]
            for topic_id, numbers in partitions.items():
                mine[topic_id] = mine.get(topic_id, frozenset()).union(numbers)
        return kept

    def _claim(self, member_id: str) -> dict[uuid.UUID, frozenset[int]]:
        """Return the member's previous partitions that are free, and mark them as not free."""
        assigned = self._group.members[member_id].assigned
        kept: dict[uuid.UUID, frozenset[int]] = {}
        for topic_id, partitions in assigned.items():
            free = self._free.get(topic_id)
            if free is None:
                continue
            # Only free partitions are kept: after damage to the log, two members may have the same
            # partition, or a member may have a partition that does not exist.
            mine = partitions if partitions <= free else partitions & free
            free -= mine
            if mine:
                kept[topic_id] = mine
        return kept

    def _quotas(self, held: dict[str, int]) -> dict[str, int]:
        total = sum(topic.partitions for topic in self._topics.values())
        quota, extra = divmod(total, len(self._members))
        # Members above the quota are the first to get the higher quota, so fewer partitions move.
        larger = [member_id for member_id in self._members if held[member_id] > quota]
        if len(larger) < extra:
            larger += [member_id for member_id in self._members if held[member_id] <= quota]
        quotas = dict.fromkeys(self._members, quota)
        for member_id in larger[:extra]:
            quotas[member_id] += 1
        return quotas

    def _give_up(self, kept: dict[uuid.UUID, frozenset[int]], count: int) -> None:
        """Make `count` of the member's partitions free: the last partitions of its last topics."""
        for topic_id in [topic_id for topic_id in reversed(self._topics) if topic_id in kept]:
            partitions = sorted(kept[topic_id])
            given = partitions[max(0, len(partitions) - count) :]
            self._free[topic_id].update(given)
            if len(given) == len(partitions):
                del kept[topic_id]
            else:
                kept[topic_id] = frozenset(partitions[: -len(given)])
            count -= len(given)
            if not count:
                return

    def _hand_out(self, room: dict[str, int]) -> dict[str, dict[uuid.UUID, list[int]]]:
        """Give free partitions to members below their quotas, first to members in a replica's rack.

        Args:
            room: the number of partitions that each member still gets.
        """
        given: defaultdict[str, defaultdict[uuid.UUID, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        members = self._group.members
        if any(topic.racks for topic in self._topics.values()):
            near = self._by_rack()
            for member_id in room:
                candidates = near.get(members[member_id].rack or "", iter(()))
                while room[member_id]:
                    place = next(candidates, None)
                    if place is None:
                        break
                    topic_id, number = place
                    if number in self._free[topic_id]:  # otherwise it was given to another member
                        self._free[topic_id].remove(number)
                        given[member_id][topic_id].append(number)
                        room[member_id] -= 1
        takers = iter([(member_id, count) for member_id, count in room.items() if count])
        member_id, count = next(takers, ("", 0))
        for topic_id, free in self._free.items():
            for number in sorted(free):
                if not count:
                    member_id, count = next(takers)
                given[member_id][topic_id].append(number)
                count -= 1
        return {taker: dict(partitions) for taker, partitions in given.items()}

    def _by_rack(self) -> dict[str, Iterator[tuple[uuid.UUID, int]]]:
        places: defaultdict[str, list[tuple[uuid.UUID, int]]] = defaultdict(list)
        for topic_id, topic in self._topics.items():
            free = self._free[topic_id]
            for number, racks in sorted(topic.racks.items()):
                if number in free:
                    for rack in racks:
                        places[rack].append((topic_id, number))
        return {rack: iter(items) for rack, items in places.items()}
