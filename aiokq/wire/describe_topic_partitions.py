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
    """Name of one topic: an element of `DescribeTopicPartitionsRequest.topics`.

    Source: `DescribeTopicPartitionsRequest.json`, struct `TopicRequest`.
    """

    name: str = string()
    """The topic name."""


class Cursor(Struct):
    """First partition of a page: the value of `DescribeTopicPartitionsRequest.cursor` and of
    `DescribeTopicPartitionsResponse.next_cursor`.

    Source: `DescribeTopicPartitionsRequest.json`, struct `Cursor`.
    """

    topic_name: str = string()
    """The topic of the first partition on the page."""

    partition_index: int = i32()
    """The index of the first partition on the page."""


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
    """The topics to describe."""

    response_partition_limit: int = i32(default=2000)
    """The maximum number of partitions in the response."""

    cursor: Cursor | None = struct(Cursor, nullable_since=0)
    """The partition at which the response should begin, or null for the first partition."""


class DescribeTopicPartitionsResponsePartition(Struct):
    """Description of one partition: an element of
    `DescribeTopicPartitionsResponseTopic.partitions`.

    Source: `DescribeTopicPartitionsResponse.json`, struct
    `DescribeTopicPartitionsResponsePartition`.
    """

    error_code: int = i16()
    """The error code for the partition, or 0 if there was no error."""

    partition_index: int = i32()
    """The index of the partition in its topic."""

    leader_id: int = i32()
    """The ID of the leader broker, or -1 if there is no leader."""

    leader_epoch: int = i32(default=-1, ignorable=True)
    """The leader epoch of this partition."""

    replica_nodes: list[int] = array(i32)
    """The ids of the brokers that have a replica of the partition, the preferred leader first."""

    isr_nodes: list[int] = array(i32)
    """The ids of the brokers in the ISR, including the leader."""

    eligible_leader_replicas: list[int] | None = array(i32, nullable_since=0, default=None)
    """The eligible leader replicas of this partition, or null."""

    last_known_elr: list[int] | None = array(i32, nullable_since=0, default=None)
    """The last known eligible leader replicas of this partition, or null."""

    offline_replicas: list[int] = array(i32, ignorable=True)
    """The ids of the brokers whose replica is offline."""


class DescribeTopicPartitionsResponseTopic(Struct):
    """Description of one topic: an element of `DescribeTopicPartitionsResponse.topics`.

    Source: `DescribeTopicPartitionsResponse.json`, struct
    `DescribeTopicPartitionsResponseTopic`.
    """

    error_code: int = i16()
    """The error code for the topic, or 0 if there was no error."""

    name: str | None = string(nullable_since=0)
    """The topic name, or null."""

    topic_id: uuid.UUID = uuid_(ignorable=True)
    """The id of the topic that has the partitions."""

    is_internal: bool = boolean(ignorable=True)
    """Whether the topic is internal."""

    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    """The partitions of the topic that are on this page."""

    topic_authorized_operations: int = i32(default=-2147483648)
    """The operations on the topic that the client may do: bit n is operation n of Kafka's
    AclOperation; -2147483648 if the response does not give the operations.
    """


class DescribeTopicPartitionsResponse(Response, request=DescribeTopicPartitionsRequest):
    """Response to `DescribeTopicPartitionsRequest`.

    Source: `DescribeTopicPartitionsResponse.json`.
    """

    throttle_time_ms: int = i32(ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    """The topics that are on this page."""

    next_cursor: Cursor | None = struct(Cursor, nullable_since=0)
    """The partition at which the next page begins, or null if this is the last page."""
