"""ListOffsets (API key 2): find the first or last offset of partitions, or one by timestamp."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
]


class ListOffsetsPartition(Struct):
    """Partition and the requested timestamp: an element of `ListOffsetsTopic.partitions`.

    Source: `ListOffsetsRequest.json`, struct `ListOffsetsPartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    current_leader_epoch: int = i32(since=4, default=-1, ignorable=True)
    """The leader epoch in the client's metadata, for the broker to check; -1 for no check."""

    timestamp: int = i64()
    """Selects the offset to return. A time, in milliseconds since the Unix epoch, selects the first
    record with this timestamp or a later timestamp. Negative values select other offsets: -1 the
    high watermark or, with READ_COMMITTED, the last stable offset; -2 the log start offset; -3 the
    record with the largest timestamp (from version 7 on); -4 the first offset on local disk (from
    version 8 on); -5 the last offset in tiered storage (from version 9 on); -6 the first offset
    that is not in tiered storage yet (from version 11 on).
    """

    max_num_offsets: int = i32(until=0, default=1)
    """The maximum number of offsets to return."""


class ListOffsetsTopic(Struct):
    """Partitions of one topic: an element of `ListOffsetsRequest.topics`.

    Source: `ListOffsetsRequest.json`, struct `ListOffsetsTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)
    """The partitions whose offsets to return."""


class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """Request of the ListOffsets API.

    Apache Kafka 4.0 removed version 0.

    Version 1 removes MaxNumOffsets: from this version on, the response has one offset per
    partition.

    Version 2 adds the isolation level.

    Version 3 is the same as version 2.

    Version 4 adds the current leader epoch, by which the broker detects outdated metadata.

    Version 5 is the same as version 4.

    Version 6 is the first flexible version.

    Version 7 adds the timestamp -3: the record with the largest timestamp (KIP-734).

    Version 8 adds the timestamp -4: the first offset on local disk (KIP-405).

    Version 9 adds the timestamp -5: the last offset in tiered storage (KIP-1005).

    Version 10 adds TimeoutMs, for reads from tiered storage (KIP-1075).

    Version 11 adds the timestamp -6: the first offset that is not in tiered storage yet (KIP-1023).

    Source: `ListOffsetsRequest.json`.
    """

    API_KEY = 2
    NAME = "ListOffsets"
    MIN_VERSION = 0
    MAX_VERSION = 11
    FLEXIBLE_SINCE = 6

    replica_id: int = i32()
    """The broker id of the follower, or -1 if the request is from a consumer."""

    isolation_level: int = i8(since=2)
    """The isolation level: 0 (READ_UNCOMMITTED) or 1 (READ_COMMITTED). With 1, the end of the log
    is the last stable offset.
    """

    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    """The topics whose offsets to return."""

    timeout_ms: int = i32(since=10, ignorable=True)
    """How long the broker may take to read from tiered storage, in milliseconds."""


class ListOffsetsPartitionResponse(Struct):
    """Offset in one partition: an element of `ListOffsetsTopicResponse.partitions`.

    Source: `ListOffsetsResponse.json`, struct `ListOffsetsPartitionResponse`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code for the partition, or 0 if there was no error."""

    old_style_offsets: list[int] = array(i64, until=0)
    """The offsets, in descending order."""

    timestamp: int = i64(since=1, default=-1)
    """The timestamp of the record at `offset`, in milliseconds since the Unix epoch; -1 if the
    request did not select a record by timestamp, or if there is no such record.
    """

    offset: int = i64(since=1, default=-1)
    """The requested offset, or -1 if there is none."""

    leader_epoch: int = i32(since=4, default=-1)
    """The leader epoch at `offset`, or -1 if it is unknown."""


class ListOffsetsTopicResponse(Struct):
    """Offsets in the partitions of one topic: an element of `ListOffsetsResponse.topics`.

    Source: `ListOffsetsResponse.json`, struct `ListOffsetsTopicResponse`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)
    """The result for each partition."""


class ListOffsetsResponse(Response, request=ListOffsetsRequest):
    """Response to `ListOffsetsRequest`.

    Apache Kafka 4.0 removed version 0.

    Version 1 replaces the array of offsets by one offset, and adds the timestamp of its record.

    Version 2 adds the throttle time.

    From version 3 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 4 adds the leader epoch of the returned offset.

    Version 5 adds the error code OFFSET_NOT_AVAILABLE.

    Version 6 is the first flexible version.

    Version 7 is the same as version 6; the request has the new timestamp -3 (KIP-734).

    Version 8 is the same as version 7; the request has the new timestamp -4 (KIP-405).

    Version 9 is the same as version 8; the request has the new timestamp -5 (KIP-1005).

    Version 10 is the same as version 9; the request has the new field TimeoutMs (KIP-1075).

    Version 11 is the same as version 10; the request has the new timestamp -6 (KIP-1023).

    Source: `ListOffsetsResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
    """The result for each topic."""
