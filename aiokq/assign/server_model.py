"""What an assignor of the broker is told about a group. Owns values only; topics go by id here.

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
"""Some partitions of some topics; a topic without partitions is left out."""


@frozen
class TopicSpec:
    """A topic that exists.

    Attributes:
        partitions: how many it has.
        racks: by partition, the racks that have a replica; may be empty.
    """

    name: str
    partitions: int
    racks: Mapping[int, frozenset[str]] = field(default_factory=dict)


@frozen
class ServerMember:
    """One member of the group.

    Attributes:
        topics: what it subscribes to; topics that the group's `topics` lack have no partitions.
        assigned: what the last assignment gave it, so that little moves.
        rack: where it runs, if it says.
        instance_id: set for static members.
    """

    topics: frozenset[uuid.UUID]
    assigned: Partitions = field(default_factory=dict)
    rack: str | None = None
    instance_id: str | None = None


@frozen
class GroupSpec:
    """Members by member id, and the topics that exist by topic id."""

    members: Mapping[str, ServerMember]
    topics: Mapping[uuid.UUID, TopicSpec]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        subscriptions = iter(member.topics for member in self.members.values())
        first = next(subscriptions, None)
        return all(topics is first or topics == first for topics in subscriptions)


class ServerAssignor(Protocol):
    """Decides which member reads which partitions; runs in the broker (KIP-848)."""

    @property
    def name(self) -> str:
        """As members ask for it in their heartbeat."""
        ...

    def assign(self, group: GroupSpec) -> dict[str, dict[uuid.UUID, frozenset[int]]]:
        """Each member's partitions, for every member of the group.

        Each partition of a topic that somebody subscribes to goes to exactly one of its
        subscribers. The same group gives the same answer, in whatever order it is listed.
        """
        ...
