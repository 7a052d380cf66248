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

    A newer version is read as the newest known one. Therefore versions only append fields: they
    never remove or reorder any.

    Version 1 adds OwnedPartitions, which tells the assignor the partitions that each member owns.

    Version 2 adds GenerationId, which shows whether the owned partitions are out of date.

    Version 3 adds the rack id, for rack-aware assignment.

    Source: `ConsumerProtocolSubscription.json`.
    """

    NAME = "ConsumerProtocolSubscription"
    MIN_VERSION = 0
    MAX_VERSION = 3

    topics: list[str] = array(string)
    """The topics that the member wants to consume."""

    user_data: bytes | None = bytes_(nullable_since=0, default=None)
    """Data of the assignor, passed on unchanged."""

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

    A newer version is read as the newest known one. Therefore versions only append fields: they
    never remove or reorder any.

    Version 2 is the same as version 1; ConsumerProtocolSubscription has the new field GenerationId.

    Version 3 is the same as version 2; ConsumerProtocolSubscription has the new rack id.

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
    """Data of the assignor, passed on unchanged."""
