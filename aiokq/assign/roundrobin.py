"""The roundrobin assignor: all partitions of all topics, dealt out in turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import cycle

from aiokq.assign.members import all_topics, in_order
from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
from aiokq.core.types import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor:
    """Kafka's "roundrobin"; gives the same assignments as Java's.

    With equal subscriptions no two members differ by more than one partition.

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
        topics_of = {member: frozenset(members[member].topics) for member in members}
        taken: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turns = cycle(in_order(members))
        for topic in all_topics(members):
            for number in range(topology.partitions.get(topic, 0)):
                # Somebody subscribes to the topic: this ends.
                member = next(member for member in turns if topic in topics_of[member])
                taken[member].append(TopicPartition(topic, number))
        return {member: Assignment(tuple(partitions)) for member, partitions in taken.items()}
