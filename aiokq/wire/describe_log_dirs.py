"""DescribeLogDirs (API key 35): describe the log directories and replicas of a broker."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
]


class DescribableLogDirTopic(Struct):
    """Element of `DescribeLogDirsRequest.topics`.

    Source: `DescribeLogDirsRequest.json`, struct `DescribableLogDirTopic`.
    """

    topic: str = string()
    """The topic name."""

    partitions: list[int] = array(i32)
    """The partition indexes."""


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """Request of the DescribeLogDirs API.

    Apache Kafka 4.0 removed the versions before 1.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Version 3 is the same as version 2; the response has a new field.

    Version 4 is the same as version 2; the response has new fields.

    Source: `DescribeLogDirsRequest.json`.
    """

    API_KEY = 35
    NAME = "DescribeLogDirs"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 2

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable_since=0)
    """The topics whose logs to describe, or null for all topics."""


class DescribeLogDirsPartition(Struct):
    """Element of `DescribeLogDirsTopic.partitions`.

    Source: `DescribeLogDirsResponse.json`, struct `DescribeLogDirsPartition`.
    """

    partition_index: int = i32()
    """The partition index."""

    partition_size: int = i64()
    """The size of the log segments in this partition in bytes."""

    offset_lag: int = i64()
    """How far the end of the log is behind, in offsets: behind the high watermark, or for a future
    log behind the end of the current log.
    """

    is_future_key: bool = boolean()
    """Whether AlterReplicaLogDirs created this log to replace the current log of the replica."""


class DescribeLogDirsTopic(Struct):
    """Element of `DescribeLogDirsResult.topics`.

    Source: `DescribeLogDirsResponse.json`, struct `DescribeLogDirsTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)
    """The partitions."""


class DescribeLogDirsResult(Struct):
    """Element of `DescribeLogDirsResponse.results`.

    Source: `DescribeLogDirsResponse.json`, struct `DescribeLogDirsResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    log_dir: str = string()
    """The absolute log directory path."""

    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    """The topics."""

    total_bytes: int = i64(since=4, default=-1, ignorable=True)
    """The size in bytes of the volume with the log directory, without remote storage."""

    usable_bytes: int = i64(since=4, default=-1, ignorable=True)
    """The free bytes of the volume with the log directory, without remote storage."""


class DescribeLogDirsResponse(Response, request=DescribeLogDirsRequest):
    """Response to `DescribeLogDirsRequest`.

    Apache Kafka 4.0 removed the versions before 1.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 adds the top-level ErrorCode field.

    Version 4 adds the TotalBytes and UsableBytes fields.

    Source: `DescribeLogDirsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    error_code: int = i16(since=3, ignorable=True)
    """The error code, or 0 if there was no error."""

    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
    """The log directories."""
