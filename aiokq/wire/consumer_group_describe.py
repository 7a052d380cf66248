"""ConsumerGroupDescribe (API key 69): describe groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, boolean, i8, i16, i32, string, struct, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ConsumerGroupDescribeAssignment",
    "ConsumerGroupDescribeMember",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupDescribeTopicPartitions",
    "ConsumerGroupDescribedGroup",
]


class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """Request of the ConsumerGroupDescribe API.

    Version 1 is the same as version 0; the response adds MemberType (KIP-1099).

    Source: `ConsumerGroupDescribeRequest.json`.
    """

    API_KEY = 69
    NAME = "ConsumerGroupDescribe"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    group_ids: list[str] = array(string)
    """The ids of the groups to describe."""

    include_authorized_operations: bool = boolean()
    """Whether the response should have the authorized operations of each group."""


class ConsumerGroupDescribeTopicPartitions(Struct):
    """Assigned partitions of one topic: an element of
    `ConsumerGroupDescribeAssignment.topic_partitions`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `TopicPartitions`.
    """

    topic_id: uuid.UUID = uuid_()
    """The id of the topic that has the partitions."""

    topic_name: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of partitions of the topic."""


class ConsumerGroupDescribeAssignment(Struct):
    """Assignment of a member: the value of `ConsumerGroupDescribeMember.assignment` and of
    `ConsumerGroupDescribeMember.target_assignment`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `Assignment`.
    """

    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = array(
        ConsumerGroupDescribeTopicPartitions
    )
    """The partitions assigned to the member."""


class ConsumerGroupDescribeMember(Struct):
    """Description of one member: an element of `ConsumerGroupDescribedGroup.members`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `Member`.
    """

    member_id: str = string()
    """The id of the described member."""

    instance_id: str | None = string(nullable_since=0, default=None)
    """The group.instance.id of the member (static membership), or null."""

    rack_id: str | None = string(nullable_since=0, default=None)
    """The rack id of the member, or null."""

    member_epoch: int = i32()
    """The current epoch of the member."""

    client_id: str = string()
    """The client id that the member sent."""

    client_host: str = string()
    """The host from which the member connected."""

    subscribed_topic_names: list[str] = array(string)
    """The names of the topics to which the member subscribes."""

    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    """The regular expression of the topics to which the member subscribes, or null."""

    assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    """The partitions that are assigned to the member."""

    target_assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    """The target assignment, which the member reaches by revoking and receiving partitions."""

    member_type: int = i8(since=1, default=-1, ignorable=True)
    """The protocol of the member: 0 for classic, 1 for consumer, -1 if unknown."""


class ConsumerGroupDescribedGroup(Struct):
    """Description of one group: an element of `ConsumerGroupDescribeResponse.groups`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `DescribedGroup`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The error message, or null if there was no error."""

    group_id: str = string()
    """The id of the described group."""

    group_state: str = string()
    """The state of the group, such as `Stable`; the empty string if it is unknown."""

    group_epoch: int = i32()
    """The current epoch of the group."""

    assignment_epoch: int = i32()
    """The epoch of the target assignment: the group epoch for which it was computed."""

    assignor_name: str = string()
    """The name of the assignor that the group uses."""

    members: list[ConsumerGroupDescribeMember] = array(ConsumerGroupDescribeMember)
    """The members of the group."""

    authorized_operations: int = i32(default=-2147483648)
    """The operations on the group that the client may do: bit n is operation n of Kafka's
    AclOperation; -2147483648 if the response does not give the operations.
    """


class ConsumerGroupDescribeResponse(Response, request=ConsumerGroupDescribeRequest):
    """Response to `ConsumerGroupDescribeRequest`.

    Version 1 adds MemberType (KIP-1099).

    Errors: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
    TOPIC_AUTHORIZATION_FAILED.

    Source: `ConsumerGroupDescribeResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    groups: list[ConsumerGroupDescribedGroup] = array(ConsumerGroupDescribedGroup)
    """The result for each group."""
