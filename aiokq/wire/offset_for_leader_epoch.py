"""OffsetForLeaderEpoch (API key 23): return the end offsets of leader epochs in partitions."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "OffsetForLeaderEpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
]


class OffsetForLeaderPartition(Struct):
    """Partition and the epoch to look up: an element of `OffsetForLeaderTopic.partitions`.

    Source: `OffsetForLeaderEpochRequest.json`, struct `OffsetForLeaderPartition`.
    """

    partition: int = i32()
    """The index of the partition in its topic."""

    current_leader_epoch: int = i32(since=2, default=-1, ignorable=True)
    """The leader epoch in the client's metadata, or -1 for no check. An epoch above the broker's
    epoch gets the error UNKNOWN_LEADER_EPOCH. An epoch below the broker's epoch gets the error
    FENCED_LEADER_EPOCH.
    """

    leader_epoch: int = i32()
    """The leader epoch whose end offset to return."""


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic: an element of `OffsetForLeaderEpochRequest.topics`.

    Source: `OffsetForLeaderEpochRequest.json`, struct `OffsetForLeaderTopic`.
    """

    topic: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)
    """The partitions whose end offsets to return."""


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Request of the OffsetForLeaderEpoch API.

    Apache Kafka 4.0 removed versions 0 and 1.

    Version 1 is the same as version 0.

    Version 2 adds the current leader epoch, by which the broker detects outdated metadata.

    Version 3 adds ReplicaId. The default, -2, means a sender that may see offsets beyond the high
    watermark. Brokers treat requests of older versions as if they had -2, because followers also
    send such requests.

    Version 4 is the first flexible version.

    Source: `OffsetForLeaderEpochRequest.json`.
    """

    API_KEY = 23
    NAME = "OffsetForLeaderEpoch"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4

    replica_id: int = i32(since=3, default=-2, ignorable=True)
    """The broker id of the follower; -1 for a consumer, -2 for a sender that may see offsets beyond
    the high watermark.
    """

    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)
    """The topics whose end offsets to return."""


class OffsetForLeaderEpochEndOffset(Struct):
    """Leader epoch and the end offset of this epoch, for one partition: an element of
    `OffsetForLeaderTopicResult.partitions`.

    Source: `OffsetForLeaderEpochResponse.json`, struct `EpochEndOffset`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    partition: int = i32()
    """The index of the partition in its topic."""

    leader_epoch: int = i32(since=1, default=-1, ignorable=True)
    """The largest leader epoch in the log that is not above the requested epoch, or -1 if there is
    none.
    """

    end_offset: int = i64(default=-1)
    """The end offset of the epoch `leader_epoch`, or -1 if there is none."""


class OffsetForLeaderTopicResult(Struct):
    """Results for the partitions of one topic: an element of `OffsetForLeaderEpochResponse.topics`.

    Source: `OffsetForLeaderEpochResponse.json`, struct `OffsetForLeaderTopicResult`.
    """

    topic: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[OffsetForLeaderEpochEndOffset] = array(OffsetForLeaderEpochEndOffset)
    """The result for each partition."""


class OffsetForLeaderEpochResponse(Response, request=OffsetForLeaderEpochRequest):
    """Response to `OffsetForLeaderEpochRequest`.

    Apache Kafka 4.0 removed versions 0 and 1.

    Version 1 adds the leader epoch.

    Version 2 adds the throttle time.

    Version 3 is the same as version 2.

    Version 4 is the first flexible version.

    Source: `OffsetForLeaderEpochResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
    """The result for each topic."""
