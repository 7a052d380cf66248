"""The input and output values of assignors of the classic protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["Assignment", "RebalanceProtocol", "Subscription", "Topology"]


class RebalanceProtocol(Enum):
    """When a member revokes partitions in a rebalance.

    Source: Kafka's `ConsumerPartitionAssignor.RebalanceProtocol`; KIP-429.
    """

    EAGER = 0
    """The member revokes all of its partitions before it rejoins."""
    COOPERATIVE = 1
    """The member rejoins with its partitions, then revokes those that its new assignment lacks."""


@frozen
class Topology:
    """The topics to which a group subscribes.

    Attributes:
        partitions: the number of partitions by topic; topics that do not exist are missing.
        racks: for each partition, the racks of its replicas, for rack-aware assignment; may be
            empty.
    """

    partitions: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


@frozen
class Subscription:
    """The subscription that one member reports.

    Attributes:
        owned: the partitions that the member reports as its own. If several members report the
            same partition, the member with the latest `generation` counts as its owner.
        generation: the generation in which the member owned these partitions; -1 if the member does
            not report it.
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
    """The assignment of one member.

    Attributes:
        user_data: the assignor's own bytes, passed to `Assignor.assigned`.
    """

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
