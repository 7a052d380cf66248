"""The OffsetForLeaderEpoch API (key 23), all versions."""

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
    """Element of `OffsetForLeaderTopic.partitions`.

    Source: `OffsetForLeaderEpochRequest.json`, struct `OffsetForLeaderPartition`.
    """

    partition: int = i32()
    """The partition index."""

    current_leader_epoch: int = i32(since=2, default=-1, ignorable=True)
    """An epoch used to fence consumers/replicas with old metadata. If the epoch provided by the
    client is larger than the current epoch known to the broker, then the UNKNOWN_LEADER_EPOCH
    error code will be returned. If the provided epoch is smaller, then the
    FENCED_LEADER_EPOCH error code will be returned.
    """

    leader_epoch: int = i32()
    """The epoch to look up an offset for."""


class OffsetForLeaderTopic(Struct):
    """Element of `OffsetForLeaderEpochRequest.topics`.

    Source: `OffsetForLeaderEpochRequest.json`, struct `OffsetForLeaderTopic`.
    """

    topic: str = string()
    """The topic name."""

    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)
    """Each partition to get offsets for."""


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Request of the OffsetForLeaderEpoch API.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.

    Version 1 is the same as version 0.

    Version 2 adds the current leader epoch to support fencing.

    Version 3 adds ReplicaId (the default is -2 which conventionally represents a "debug"
    consumer which is allowed to see offsets beyond the high watermark). Followers will use
    this replicaId when using an older version of the protocol.

    Version 4 enables flexible versions.

    Source: `OffsetForLeaderEpochRequest.json`.
    """

    API_KEY = 23
    NAME = "OffsetForLeaderEpoch"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4

    replica_id: int = i32(since=3, default=-2, ignorable=True)
    """The broker ID of the follower, of -1 if this request is from a consumer."""

    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)
    """Each topic to get offsets for."""


class OffsetForLeaderEpochEndOffset(Struct):
    """Element of `OffsetForLeaderTopicResult.partitions`.

    Source: `OffsetForLeaderEpochResponse.json`, struct `EpochEndOffset`.
    """

    error_code: int = i16()
    """The error code 0, or if there was no error."""

    partition: int = i32()
    """The partition index."""

    leader_epoch: int = i32(since=1, default=-1, ignorable=True)
    """The leader epoch of the partition."""

    end_offset: int = i64(default=-1)
    """The end offset of the epoch."""


class OffsetForLeaderTopicResult(Struct):
    """Element of `OffsetForLeaderEpochResponse.topics`.

    Source: `OffsetForLeaderEpochResponse.json`, struct `OffsetForLeaderTopicResult`.
    """

    topic: str = string()
    """The topic name."""

    partitions: list[OffsetForLeaderEpochEndOffset] = array(OffsetForLeaderEpochEndOffset)
    """Each partition in the topic we fetched offsets for."""


class OffsetForLeaderEpochResponse(Response, request=OffsetForLeaderEpochRequest):
    """Response to `OffsetForLeaderEpochRequest`.

    Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.

    Version 1 added the leader epoch to the response.

    Version 2 added the throttle time.

    Version 3 is the same as version 2.

    Version 4 enables flexible versions.

    Source: `OffsetForLeaderEpochResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
    """Each topic we fetched offsets for."""
