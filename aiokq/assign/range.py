"""The range assignor: a range of adjacent partitions of each topic per member.

If the partitions divide evenly, member i takes the partitions from i*N to (i+1)*N - 1, where N is
the number of partitions per member. If r partitions remain, each of the first r members gets one
more partition. If racks matter, members first get partitions with a replica in their own rack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

from aiokq.assign.members import in_order, racks_matter
from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
from aiokq.core.types import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor:
    """Kafka's "range", with the same assignments as Java's, also if racks matter (KIP-881).

    Topics with the same number of partitions and the same subscribers are assigned alike, so that
    a member gets the same partition numbers of each of these topics (co-partitioning). The
    partition numbers may differ if racks matter for only some of these topics.

    Source: Kafka's `RangeAssignor`.
    """

    name = "range"
    rebalance_protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return None

    def assigned(self, assignment: Assignment, generation: int) -> None:
        pass

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        taken: dict[str, list[TopicPartition]] = {member: [] for member in members}
        topics = _subscribed_topics(topology, members, taken)
        by_rack = [topic for topic in topics if topic.rack_aware]
        for alike in _co_partitioned(by_rack):
            if len(alike) > 1:
                _assign_same_partitions(alike)
            else:
                alike[0].assign_runs(alike[0].in_rack)
        for topic in topics:
            topic.assign_runs(lambda member, partition: True)
        if by_rack:
            for partitions in taken.values():
                partitions.sort()
        return {member: Assignment(tuple(partitions)) for member, partitions in taken.items()}


class _Topic:
    """A topic during its assignment, with its free partitions and the share of each member."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        members: Sequence[str],
        racks: Mapping[str, str | None],
        taken: dict[str, list[TopicPartition]],
    ) -> None:
        count = topology.partitions[name]
        self.name = name
        self.count = count
        self.members = tuple(members)
        self.left = dict.fromkeys(TopicPartition(name, number) for number in range(count))
        self.rack_aware = racks_matter(topology, self.left, (racks[m] for m in members))
        self._share, self._larger_shares = divmod(count, len(members))
        self._given = dict.fromkeys(members, 0)
        self._racks = racks
        self._replica_racks = topology.racks
        self._taken = taken

    def room(self, member: str) -> int:
        """Return the number of partitions that this member may still take."""
        return self._share + (self._larger_shares > 0) - self._given[member]

    def in_rack(self, member: str, partition: TopicPartition) -> bool:
        rack = self._racks[member]
        return rack is None or rack in self._replica_racks.get(partition, ())

    def give(self, member: str, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            del self.left[partition]
        self._taken[member].extend(partitions)
        self._given[member] += len(partitions)
        if partitions and self._given[member] == self._share + 1:
            self._larger_shares -= 1

    def assign_runs(self, may_take: Callable[[str, TopicPartition], bool]) -> None:
        """Give each member in turn the first free partitions that it may take, up to its share."""
        for member in self.members:
            if not self.left:
                return
            room = self.room(member)
            if room > 0:
                allowed = (partition for partition in self.left if may_take(member, partition))
                self.give(member, list(islice(allowed, room)))


def _subscribed_topics(
    topology: Topology,
    members: Mapping[str, Subscription],
    taken: dict[str, list[TopicPartition]],
) -> list[_Topic]:
    subscribers: dict[str, list[str]] = defaultdict(list)
    for member in in_order(members):
        for topic in dict.fromkeys(members[member].topics):
            subscribers[topic].append(member)
    racks = {member: subscription.rack for member, subscription in members.items()}
    return [
        _Topic(topic, topology, subscribers[topic], racks, taken)
        for topic in sorted(subscribers)
        if topology.partitions.get(topic, 0) > 0
    ]


def _co_partitioned(topics: list[_Topic]) -> list[list[_Topic]]:
    groups: dict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        groups[topic.members, topic.count].append(topic)
    return list(groups.values())


def _assign_same_partitions(topics: list[_Topic]) -> None:
    """For each partition number, give that partition of every topic to one member.

    The member must be allowed to take another partition of every topic. If the member has a rack,
    each of the partitions must have a replica in that rack. If there is no such member, the
    partitions stay free.
    """
    remaining = dict.fromkeys(topics[0].members)
    for number in range(topics[0].count):
        for member in remaining:
            if all(
                topic.room(member) > 0 and topic.in_rack(member, TopicPartition(topic.name, number))
                for topic in topics
            ):
                for topic in topics:
                    topic.give(member, [TopicPartition(topic.name, number)])
                if any(topic.room(member) <= 0 for topic in topics):
                    del remaining[member]
                break
