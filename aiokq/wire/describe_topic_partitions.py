"""DescribeTopicPartitions (API key 75): describe the partitions of topics, page by page."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, boolean, i16, i32, string, struct, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "Cursor",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
    "DescribeTopicPartitionsTopicRequest",
]


class DescribeTopicPartitionsTopicRequest(Struct):
    """Element of `DescribeTopicPartitionsRequest.topics`.

    Source: `DescribeTopicPartitionsRequest.json`, struct `TopicRequest`.
    """

    name: str = string()
    """The topic name."""


class Cursor(Struct):
    """Value of `DescribeTopicPartitionsRequest.cursor`.

    Source: `DescribeTopicPartitionsRequest.json`, struct `Cursor`.
    """

    topic_name: str = string()
    """The topic to begin with."""

    partition_index: int = i32()
    """The partition index to start with."""


class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """Request of the DescribeTopicPartitions API.

    Source: `DescribeTopicPartitionsRequest.json`.
    """

    API_KEY = 75
    NAME = "DescribeTopicPartitions"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    topics: list[DescribeTopicPartitionsTopicRequest] = array(DescribeTopicPartitionsTopicRequest)
    """The topics to fetch details for."""

    response_partition_limit: int = i32(default=2000)
    """The maximum number of partitions included in the response."""

    cursor: Cursor | None = struct(Cursor, nullable_since=0)
    """The topic and partition at which the response should begin, or null."""


class DescribeTopicPartitionsResponsePartition(Struct):
    """Element of `DescribeTopicPartitionsResponseTopic.partitions`.

    Source: `DescribeTopicPartitionsResponse.json`, struct
    `DescribeTopicPartitionsResponsePartition`.
    """

    error_code: int = i16()
    """The partition error, or 0 if there was no error."""

    partition_index: int = i32()
    """The partition index."""

    leader_id: int = i32()
    """The ID of the leader broker, or -1 if there is no leader."""

    leader_epoch: int = i32(default=-1, ignorable=True)
    """The leader epoch of this partition."""

    replica_nodes: list[int] = array(i32)
    """The set of all nodes that host this partition."""

    isr_nodes: list[int] = array(i32)
    """The set of nodes that are in sync with the leader for this partition."""

    eligible_leader_replicas: list[int] | None = array(i32, nullable_since=0, default=None)
    """The eligible leader replicas of this partition, or null."""

    last_known_elr: list[int] | None = array(i32, nullable_since=0, default=None)
    """The last known ELR."""

    offline_replicas: list[int] = array(i32, ignorable=True)
    """The set of offline replicas of this partition."""


class DescribeTopicPartitionsResponseTopic(Struct):
    """Element of `DescribeTopicPartitionsResponse.topics`.

    Source: `DescribeTopicPartitionsResponse.json`, struct
    `DescribeTopicPartitionsResponseTopic`.
    """

    error_code: int = i16()
    """The topic error, or 0 if there was no error."""

    name: str | None = string(nullable_since=0)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(ignorable=True)
    """The topic id."""

    is_internal: bool = boolean(ignorable=True)
    """True if the topic is internal."""

    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    """Each partition in the topic."""

    topic_authorized_operations: int = i32(default=-2147483648)
    """The operations on the topic that the client may do, one bit per operation."""


class DescribeTopicPartitionsResponse(Response, request=DescribeTopicPartitionsRequest):
    """Response to `DescribeTopicPartitionsRequest`.

    Source: `DescribeTopicPartitionsResponse.json`.
    """

    throttle_time_ms: int = i32(ignorable=True)
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    """Each topic in the response."""

    next_cursor: Cursor | None = struct(Cursor, nullable_since=0)
    """The topic and partition at which the next request should begin, or null."""
