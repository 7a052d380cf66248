"""Schemas of subscriptions and assignments in classic consumer groups, in all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, bytes_, i32, string
from aiokq.wire.struct import Message, Struct

__all__ = [
    "ConsumerProtocolAssignment",
    "ConsumerProtocolAssignmentTopicPartition",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolSubscriptionTopicPartition",
]


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    """Owned partitions of one topic: an element of `ConsumerProtocolSubscription.owned_partitions`.

    Source: `ConsumerProtocolSubscription.json`, struct `TopicPartition`.
    """

    topic: str = string(since=1)
    """The name of the topic that has the partitions."""

    partitions: list[int] = array(i32, since=1)
    """The indexes of partitions of the topic."""


class ConsumerProtocolSubscription(Message):
    """The subscription that a member of a classic group sends in JoinGroup.

    A member reads a newer version as the newest version that it supports. Therefore each version
    only appends fields, and removes or reorders none.

    Version 1 adds OwnedPartitions, the partitions that the member owns.

    Version 2 adds GenerationId, by which the assignor detects outdated owned partitions.

    Version 3 adds the rack id, for rack-aware assignment.

    Source: `ConsumerProtocolSubscription.json`.
    """

    NAME = "ConsumerProtocolSubscription"
    MIN_VERSION = 0
    MAX_VERSION = 3

    topics: list[str] = array(string)
    """The names of the topics to which the member subscribes."""

    user_data: bytes | None = bytes_(nullable_since=0, default=None)
    """Data that only the assignor interprets, or null."""

    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, since=1, ignorable=True
    )
    """The partitions that the member owns."""

    generation_id: int = i32(since=2, default=-1, ignorable=True)
    """The generation in which the member owned `owned_partitions`, or -1."""

    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)
    """The rack id of the member, or null."""


class ConsumerProtocolAssignmentTopicPartition(Struct):
    """Assigned partitions of one topic: an element of
    `ConsumerProtocolAssignment.assigned_partitions`.

    Source: `ConsumerProtocolAssignment.json`, struct `TopicPartition`.
    """

    topic: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of the partitions that are assigned to the member."""


class ConsumerProtocolAssignment(Message):
    """The assignment of a member of a classic group, as the leader sends it in SyncGroup.

    A member reads a newer version as the newest version that it supports. Therefore each version
    only appends fields, and removes or reorders none.

    Version 2 is the same as version 1; ConsumerProtocolSubscription adds GenerationId.

    Version 3 is the same as version 2; ConsumerProtocolSubscription adds the rack id.

    Source: `ConsumerProtocolAssignment.json`.
    """

    NAME = "ConsumerProtocolAssignment"
    MIN_VERSION = 0
    MAX_VERSION = 3

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition
    )
    """The partitions that are assigned to the member."""

    user_data: bytes | None = bytes_(nullable_since=0, default=None)
    """Data that only the assignor interprets, or null."""
