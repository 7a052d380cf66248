"""OffsetCommit (API key 8): commit offsets of a group."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, i16, i32, i64, string, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
]


class OffsetCommitRequestPartition(Struct):
    """Offset of one partition: an element of `OffsetCommitRequestTopic.partitions`.

    Source: `OffsetCommitRequest.json`, struct `OffsetCommitRequestPartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    committed_offset: int = i64()
    """The offset to commit."""

    committed_leader_epoch: int = i32(since=6, default=-1, ignorable=True)
    """The leader epoch of the last consumed record, or -1 if it is unknown."""

    commit_timestamp: int = i64(since=1, until=1, default=-1)
    """When the offset was committed, in milliseconds since the Unix epoch; -1 for the time at which
    the broker receives the request.
    """

    committed_metadata: str | None = string(nullable_since=0)
    """The metadata to store with the offset, or null."""


class OffsetCommitRequestTopic(Struct):
    """Offsets of the partitions of one topic: an element of `OffsetCommitRequest.topics`.

    Source: `OffsetCommitRequest.json`, struct `OffsetCommitRequestTopic`.
    """

    name: str = string(until=9, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The id of the topic that has the partitions."""

    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)
    """The partitions whose offsets to commit."""


class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """Request of the OffsetCommit API.

    Apache Kafka 4.0 removed versions 0 and 1.

    Version 1 adds the generation, the member id and the commit timestamp.

    Version 2 adds the retention time and removes the commit timestamp.

    Versions 3 and 4 are the same as version 2.

    Version 5 removes the retention time; from then on, only the broker's configuration sets it.

    Version 6 adds the leader epoch of the committed offset.

    Version 7 adds the field group_instance_id, which identifies a member across restarts.

    Version 8 is the first flexible version.

    Version 9 is the first version for groups of the consumer protocol (KIP-848). The request is the
    same as version 8.

    Version 10 replaces the topic names by topic ids (KIP-848).

    Source: `OffsetCommitRequest.json`.
    """

    API_KEY = 8
    NAME = "OffsetCommit"
    MIN_VERSION = 0
    MAX_VERSION = 10
    FLEXIBLE_SINCE = 8

    group_id: str = string()
    """The id of the group whose offsets to commit."""

    generation_id_or_member_epoch: int = i32(since=1, default=-1, ignorable=True)
    """The generation of a classic group, or the member epoch of a group of the consumer protocol.
    """

    member_id: str = string(since=1, ignorable=True)
    """The member id of the sender; empty if it is not a member of the group."""

    group_instance_id: str | None = string(since=7, nullable_since=7, default=None)
    """The group.instance.id of the member (static membership), or null."""

    retention_time_ms: int = i64(since=2, until=4, default=-1, ignorable=True)
    """How long to keep the offset, in milliseconds; -1 for the broker's retention."""

    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)
    """The topics whose offsets to commit."""


class OffsetCommitResponsePartition(Struct):
    """Result for one partition: an element of `OffsetCommitResponseTopic.partitions`.

    Source: `OffsetCommitResponse.json`, struct `OffsetCommitResponsePartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""


class OffsetCommitResponseTopic(Struct):
    """Results for the partitions of one topic: an element of `OffsetCommitResponse.topics`.

    Source: `OffsetCommitResponse.json`, struct `OffsetCommitResponseTopic`.
    """

    name: str = string(until=9, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The id of the topic that has the partitions."""

    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)
    """The result for each partition."""


class OffsetCommitResponse(Response, request=OffsetCommitRequest):
    """Response to `OffsetCommitRequest`.

    Apache Kafka 4.0 removed versions 0 and 1.

    Versions 1 and 2 are the same as version 0.

    Version 3 adds the throttle time.

    From version 4 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Versions 5 and 6 are the same as version 4.

    Version 7 of the request adds group_instance_id, which identifies a member across restarts. The
    response is the same.

    Version 8 is the first flexible version.

    Version 9 is the first version for groups of the consumer protocol (KIP-848). It adds the error
    codes STALE_MEMBER_EPOCH for these groups, and GROUP_ID_NOT_FOUND for groups of either protocol.

    Version 10 replaces the topic names by topic ids (KIP-848).

    Errors: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_COMMIT_OFFSET_SIZE; from version 1 on also
    ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID; from version 7 on also FENCED_MEMBER_EPOCH; from version
    9 on also GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH; from version 10 on also UNKNOWN_TOPIC_ID.

    Source: `OffsetCommitResponse.json`.
    """

    throttle_time_ms: int = i32(since=3, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
    """The result for each topic."""
