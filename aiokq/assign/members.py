"""Functions for members and racks, used by several assignors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokq.assign.model import Subscription, Topology
from aiokq.core.types import TopicPartition

__all__ = ["all_topics", "in_order", "racks_matter"]


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids in Java's order.

    Static members come first, sorted by instance id; the others are sorted by member id.

    Source: Kafka's `AbstractPartitionAssignor.MemberInfo.compareTo`.
    """

    def rank(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].group_instance_id
        return (instance is None, member_id if instance is None else instance)

    return sorted(members, key=rank)


def all_topics(members: Mapping[str, Subscription]) -> list[str]:
    """Return every subscribed topic, sorted."""
    return sorted({topic for member in members.values() for topic in member.topics})


def racks_matter(
    topology: Topology, partitions: Iterable[TopicPartition], racks: Iterable[str | None]
) -> bool:
    """Return whether the racks of members can make a difference to their assignment (KIP-881).

    Racks make no difference if no replica is in a member's rack, or if all partitions have replicas
    in the same racks.
    """
    member_racks = {rack for rack in racks if rack is not None}
    if not member_racks or not topology.racks:
        return False
    per_partition = [topology.racks.get(partition, frozenset()) for partition in partitions]
    replica_racks = frozenset[str]().union(*per_partition)
    if member_racks.isdisjoint(replica_racks):
        return False
    return any(racks != replica_racks for racks in per_partition)
