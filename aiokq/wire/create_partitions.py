"""CreatePartitions (API key 37): add partitions to topics."""

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
    """Brokers of one new partition: an element of `CreatePartitionsTopic.assignments`.

    Source: `CreatePartitionsRequest.json`, struct `CreatePartitionsAssignment`.
    """

    broker_ids: list[int] = array(i32)
    """The brokers to place the new partition on."""


class CreatePartitionsTopic(Struct):
    """Topic that gets new partitions: an element of `CreatePartitionsRequest.topics`.

    Source: `CreatePartitionsRequest.json`, struct `CreatePartitionsTopic`.
    """

    name: str = string()
    """The topic name."""

    count: int = i32()
    """The new number of partitions, including the existing partitions."""

    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable_since=0
    )
    """The brokers of each new partition, or null to let the controller choose them."""


class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """Request of the CreatePartitions API.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Version 3 is the same as version 2, but the response may have the error
    THROTTLING_QUOTA_EXCEEDED, if the creation of partitions is throttled (KIP-599).

    Source: `CreatePartitionsRequest.json`.
    """

    API_KEY = 37
    NAME = "CreatePartitions"
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    """The topics that get more partitions."""

    timeout_ms: int = i32()
    """How long the broker waits for the partitions to be created, in milliseconds."""

    validate_only: bool = boolean()
    """Whether to validate the request without changing anything."""


class CreatePartitionsTopicResult(Struct):
    """Result for one topic: an element of `CreatePartitionsResponse.results`.

    Source: `CreatePartitionsResponse.json`, struct `CreatePartitionsTopicResult`.
    """

    name: str = string()
    """The topic name."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The error message, or null if there was no error."""


class CreatePartitionsResponse(Response, request=CreatePartitionsRequest):
    """Response to `CreatePartitionsRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 is the same as version 2, but the response may have the error
    THROTTLING_QUOTA_EXCEEDED, if the creation of partitions is throttled (KIP-599).

    Source: `CreatePartitionsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
    """The result for each topic."""
