"""DeleteRecords (API key 21): delete the records of partitions before given offsets."""

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
    """Partition and the offset before which to delete records: an element of
    `DeleteRecordsTopic.partitions`.

    Source: `DeleteRecordsRequest.json`, struct `DeleteRecordsPartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    offset: int = i64()
    """Records before this offset are deleted; -1 means the high watermark."""


class DeleteRecordsTopic(Struct):
    """Partitions of one topic: an element of `DeleteRecordsRequest.topics`.

    Source: `DeleteRecordsRequest.json`, struct `DeleteRecordsTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)
    """The partitions to delete records from."""


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
    """The topics to delete records from."""

    timeout_ms: int = i32()
    """How long the broker waits for the deletion to complete, in milliseconds."""


class DeleteRecordsPartitionResult(Struct):
    """Result for one partition: an element of `DeleteRecordsTopicResult.partitions`.

    Source: `DeleteRecordsResponse.json`, struct `DeleteRecordsPartitionResult`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    low_watermark: int = i64()
    """The log start offset of the partition after the deletion, or -1 after an error."""

    error_code: int = i16()
    """The error code, or 0 if the deletion succeeded."""


class DeleteRecordsTopicResult(Struct):
    """Results for the partitions of one topic: an element of `DeleteRecordsResponse.topics`.

    Source: `DeleteRecordsResponse.json`, struct `DeleteRecordsTopicResult`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)
    """The result for each partition."""


class DeleteRecordsResponse(Response, request=DeleteRecordsRequest):
    """Response to `DeleteRecordsRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Source: `DeleteRecordsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
    """The result for each topic."""
