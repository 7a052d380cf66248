"""ListPartitionReassignments (API key 46): list the reassignments of partitions in progress."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
]


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic: an element of `ListPartitionReassignmentsRequest.topics`.

    Source: `ListPartitionReassignmentsRequest.json`, struct
    `ListPartitionReassignmentsTopics`.
    """

    name: str = string()
    """The topic name."""

    partition_indexes: list[int] = array(i32)
    """The partitions whose reassignments to list."""


class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    """Request of the ListPartitionReassignments API.

    Source: `ListPartitionReassignmentsRequest.json`.
    """

    API_KEY = 46
    NAME = "ListPartitionReassignments"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    timeout_ms: int = i32(default=60000)
    """How long the broker waits for the request to complete, in milliseconds."""

    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )
    """The topics whose reassignments to list, or null for all topics."""


class OngoingPartitionReassignment(Struct):
    """Reassignment of one partition: an element of `OngoingTopicReassignment.partitions`.

    Source: `ListPartitionReassignmentsResponse.json`, struct `OngoingPartitionReassignment`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    replicas: list[int] = array(i32)
    """The broker ids of the current replicas."""

    adding_replicas: list[int] = array(i32)
    """The broker ids of the replicas that are being added."""

    removing_replicas: list[int] = array(i32)
    """The broker ids of the replicas that are being removed."""


class OngoingTopicReassignment(Struct):
    """Reassignments of the partitions of one topic: an element of
    `ListPartitionReassignmentsResponse.topics`.

    Source: `ListPartitionReassignmentsResponse.json`, struct `OngoingTopicReassignment`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)
    """The reassignment of each partition."""


class ListPartitionReassignmentsResponse(Response, request=ListPartitionReassignmentsRequest):
    """Response to `ListPartitionReassignmentsRequest`.

    Source: `ListPartitionReassignmentsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code of the whole request, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message of the whole request, or null if there was no error."""

    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
    """The reassignments in progress, by topic."""
