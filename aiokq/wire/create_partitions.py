"""The CreatePartitions API (key 37), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
]


class CreatePartitionsAssignment(Struct):
    """Element of `CreatePartitionsTopic.assignments`.

    Source: `CreatePartitionsRequest.json`, struct `CreatePartitionsAssignment`.
    """

    broker_ids: list[int] = array(i32)
    """The assigned broker IDs."""


class CreatePartitionsTopic(Struct):
    """Element of `CreatePartitionsRequest.topics`.

    Source: `CreatePartitionsRequest.json`, struct `CreatePartitionsTopic`.
    """

    name: str = string()
    """The topic name."""

    count: int = i32()
    """The new partition count."""

    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable_since=0
    )
    """The new partition assignments."""


class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """Request of the CreatePartitions API.

    Version 1 is the same as version 0.

    Version 2 adds flexible version support.

    Version 3 is identical to version 2 but may return a THROTTLING_QUOTA_EXCEEDED error in
    the response if the partitions creation is throttled (KIP-599).

    Source: `CreatePartitionsRequest.json`.
    """

    API_KEY = 37
    NAME = "CreatePartitions"
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    """Each topic that we want to create new partitions inside."""

    timeout_ms: int = i32()
    """The time in ms to wait for the partitions to be created."""

    validate_only: bool = boolean()
    """If true, then validate the request, but don't actually increase the number of partitions."""


class CreatePartitionsTopicResult(Struct):
    """Element of `CreatePartitionsResponse.results`.

    Source: `CreatePartitionsResponse.json`, struct `CreatePartitionsTopicResult`.
    """

    name: str = string()
    """The topic name."""

    error_code: int = i16()
    """The result error, or zero if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The result message, or null if there was no error."""


class CreatePartitionsResponse(Response, request=CreatePartitionsRequest):
    """Response to `CreatePartitionsRequest`.

    Starting in version 1, on quota violation, brokers send out responses before throttling.

    Version 2 adds flexible version support.

    Version 3 is identical to version 2 but may return a THROTTLING_QUOTA_EXCEEDED error in
    the response if the partitions creation is throttled (KIP-599).

    Source: `CreatePartitionsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
    """The partition creation results for each topic."""
