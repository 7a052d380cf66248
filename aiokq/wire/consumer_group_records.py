"""Schemas of the records that store groups of the consumer protocol, in all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, bytes_, i8, i32, i64, string, struct, uuid_
from aiokq.wire.struct import Message, Struct

__all__ = [
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentTopicPartitions",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataTopicMetadata",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberTopicPartition",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "PartitionMetadata",
]


class ConsumerGroupMetadataKey(Message):
    """Key of the record that stores the epoch of a consumer group.

    Source: `ConsumerGroupMetadataKey.json`.
    """

    NAME = "ConsumerGroupMetadataKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 3

    group_id: str = string()
    """The id of the group that has the epoch."""


class ConsumerGroupMetadataValue(Message):
    """Value of the record that stores the epoch of a consumer group.

    Source: `ConsumerGroupMetadataValue.json`.
    """

    NAME = "ConsumerGroupMetadataValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 3

    epoch: int = i32()
    """The current epoch of the group."""

    metadata_hash: int = i64(tag=0)
    """The hash of the metadata of all topics that the group subscribes to."""


class ConsumerGroupPartitionMetadataKey(Message):
    """Key of the record that stores the partitions of the topics of a consumer group.

    From Kafka 4.1 on, ConsumerGroupMetadataValue.metadata_hash replaces this record (KIP-1101).

    Source: `ConsumerGroupPartitionMetadataKey.json`.
    """

    NAME = "ConsumerGroupPartitionMetadataKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 4

    group_id: str = string()
    """The id of the group that subscribes to the topics."""


class PartitionMetadata(Struct):
    """Racks of one partition: an element of
    `ConsumerGroupPartitionMetadataTopicMetadata.partition_metadata`.

    Source: `ConsumerGroupPartitionMetadataValue.json`, struct `PartitionMetadata`.
    """

    partition: int = i32()
    """The index of the partition in its topic."""

    racks: list[str] = array(string)
    """The racks of the brokers that have a replica of the partition."""


class ConsumerGroupPartitionMetadataTopicMetadata(Struct):
    """Partitions and racks of one topic: an element of
    `ConsumerGroupPartitionMetadataValue.topics`.

    Source: `ConsumerGroupPartitionMetadataValue.json`, struct `TopicMetadata`.
    """

    topic_id: uuid.UUID = uuid_()
    """The id of a topic that the group subscribes to."""

    topic_name: str = string()
    """The name of a topic that the group subscribes to."""

    num_partitions: int = i32()
    """The number of partitions of the topic."""

    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)
    """The racks of each partition; empty if no partition has known racks. Not used after Kafka
    4.0.
    """


class ConsumerGroupPartitionMetadataValue(Message):
    """Value of the record that stores the partitions of the topics of a consumer group.

    From Kafka 4.1 on, ConsumerGroupMetadataValue.metadata_hash replaces this record (KIP-1101).

    Source: `ConsumerGroupPartitionMetadataValue.json`.
    """

    NAME = "ConsumerGroupPartitionMetadataValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 4

    topics: list[ConsumerGroupPartitionMetadataTopicMetadata] = array(
        ConsumerGroupPartitionMetadataTopicMetadata
    )
    """The metadata of each topic to which the group subscribes."""


class ConsumerGroupMemberMetadataKey(Message):
    """Key of the record that stores the subscription of a member.

    Source: `ConsumerGroupMemberMetadataKey.json`.
    """

    NAME = "ConsumerGroupMemberMetadataKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 5

    group_id: str = string()
    """The id of the group that has the member."""

    member_id: str = string()
    """The id of the member that has the subscription."""


class ClassicProtocol(Struct):
    """One protocol that the member supports: an element of
    `ClassicMemberMetadata.supported_protocols`.

    Source: `ConsumerGroupMemberMetadataValue.json`, struct `ClassicProtocol`.
    """

    name: str = string()
    """The name of the protocol, such as `range`."""

    metadata: bytes = bytes_()
    """The member's metadata for the protocol, such as its subscription."""


class ClassicMemberMetadata(Struct):
    """Session timeout and protocols of a member that uses the classic protocol: the value of
    `ConsumerGroupMemberMetadataValue.classic_member_metadata`.

    Source: `ConsumerGroupMemberMetadataValue.json`, struct `ClassicMemberMetadata`.
    """

    session_timeout_ms: int = i32()
    """The session timeout of the member, in milliseconds."""

    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)
    """The protocols that the member supports, in the order of its preference."""


class ConsumerGroupMemberMetadataValue(Message):
    """Value of the record that stores the subscription of a member.

    Source: `ConsumerGroupMemberMetadataValue.json`.
    """

    NAME = "ConsumerGroupMemberMetadataValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 5

    instance_id: str | None = string(nullable_since=0)
    """The group.instance.id of the member (static membership), or null."""

    rack_id: str | None = string(nullable_since=0)
    """The rack id of the member, or null."""

    client_id: str = string()
    """The client id that the member sent."""

    client_host: str = string()
    """The host from which the member connected."""

    subscribed_topic_names: list[str] = array(string)
    """The names of the topics to which the member subscribes."""

    subscribed_topic_regex: str | None = string(nullable_since=0)
    """The regular expression of the topics to which the member subscribes, or null."""

    rebalance_timeout_ms: int = i32(default=-1)
    """The rebalance timeout, in milliseconds."""

    server_assignor: str | None = string(nullable_since=0)
    """The server-side assignor to use, or null."""

    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable_since=0, tag=0
    )
    """The session timeout and protocols of a member that uses the classic protocol; null if it uses
    the consumer protocol.
    """


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Key of the record that stores the epoch of a group's target assignment.

    Source: `ConsumerGroupTargetAssignmentMetadataKey.json`.
    """

    NAME = "ConsumerGroupTargetAssignmentMetadataKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 6

    group_id: str = string()
    """The id of the group that has the target assignment."""


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """Value of the record that stores the epoch of a group's target assignment.

    Source: `ConsumerGroupTargetAssignmentMetadataValue.json`.
    """

    NAME = "ConsumerGroupTargetAssignmentMetadataValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 6

    assignment_epoch: int = i32()
    """The epoch of the target assignment: the group epoch for which it was computed."""


class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Key of the record that stores the target assignment of a member.

    Source: `ConsumerGroupTargetAssignmentMemberKey.json`.
    """

    NAME = "ConsumerGroupTargetAssignmentMemberKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 7

    group_id: str = string()
    """The id of the group that has the member."""

    member_id: str = string()
    """The id of the member that has the assignment."""


class ConsumerGroupTargetAssignmentMemberTopicPartition(Struct):
    """Assigned partitions of one topic: an element of
    `ConsumerGroupTargetAssignmentMemberValue.topic_partitions`.

    Source: `ConsumerGroupTargetAssignmentMemberValue.json`, struct `TopicPartition`.
    """

    topic_id: uuid.UUID = uuid_()
    """The id of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of partitions of the topic."""


class ConsumerGroupTargetAssignmentMemberValue(Message):
    """Value of the record that stores the target assignment of a member.

    Source: `ConsumerGroupTargetAssignmentMemberValue.json`.
    """

    NAME = "ConsumerGroupTargetAssignmentMemberValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 7

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberTopicPartition] = array(
        ConsumerGroupTargetAssignmentMemberTopicPartition
    )
    """The partitions of the target assignment."""


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """Key of the record that stores the current assignment of a member.

    Source: `ConsumerGroupCurrentMemberAssignmentKey.json`.
    """

    NAME = "ConsumerGroupCurrentMemberAssignmentKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 8

    group_id: str = string()
    """The id of the group that has the member."""

    member_id: str = string()
    """The id of the member that has the assignment."""


class ConsumerGroupCurrentMemberAssignmentTopicPartitions(Struct):
    """Partitions of one topic: an element of
    `ConsumerGroupCurrentMemberAssignmentValue.assigned_partitions` and of
    `ConsumerGroupCurrentMemberAssignmentValue.partitions_pending_revocation`.

    Source: `ConsumerGroupCurrentMemberAssignmentValue.json`, struct `TopicPartitions`.
    """

    topic_id: uuid.UUID = uuid_()
    """The id of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of partitions of the topic."""


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Value of the record that stores the current assignment of a member.

    Source: `ConsumerGroupCurrentMemberAssignmentValue.json`.
    """

    NAME = "ConsumerGroupCurrentMemberAssignmentValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 8

    member_epoch: int = i32()
    """The member epoch that the member's next heartbeat should have."""

    previous_member_epoch: int = i32()
    """The member epoch before `member_epoch`. A member that did not receive the response with the
    new epoch still sends the previous epoch.
    """

    state: int = i8()
    """The state of the member, as numbered in Kafka's MemberState."""

    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions] = array(
        ConsumerGroupCurrentMemberAssignmentTopicPartitions
    )
    """The partitions that are assigned to the member."""

    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions] = (
        array(ConsumerGroupCurrentMemberAssignmentTopicPartitions)
    )
    """The partitions that the member must revoke."""


class ConsumerGroupRegularExpressionKey(Message):
    """Key of the record that stores the topics that match a subscribed regular expression.

    Source: `ConsumerGroupRegularExpressionKey.json`.
    """

    NAME = "ConsumerGroupRegularExpressionKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 16

    group_id: str = string()
    """The id of the group that has the subscription."""

    regular_expression: str = string()
    """The regular expression that a member subscribes to."""


class ConsumerGroupRegularExpressionValue(Message):
    """Value of the record that stores the topics that match a subscribed regular expression.

    Source: `ConsumerGroupRegularExpressionValue.json`.
    """

    NAME = "ConsumerGroupRegularExpressionValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 16

    topics: list[str] = array(string)
    """The topics that matched the regular expression when it was last resolved."""

    version: int = i64()
    """The version of the metadata image with which the regular expression was last resolved."""

    timestamp: int = i64()
    """When the regular expression was last resolved, in milliseconds since the Unix epoch."""
