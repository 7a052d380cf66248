"""ListPartitionReassignments (API key 46): list the reassignments in progress."""

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
    """Element of `ListPartitionReassignmentsRequest.topics`.

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
    """The time in ms to wait for the request to complete."""

    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )
    """The topics whose reassignments to list, or null for all."""


class OngoingPartitionReassignment(Struct):
    """Element of `OngoingTopicReassignment.partitions`.

    Source: `ListPartitionReassignmentsResponse.json`, struct `OngoingPartitionReassignment`.
    """

    partition_index: int = i32()
    """The index of the partition."""

    replicas: list[int] = array(i32)
    """The current replica set."""

    adding_replicas: list[int] = array(i32)
    """The replicas that are being added."""

    removing_replicas: list[int] = array(i32)
    """The replicas that are being removed."""


class OngoingTopicReassignment(Struct):
    """Element of `ListPartitionReassignmentsResponse.topics`.

    Source: `ListPartitionReassignmentsResponse.json`, struct `OngoingTopicReassignment`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)
    """The ongoing reassignments for each partition."""


class ListPartitionReassignmentsResponse(Response, request=ListPartitionReassignmentsRequest):
    """Response to `ListPartitionReassignmentsRequest`.

    Source: `ListPartitionReassignmentsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    error_code: int = i16()
    """The top-level error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The top-level error message, or null if there was no error."""

    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
    """The ongoing reassignments for each topic."""
