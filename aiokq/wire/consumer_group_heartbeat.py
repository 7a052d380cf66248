"""ConsumerGroupHeartbeat (API key 68): join, stay in or leave a group of the consumer protocol."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, i16, i32, string, struct, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ConsumerGroupHeartbeatAssignment",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupHeartbeatTopicPartitions",
]


class ConsumerGroupHeartbeatTopicPartitions(Struct):
    """Partitions of one topic: an element of
    `ConsumerGroupHeartbeatRequest.topic_partitions` and of
    `ConsumerGroupHeartbeatAssignment.topic_partitions`.

    Source: `ConsumerGroupHeartbeatRequest.json`, struct `TopicPartitions`.
    """

    topic_id: uuid.UUID = uuid_()
    """The id of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of partitions of the topic."""


class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """Request of the ConsumerGroupHeartbeat API.

    Version 1 adds SubscribedTopicRegex (KIP-848), and requires the consumer to generate its member
    id itself (KIP-1082).

    Source: `ConsumerGroupHeartbeatRequest.json`.
    """

    API_KEY = 68
    NAME = "ConsumerGroupHeartbeat"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    group_id: str = string()
    """The id of the group that the member belongs to or joins."""

    member_id: str = string()
    """The member id; from version 1 on, the consumer generates the id."""

    member_epoch: int = i32()
    """The current member epoch; 0 to join the group, -1 to leave it, -2 to leave it as a static
    member that will rejoin.
    """

    instance_id: str | None = string(nullable_since=0, default=None)
    """The group.instance.id; null if there is none, or if it has not changed since the last
    heartbeat.
    """

    rack_id: str | None = string(nullable_since=0, default=None)
    """The rack id of the consumer; null if there is none, or if it has not changed since the last
    heartbeat.
    """

    rebalance_timeout_ms: int = i32(default=-1)
    """The maximum time that the coordinator waits for the member to revoke partitions, in
    milliseconds; -1 if this time has not changed since the last heartbeat.
    """

    subscribed_topic_names: list[str] | None = array(string, nullable_since=0, default=None)
    """The names of the subscribed topics; null if they have not changed since the last heartbeat.
    """

    subscribed_topic_regex: str | None = string(since=1, nullable_since=1, default=None)
    """The regular expression of the subscribed topics; null if it has not changed since the last
    heartbeat.
    """

    server_assignor: str | None = string(nullable_since=0, default=None)
    """The server-side assignor to use; null for the coordinator's default, or if the assignor has
    not changed since the last heartbeat.
    """

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = array(
        ConsumerGroupHeartbeatTopicPartitions, nullable_since=0, default=None
    )
    """The partitions that the member owns; null if they have not changed since the last heartbeat.
    """


class ConsumerGroupHeartbeatAssignment(Struct):
    """Assignment of the member: the value of `ConsumerGroupHeartbeatResponse.assignment`.

    Source: `ConsumerGroupHeartbeatResponse.json`, struct `Assignment`.
    """

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = array(
        ConsumerGroupHeartbeatTopicPartitions
    )
    """The assigned partitions that the member can consume immediately."""


class ConsumerGroupHeartbeatResponse(Response, request=ConsumerGroupHeartbeatRequest):
    """Response to `ConsumerGroupHeartbeatRequest`.

    Errors: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
    UNSUPPORTED_ASSIGNOR, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
    TOPIC_AUTHORIZATION_FAILED; from version 1 on also INVALID_REGULAR_EXPRESSION.

    Source: `ConsumerGroupHeartbeatResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code of the whole request, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The error message of the whole request, or null if there was no error."""

    member_id: str | None = string(nullable_since=0, default=None)
    """The member id. In version 0, the coordinator generates it if the request has none; from
    version 1 on, the consumer always generates it.
    """

    member_epoch: int = i32()
    """The member epoch that the next heartbeat should have."""

    heartbeat_interval_ms: int = i32()
    """The interval between the member's heartbeats, in milliseconds."""

    assignment: ConsumerGroupHeartbeatAssignment | None = struct(
        ConsumerGroupHeartbeatAssignment, nullable_since=0
    )
    """The assignment of the member, or null if it did not change."""
