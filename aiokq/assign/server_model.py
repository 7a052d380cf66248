"""`ServerAssignor`: the interface of the broker's assignors, and its input values.

Topics are identified by id.

Source: Kafka ``GroupSpec.java``, ``MemberSubscription.java`` (KIP-848).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, TypeAlias

from aiokq.core.frozen import frozen

__all__ = ["GroupSpec", "Partitions", "ServerAssignor", "ServerMember", "TopicSpec"]

Partitions: TypeAlias = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic; a topic without partitions is left out."""


@frozen
class TopicSpec:
    """An existing topic.

    Attributes:
        partitions: the number of partitions.
        racks: the racks of the replicas of each partition, by partition number; may be empty.
    """

    name: str
    partitions: int
    racks: Mapping[int, frozenset[str]] = field(default_factory=dict)


@frozen
class ServerMember:
    """One member of the group.

    Attributes:
        topics: the subscribed topics; a topic that `GroupSpec.topics` lacks does not exist.
        assigned: the member's partitions in the last assignment.
        rack: the member's rack; None if unknown.
        instance_id: the instance id of a static member; None for a dynamic member.
    """

    topics: frozenset[uuid.UUID]
    assigned: Partitions = field(default_factory=dict)
    rack: str | None = None
    instance_id: str | None = None


@frozen
class GroupSpec:
    """The members by member id, and the existing topics by topic id."""

    members: Mapping[str, ServerMember]
    topics: Mapping[uuid.UUID, TopicSpec]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        subscriptions = iter(member.topics for member in self.members.values())
        first = next(subscriptions, None)
        return all(topics is first or topics == first for topics in subscriptions)


class ServerAssignor(Protocol):
    """Assigns partitions to the members of a group; runs in the broker (KIP-848)."""

    @property
    def name(self) -> str:
        """The name by which members request the assignor in their heartbeats."""
        ...

    def assign(self, group: GroupSpec) -> dict[str, dict[uuid.UUID, frozenset[int]]]:
        """Return the partitions of every member of the group.

        Each partition of a subscribed topic is assigned to exactly one subscriber of the topic. The
        result does not depend on the order of members and topics in `group`.
        """
        ...
