"""The DeleteRecords API (key 21), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
]


class DeleteRecordsPartition(Struct):
    """Element of `DeleteRecordsTopic.partitions`.

    Source: `DeleteRecordsRequest.json`, struct `DeleteRecordsPartition`.
    """

    partition_index: int = i32()
    """The partition index."""

    offset: int = i64()
    """The deletion offset. -1 means that records should be truncated to the high watermark."""


class DeleteRecordsTopic(Struct):
    """Element of `DeleteRecordsRequest.topics`.

    Source: `DeleteRecordsRequest.json`, struct `DeleteRecordsTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)
    """Each partition that we want to delete records from."""


class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    """Request of the DeleteRecords API.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Source: `DeleteRecordsRequest.json`.
    """

    API_KEY = 21
    NAME = "DeleteRecords"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    """Each topic that we want to delete records from."""

    timeout_ms: int = i32()
    """How long to wait for the deletion to complete, in milliseconds."""


class DeleteRecordsPartitionResult(Struct):
    """Element of `DeleteRecordsTopicResult.partitions`.

    Source: `DeleteRecordsResponse.json`, struct `DeleteRecordsPartitionResult`.
    """

    partition_index: int = i32()
    """The partition index."""

    low_watermark: int = i64()
    """The partition low water mark."""

    error_code: int = i16()
    """The deletion error code, or 0 if the deletion succeeded."""


class DeleteRecordsTopicResult(Struct):
    """Element of `DeleteRecordsResponse.topics`.

    Source: `DeleteRecordsResponse.json`, struct `DeleteRecordsTopicResult`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)
    """Each partition that we wanted to delete records from."""


class DeleteRecordsResponse(Response, request=DeleteRecordsRequest):
    """Response to `DeleteRecordsRequest`.

    Starting in version 1, on quota violation, brokers send out responses before throttling.

    Version 2 is the first flexible version.

    Source: `DeleteRecordsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
    """Each topic that we wanted to delete records from."""
