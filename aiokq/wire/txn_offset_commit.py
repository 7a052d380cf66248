"""TxnOffsetCommit (API key 28): commit offsets of a group as part of a transaction."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
]


class TxnOffsetCommitRequestPartition(Struct):
    """Offset of one partition: an element of `TxnOffsetCommitRequestTopic.partitions`.

    Source: `TxnOffsetCommitRequest.json`, struct `TxnOffsetCommitRequestPartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    committed_offset: int = i64()
    """The offset to commit."""

    committed_leader_epoch: int = i32(since=2, default=-1, ignorable=True)
    """The leader epoch of the last consumed record, or -1 if it is unknown."""

    committed_metadata: str | None = string(nullable_since=0)
    """The metadata to store with the offset, or null."""


class TxnOffsetCommitRequestTopic(Struct):
    """Offsets of the partitions of one topic: an element of `TxnOffsetCommitRequest.topics`.

    Source: `TxnOffsetCommitRequest.json`, struct `TxnOffsetCommitRequestTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)
    """The partitions whose offsets to commit."""


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    """Request of the TxnOffsetCommit API.

    Version 1 is the same as version 0.

    Version 2 adds the committed leader epoch.

    Version 3 adds the member.id, group.instance.id and generation.id.

    Version 4 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 5 is the same as version 4. A client sends it only if transaction version 2 is enabled
    (KIP-890, part 2); the request then also adds the group to the transaction, so that no
    AddOffsetsToTxn request is needed.

    Source: `TxnOffsetCommitRequest.json`.
    """

    API_KEY = 28
    NAME = "TxnOffsetCommit"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3

    transactional_id: str = string()
    """The transactional id of the transaction."""

    group_id: str = string()
    """The id of the group whose offsets to commit."""

    producer_id: int = i64()
    """The current producer id of the transactional id."""

    producer_epoch: int = i16()
    """The current epoch of the producer id."""

    generation_id: int = i32(since=3, default=-1)
    """The generation of the consumer in the group, or -1."""

    member_id: str = string(since=3)
    """The member id of the consumer; empty if it is not a member of the group."""

    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """The group.instance.id of the member (static membership), or null."""

    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)
    """The topics whose offsets to commit."""


class TxnOffsetCommitResponsePartition(Struct):
    """Result for one partition: an element of `TxnOffsetCommitResponseTopic.partitions`.

    Source: `TxnOffsetCommitResponse.json`, struct `TxnOffsetCommitResponsePartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""


class TxnOffsetCommitResponseTopic(Struct):
    """Results for the partitions of one topic: an element of `TxnOffsetCommitResponse.topics`.

    Source: `TxnOffsetCommitResponse.json`, struct `TxnOffsetCommitResponseTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)
    """The result for each partition."""


class TxnOffsetCommitResponse(Response, request=TxnOffsetCommitRequest):
    """Response to `TxnOffsetCommitRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the same as version 1.

    Version 3 adds the error codes ILLEGAL_GENERATION, FENCED_INSTANCE_ID and UNKNOWN_MEMBER_ID.

    Version 4 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 5 is the same as version 4 (KIP-890).

    Source: `TxnOffsetCommitResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
    """The result for each topic."""
