"""The roundrobin assignor, which assigns all partitions of all topics to the members in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping

from aiokq.assign.members import in_order
from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
from aiokq.core.types import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor:
    """Kafka's "roundrobin", with the same assignments as Java's.

    With equal subscriptions, the members' numbers of partitions differ by at most one.

    Source: Kafka's `RoundRobinAssignor`.
    """

    name = "roundrobin"
    rebalance_protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return None

    def assigned(self, assignment: Assignment, generation: int) -> None:
        pass

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        taken: dict[str, list[TopicPartition]] = {member: [] for member in members}
        order = in_order(members)
        seats: dict[str, list[int]] = defaultdict(list)
        for seat, member in enumerate(order):
            for topic in dict.fromkeys(members[member].topics):
                seats[topic].append(seat)
        next_seat = 0
        for topic in sorted(seats):
            takers = seats[topic]
            # A member that does not subscribe to the topic is skipped, and loses its turn.
            turn = bisect_left(takers, next_seat)
            for number in range(topology.partitions.get(topic, 0)):
                seat = takers[turn % len(takers)]
                taken[order[seat]].append(TopicPartition(topic, number))
                turn += 1
                next_seat = seat + 1
        return {member: Assignment(tuple(partitions)) for member, partitions in taken.items()}
