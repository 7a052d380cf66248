"""ListOffsets (API key 2): find offsets of partitions by timestamp, or the first or last one."""

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
    """Element of `ListOffsetsTopic.partitions`.

    Source: `ListOffsetsRequest.json`, struct `ListOffsetsPartition`.
    """

    partition_index: int = i32()
    """The partition index."""

    current_leader_epoch: int = i32(since=4, default=-1, ignorable=True)
    """The leader epoch that the client knows, or -1, which the broker does not check."""

    timestamp: int = i64()
    """Selects the offset to return. A time, in milliseconds since the Unix epoch, asks for the
    first record at or after that time. Negative values ask for other offsets: -1 for the end of the
    log at the isolation level, -2 for its start, -3 for the record with the highest timestamp (from
    version 7), -4 for the first offset on local disk (from version 8), -5 for the last offset in
    tiered storage (from version 9), -6 for the first offset that is not in tiered storage yet (from
    version 11).
    """

    max_num_offsets: int = i32(until=0, default=1)
    """The maximum number of offsets to report."""


class ListOffsetsTopic(Struct):
    """Element of `ListOffsetsRequest.topics`.

    Source: `ListOffsetsRequest.json`, struct `ListOffsetsTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)
    """Each partition in the request."""


class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """Request of the ListOffsets API.

    Apache Kafka 4.0 removed the versions before 1.

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
    """The isolation level: 0 (READ_UNCOMMITTED), or 1 (READ_COMMITTED), for which the end of the
    log is the last stable offset.
    """

    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    """Each topic in the request."""

    timeout_ms: int = i32(since=10, ignorable=True)
    """How long the broker may take to read from tiered storage, in milliseconds."""


class ListOffsetsPartitionResponse(Struct):
    """Element of `ListOffsetsTopicResponse.partitions`.

    Source: `ListOffsetsResponse.json`, struct `ListOffsetsPartitionResponse`.
    """

    partition_index: int = i32()
    """The partition index."""

    error_code: int = i16()
    """The partition error code, or 0 if there was no error."""

    old_style_offsets: list[int] = array(i64, until=0)
    """The offsets, in descending order."""

    timestamp: int = i64(since=1, default=-1)
    """The timestamp of the found record, in milliseconds since the Unix epoch; -1 if the request
    asked for the start or the end, or if no record was found.
    """

    offset: int = i64(since=1, default=-1)
    """The offset that was asked for, or -1 if there is none."""

    leader_epoch: int = i32(since=4, default=-1)
    """The leader epoch associated with the returned offset."""


class ListOffsetsTopicResponse(Struct):
    """Element of `ListOffsetsResponse.topics`.

    Source: `ListOffsetsResponse.json`, struct `ListOffsetsTopicResponse`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)
    """Each partition in the response."""


class ListOffsetsResponse(Response, request=ListOffsetsRequest):
    """Response to `ListOffsetsRequest`.

    Apache Kafka 4.0 removed the versions before 1.

    Version 1 replaces the array of offsets by one offset, and adds the timestamp of its record.

    Version 2 adds the throttle time.

    From version 3 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 4 adds the leader epoch of the returned offset.

    Version 5 adds the error code OFFSET_NOT_AVAILABLE.

    Version 6 is the first flexible version.

    Version 7 is the same as version 6 (KIP-734).

    Version 8 is the same as version 7; the request has a new kind of offset (KIP-405).

    Version 9 is the same as version 8; the request has a new kind of offset (KIP-1005).

    Version 10 is the same as version 9; the request has a timeout (KIP-1075).

    Version 11 is the same as version 10; the request has a new kind of offset (KIP-1023).

    Source: `ListOffsetsResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
    """Each topic in the response."""
