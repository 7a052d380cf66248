"""Schemas of the consumer protocol, all versions."""

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
    """Element of `ConsumerProtocolSubscription.owned_partitions`.

    Source: `ConsumerProtocolSubscription.json`, struct `TopicPartition`.
    """

    topic: str = string(since=1)
    """The topic name."""

    partitions: list[int] = array(i32, since=1)
    """The partition ids."""


class ConsumerProtocolSubscription(Message):
    """Subscription of a member, as sent in JoinGroup.

    Subscription part of the Consumer Protocol.

    The current implementation assumes that future versions will not break compatibility. When
    it encounters a newer version, it parses it using the current format. This basically means
    that new versions cannot remove or reorder any of the existing fields.

    Version 1 added the "OwnedPartitions" field to allow assigner know what partitions each
    member owned.

    Version 2 added a new field "GenerationId" to indicate if the member has out-of-date
    ownedPartitions.

    Version 3 adds rack id to enable rack-aware assignment.

    Source: `ConsumerProtocolSubscription.json`.
    """

    NAME = "ConsumerProtocolSubscription"
    MIN_VERSION = 0
    MAX_VERSION = 3

    topics: list[str] = array(string)
    """The topics that the member wants to consume."""

    user_data: bytes | None = bytes_(nullable_since=0, default=None)
    """User data that will be passed back to the consumer."""

    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, since=1, ignorable=True
    )
    """The partitions that the member owns."""

    generation_id: int = i32(since=2, default=-1, ignorable=True)
    """The generation id of the member."""

    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)
    """The rack id of the member."""


class ConsumerProtocolAssignmentTopicPartition(Struct):
    """Element of `ConsumerProtocolAssignment.assigned_partitions`.

    Source: `ConsumerProtocolAssignment.json`, struct `TopicPartition`.
    """

    topic: str = string()
    """The topic name."""

    partitions: list[int] = array(i32)
    """The list of partitions assigned to this consumer."""


class ConsumerProtocolAssignment(Message):
    """Assignment of a member, as sent in SyncGroup.

    Assignment part of the Consumer Protocol.

    The current implementation assumes that future versions will not break compatibility. When
    it encounters a newer version, it parses it using the current format. This basically means
    that new versions cannot remove or reorder any of the existing fields.

    Version 2 is to support a new field "GenerationId" in ConsumerProtocolSubscription.

    Version 3 adds rack id to ConsumerProtocolSubscription.

    Source: `ConsumerProtocolAssignment.json`.
    """

    NAME = "ConsumerProtocolAssignment"
    MIN_VERSION = 0
    MAX_VERSION = 3

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition
    )
    """The list of topics and partitions assigned to this consumer."""

    user_data: bytes | None = bytes_(nullable_since=0, default=None)
    """User data."""
