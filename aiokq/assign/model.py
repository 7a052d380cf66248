"""What an assignor is told, and what it answers. Owns values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["Assignment", "RebalanceProtocol", "Subscription", "Topology"]


class RebalanceProtocol(Enum):
    """What a member does with its partitions before it joins again.

    Source: Kafka's `ConsumerPartitionAssignor.RebalanceProtocol`; KIP-429.
    """

    EAGER = 0
    """It gives up all of them."""
    COOPERATIVE = 1
    """It keeps them, and gives up only those that the next assignment takes away."""


@frozen
class Topology:
    """The topics that a group subscribes to.

    Attributes:
        partitions: how many each topic has; a topic that does not exist is missing.
        racks: where replicas of a partition are, for rack-aware assignment; may be empty.
    """

    partitions: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


@frozen
class Subscription:
    """What one member tells the assignor.

    Attributes:
        owned: the partitions it has now; they count only if `generation` is the group's newest.
        generation: -1 where the member does not say.
        user_data: the assignor's own bytes.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    group_instance_id: str | None = None
    user_data: bytes | None = None


@frozen
class Assignment:
    """What one member is given.

    Attributes:
        user_data: the assignor's own bytes, handed back to it by `Assignor.assigned`.
    """

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
