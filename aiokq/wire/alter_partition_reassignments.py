"""AlterPartitionReassignments (API key 45): move replicas of partitions to other brokers."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
]


class ReassignablePartition(Struct):
    """New replicas of one partition: an element of `ReassignableTopic.partitions`.

    Source: `AlterPartitionReassignmentsRequest.json`, struct `ReassignablePartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    replicas: list[int] | None = array(i32, nullable_since=0, default=None)
    """The broker ids of the new replicas, or null to cancel the pending reassignment."""


class ReassignableTopic(Struct):
    """Partitions of one topic to reassign: an element of
    `AlterPartitionReassignmentsRequest.topics`.

    Source: `AlterPartitionReassignmentsRequest.json`, struct `ReassignableTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[ReassignablePartition] = array(ReassignablePartition)
    """The partitions to reassign."""


class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    """Request of the AlterPartitionReassignments API.

    Version 1 adds AllowReplicationFactorChange.

    Source: `AlterPartitionReassignmentsRequest.json`.
    """

    API_KEY = 45
    NAME = "AlterPartitionReassignments"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    timeout_ms: int = i32(default=60000)
    """How long the broker waits for the request to complete, in milliseconds."""

    allow_replication_factor_change: bool = boolean(since=1, default=True)
    """Whether the request may change the replication factor of a partition."""

    topics: list[ReassignableTopic] = array(ReassignableTopic)
    """The topics to reassign."""


class ReassignablePartitionResponse(Struct):
    """Result for one partition: an element of `ReassignableTopicResponse.partitions`.

    Source: `AlterPartitionReassignmentsResponse.json`, struct
    `ReassignablePartitionResponse`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code for this partition, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message for this partition, or null if there was no error."""


class ReassignableTopicResponse(Struct):
    """Results for the partitions of one topic: an element of
    `AlterPartitionReassignmentsResponse.responses`.

    Source: `AlterPartitionReassignmentsResponse.json`, struct `ReassignableTopicResponse`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)
    """The result for each partition."""


class AlterPartitionReassignmentsResponse(Response, request=AlterPartitionReassignmentsRequest):
    """Response to `AlterPartitionReassignmentsRequest`.

    Version 1 adds AllowReplicationFactorChange.

    Source: `AlterPartitionReassignmentsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    """Whether the request was allowed to change the replication factor of a partition."""

    error_code: int = i16()
    """The error code of the whole request, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message of the whole request, or null if there was no error."""

    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
    """The result for each topic."""
