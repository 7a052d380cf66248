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
    """Element of `ConsumerGroupHeartbeatRequest.topic_partitions`.

    Source: `ConsumerGroupHeartbeatRequest.json`, struct `TopicPartitions`.
    """

    topic_id: uuid.UUID = uuid_()
    """The topic ID."""

    partitions: list[int] = array(i32)
    """The partitions."""


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
    """The group identifier."""

    member_id: str = string()
    """The member id that the consumer generated, and keeps as long as its process runs."""

    member_epoch: int = i32()
    """The current member epoch; 0 to join the group; -1 to leave the group; -2 to indicate that
    the static member will rejoin.
    """

    instance_id: str | None = string(nullable_since=0, default=None)
    """null if not provided or if it didn't change since the last heartbeat; the instance Id
    otherwise.
    """

    rack_id: str | None = string(nullable_since=0, default=None)
    """null if not provided or if it didn't change since the last heartbeat; otherwise the rack id
    of the consumer.
    """

    rebalance_timeout_ms: int = i32(default=-1)
    """-1 if it didn't change since the last heartbeat; otherwise the maximum time in milliseconds
    that the coordinator waits for the member to revoke its partitions.
    """

    subscribed_topic_names: list[str] | None = array(string, nullable_since=0, default=None)
    """null if they didn't change since the last heartbeat; the subscribed topic names otherwise."""

    subscribed_topic_regex: str | None = string(since=1, nullable_since=1, default=None)
    """null if it didn't change since the last heartbeat; the subscribed topic regex otherwise."""

    server_assignor: str | None = string(nullable_since=0, default=None)
    """null if not used or if it didn't change since the last heartbeat; otherwise the server-side
    assignor to use.
    """

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = array(
        ConsumerGroupHeartbeatTopicPartitions, nullable_since=0, default=None
    )
    """null if they didn't change since the last heartbeat; otherwise the partitions that the
    member owns.
    """


class ConsumerGroupHeartbeatAssignment(Struct):
    """Value of `ConsumerGroupHeartbeatResponse.assignment`.

    Source: `ConsumerGroupHeartbeatResponse.json`, struct `Assignment`.
    """

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = array(
        ConsumerGroupHeartbeatTopicPartitions
    )
    """The assigned partitions that the member can use immediately."""


class ConsumerGroupHeartbeatResponse(Response, request=ConsumerGroupHeartbeatRequest):
    """Response to `ConsumerGroupHeartbeatRequest`.

    Errors: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
    UNSUPPORTED_ASSIGNOR, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
    TOPIC_AUTHORIZATION_FAILED; from version 1 on also INVALID_REGULAR_EXPRESSION.

    Source: `ConsumerGroupHeartbeatResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    error_code: int = i16()
    """The top-level error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The top-level error message, or null if there was no error."""

    member_id: str | None = string(nullable_since=0, default=None)
    """The member id. From version 1 on, the consumer generates it; in version 0, the coordinator
    does so if the request has none.
    """

    member_epoch: int = i32()
    """The member epoch."""

    heartbeat_interval_ms: int = i32()
    """The heartbeat interval in milliseconds."""

    assignment: ConsumerGroupHeartbeatAssignment | None = struct(
        ConsumerGroupHeartbeatAssignment, nullable_since=0
    )
    """The assignment of the member, or null if it didn't change."""
