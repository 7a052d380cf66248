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
    """Partitions of one topic to describe: an element of `DescribeLogDirsRequest.topics`.

    Source: `DescribeLogDirsRequest.json`, struct `DescribableLogDirTopic`.
    """

    topic: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of partitions of the topic."""


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """Request of the DescribeLogDirs API.

    Apache Kafka 4.0 removed version 0.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Version 3 is the same as version 2; the response adds an error code for the whole request.

    Version 4 is the same as version 2; the response adds TotalBytes and UsableBytes.

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
    """Log of one partition: an element of `DescribeLogDirsTopic.partitions`.

    Source: `DescribeLogDirsResponse.json`, struct `DescribeLogDirsPartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    partition_size: int = i64()
    """The size of the partition's log segments in this log directory, in bytes."""

    offset_lag: int = i64()
    """The number of offsets by which the log end offset is behind the high watermark or, for a
    future log, behind the log end offset of the current log.
    """

    is_future_key: bool = boolean()
    """Whether the log is a future log, created by AlterReplicaLogDirs."""


class DescribeLogDirsTopic(Struct):
    """Logs of the partitions of one topic: an element of `DescribeLogDirsResult.topics`.

    Source: `DescribeLogDirsResponse.json`, struct `DescribeLogDirsTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)
    """The partitions that have logs in the log directory."""


class DescribeLogDirsResult(Struct):
    """Description of one log directory: an element of `DescribeLogDirsResponse.results`.

    Source: `DescribeLogDirsResponse.json`, struct `DescribeLogDirsResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    log_dir: str = string()
    """The absolute path of the log directory."""

    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    """The topics that have logs in the log directory."""

    total_bytes: int = i64(since=4, default=-1, ignorable=True)
    """The size in bytes of the volume that holds the log directory; -1 if it is unknown. Remote
    storage is not counted.
    """

    usable_bytes: int = i64(since=4, default=-1, ignorable=True)
    """The free bytes of the volume that holds the log directory; -1 if unknown. Remote storage is
    not counted.
    """


class DescribeLogDirsResponse(Response, request=DescribeLogDirsRequest):
    """Response to `DescribeLogDirsRequest`.

    Apache Kafka 4.0 removed version 0.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 adds an error code for the whole request.

    Version 4 adds TotalBytes and UsableBytes.

    Source: `DescribeLogDirsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16(since=3, ignorable=True)
    """The error code of the whole request, or 0 if there was no error."""

    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
    """The result for each log directory."""
