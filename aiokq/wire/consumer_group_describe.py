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

    Version 1 is the same as version 0; the response has the new field MemberType (KIP-1099).

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
    """Whether the response should have the authorized operations."""


class ConsumerGroupDescribeTopicPartitions(Struct):
    """Element of `ConsumerGroupDescribeAssignment.topic_partitions`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `TopicPartitions`.
    """

    topic_id: uuid.UUID = uuid_()
    """The topic ID."""

    topic_name: str = string()
    """The topic name."""

    partitions: list[int] = array(i32)
    """The partitions."""


class ConsumerGroupDescribeAssignment(Struct):
    """Value of `ConsumerGroupDescribeMember.assignment` and value of
    `ConsumerGroupDescribeMember.target_assignment`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `Assignment`.
    """

    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = array(
        ConsumerGroupDescribeTopicPartitions
    )
    """The partitions assigned to the member."""


class ConsumerGroupDescribeMember(Struct):
    """Element of `ConsumerGroupDescribedGroup.members`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `Member`.
    """

    member_id: str = string()
    """The member ID."""

    instance_id: str | None = string(nullable_since=0, default=None)
    """The member instance ID."""

    rack_id: str | None = string(nullable_since=0, default=None)
    """The member rack ID."""

    member_epoch: int = i32()
    """The current member epoch."""

    client_id: str = string()
    """The client ID."""

    client_host: str = string()
    """The client host."""

    subscribed_topic_names: list[str] = array(string)
    """The subscribed topic names."""

    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    """The regular expression of the subscribed topics, or null."""

    assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    """The current assignment."""

    target_assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    """The target assignment."""

    member_type: int = i8(since=1, default=-1, ignorable=True)
    """The protocol of the member: 0 for classic, 1 for consumer, -1 if unknown."""


class ConsumerGroupDescribedGroup(Struct):
    """Element of `ConsumerGroupDescribeResponse.groups`.

    Source: `ConsumerGroupDescribeResponse.json`, struct `DescribedGroup`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The top-level error message, or null if there was no error."""

    group_id: str = string()
    """The group ID string."""

    group_state: str = string()
    """The state of the group, or the empty string."""

    group_epoch: int = i32()
    """The group epoch."""

    assignment_epoch: int = i32()
    """The assignment epoch."""

    assignor_name: str = string()
    """The selected assignor."""

    members: list[ConsumerGroupDescribeMember] = array(ConsumerGroupDescribeMember)
    """The members."""

    authorized_operations: int = i32(default=-2147483648)
    """The operations on the group that the client may do, one bit per operation."""


class ConsumerGroupDescribeResponse(Response, request=ConsumerGroupDescribeRequest):
    """Response to `ConsumerGroupDescribeRequest`.

    Version 1 adds MemberType (KIP-1099).

    Errors: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
    TOPIC_AUTHORIZATION_FAILED.

    Source: `ConsumerGroupDescribeResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    groups: list[ConsumerGroupDescribedGroup] = array(ConsumerGroupDescribedGroup)
    """Each described group."""
