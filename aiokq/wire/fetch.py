"""The Fetch API (key 1), all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import Records, array, i8, i16, i32, i64, records, string, struct, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "AbortedTransaction",
    "FetchEpochEndOffset",
    "FetchLeaderIdAndEpoch",
    "FetchNodeEndpoint",
    "FetchPartition",
    "FetchPartitionData",
    "FetchReplicaState",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "SnapshotId",
]


class FetchReplicaState(Struct):
    """Value of `FetchRequest.replica_state`.

    Source: `FetchRequest.json`, struct `ReplicaState`.
    """

    replica_id: int = i32(since=15, default=-1)
    """The replica ID of the follower, or -1 if this request is from a consumer."""

    replica_epoch: int = i64(since=15, default=-1)
    """The epoch of this follower, or -1 if not available."""


class FetchPartition(Struct):
    """Element of `FetchTopic.partitions`.

    Source: `FetchRequest.json`, struct `FetchPartition`.
    """

    partition: int = i32()
    """The partition index."""

    current_leader_epoch: int = i32(since=9, default=-1, ignorable=True)
    """The current leader epoch of the partition."""

    fetch_offset: int = i64()
    """The message offset."""

    last_fetched_epoch: int = i32(since=12, default=-1)
    """The epoch of the last fetched record or -1 if there is none."""

    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    """The earliest available offset of the follower replica. The field is only used when the
    request is sent by the follower.
    """

    partition_max_bytes: int = i32()
    """The maximum bytes to fetch from this partition. See KIP-74 for cases where this limit may
    not be honored.
    """

    replica_directory_id: uuid.UUID = uuid_(since=17, tag=0, ignorable=True)
    """The directory id of the follower fetching."""

    high_watermark: int = i64(since=18, default=9223372036854775807, tag=1, ignorable=True)
    """The high-watermark known by the replica. -1 if the high-watermark is not known and
    9223372036854775807 if the feature is not supported.
    """


class FetchTopic(Struct):
    """Element of `FetchRequest.topics`.

    Source: `FetchRequest.json`, struct `FetchTopic`.
    """

    topic: str = string(until=12, ignorable=True)
    """The name of the topic to fetch."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The unique topic ID."""

    partitions: list[FetchPartition] = array(FetchPartition)
    """The partitions to fetch."""


class ForgottenTopic(Struct):
    """Element of `FetchRequest.forgotten_topics_data`.

    Source: `FetchRequest.json`, struct `ForgottenTopic`.
    """

    topic: str = string(since=7, until=12, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The unique topic ID."""

    partitions: list[int] = array(i32, since=7)
    """The partitions indexes to forget."""


class FetchRequest(Request["FetchResponse"]):
    """Request of the Fetch API.

    Versions 0-3 were removed in Apache Kafka 4.0, Version 4 is the new baseline.

    Version 1 is the same as version 0.

    Starting in Version 2, the requester must be able to handle Kafka Log Message format
    version 1.

    Version 3 adds MaxBytes. Starting in version 3, the partition ordering in the request is
    now relevant. Partitions will be processed in the order they appear in the request.

    Version 4 adds IsolationLevel. Starting in version 4, the requestor must be able to handle
    Kafka log message format version 2.

    Version 5 adds LogStartOffset to indicate the earliest available offset of partition data
    that can be consumed.

    Version 6 is the same as version 5.

    Version 7 adds incremental fetch request support.

    Version 8 is the same as version 7.

    Version 9 adds CurrentLeaderEpoch, as described in KIP-320.

    Version 10 indicates that we can use the ZStd compression algorithm, as described in
    KIP-110.

    Version 12 adds flexible versions support as well as epoch validation through the
    `LastFetchedEpoch` field.

    Version 13 replaces topic names with topic IDs (KIP-516). May return UNKNOWN_TOPIC_ID
    error code.

    Version 14 is the same as version 13 but it also receives a new error called
    OffsetMovedToTieredStorageException(KIP-405).

    Version 15 adds the ReplicaState which includes new field ReplicaEpoch and the ReplicaId.
    Also, deprecate the old ReplicaId field and set its default value to -1. (KIP-903).

    Version 16 is the same as version 15 (KIP-951).

    Version 17 adds directory id support from KIP-853.

    Version 18 adds high-watermark from KIP-1166.

    Source: `FetchRequest.json`.
    """

    API_KEY = 1
    NAME = "Fetch"
    MIN_VERSION = 0
    MAX_VERSION = 18
    FLEXIBLE_SINCE = 12

    cluster_id: str | None = string(
        since=12, nullable_since=12, default=None, tag=0, ignorable=True
    )
    """The clusterId if known. This is used to validate metadata fetches prior to broker
    registration.
    """

    replica_id: int = i32(until=14, default=-1)
    """The broker ID of the follower, of -1 if this request is from a consumer."""

    replica_state: FetchReplicaState | None = struct(FetchReplicaState, since=15, tag=1)
    """The state of the replica in the follower."""

    max_wait_ms: int = i32()
    """The maximum time to wait for `min_bytes`, in milliseconds."""

    min_bytes: int = i32()
    """The minimum bytes to accumulate in the response."""

    max_bytes: int = i32(since=3, default=2147483647, ignorable=True)
    """The maximum bytes to fetch. See KIP-74 for cases where this limit may not be honored."""

    isolation_level: int = i8(since=4, ignorable=True)
    """This setting controls the visibility of transactional records. Using READ_UNCOMMITTED
    (isolation_level = 0) makes all records visible. With READ_COMMITTED (isolation_level =
    1), non-transactional and COMMITTED transactional records are visible. To be more
    concrete, READ_COMMITTED returns all data from offsets smaller than the current LSO (last
    stable offset), and enables the inclusion of the list of aborted transactions in the
    result, which allows consumers to discard ABORTED transactional records.
    """

    session_id: int = i32(since=7, ignorable=True)
    """The fetch session ID."""

    session_epoch: int = i32(since=7, default=-1, ignorable=True)
    """The fetch session epoch, which is used for ordering requests in a session."""

    topics: list[FetchTopic] = array(FetchTopic)
    """The topics to fetch."""

    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    """In an incremental fetch request, the partitions to remove."""

    rack_id: str = string(since=11, ignorable=True)
    """Rack ID of the consumer making this request."""


class FetchEpochEndOffset(Struct):
    """Value of `FetchPartitionData.diverging_epoch`.

    Source: `FetchResponse.json`, struct `EpochEndOffset`.
    """

    epoch: int = i32(since=12, default=-1)
    """The largest epoch."""

    end_offset: int = i64(since=12, default=-1)
    """The end offset of the epoch."""


class FetchLeaderIdAndEpoch(Struct):
    """Value of `FetchPartitionData.current_leader`.

    Source: `FetchResponse.json`, struct `LeaderIdAndEpoch`.
    """

    leader_id: int = i32(since=12, default=-1)
    """The ID of the current leader or -1 if the leader is unknown."""

    leader_epoch: int = i32(since=12, default=-1)
    """The latest known leader epoch."""


class SnapshotId(Struct):
    """Value of `FetchPartitionData.snapshot_id`.

    Source: `FetchResponse.json`, struct `SnapshotId`.
    """

    end_offset: int = i64(default=-1)
    """The end offset of the epoch."""

    epoch: int = i32(default=-1)
    """The largest epoch."""


class AbortedTransaction(Struct):
    """Element of `FetchPartitionData.aborted_transactions`.

    Source: `FetchResponse.json`, struct `AbortedTransaction`.
    """

    producer_id: int = i64(since=4)
    """The producer id associated with the aborted transaction."""

    first_offset: int = i64(since=4)
    """The first offset in the aborted transaction."""


class FetchPartitionData(Struct):
    """Element of `FetchableTopicResponse.partitions`.

    Source: `FetchResponse.json`, struct `PartitionData`.
    """

    partition_index: int = i32()
    """The partition index."""

    error_code: int = i16()
    """The error code, or 0 if there was no fetch error."""

    high_watermark: int = i64()
    """The current high water mark."""

    last_stable_offset: int = i64(since=4, default=-1, ignorable=True)
    """The last stable offset (or LSO) of the partition. This is the last offset such that the
    state of all transactional records prior to this offset have been decided (ABORTED or
    COMMITTED).
    """

    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    """The current log start offset."""

    diverging_epoch: FetchEpochEndOffset | None = struct(FetchEpochEndOffset, since=12, tag=0)
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the
    request, this field indicates the largest epoch and its end offset such that subsequent
    records are known to diverge.
    """

    current_leader: FetchLeaderIdAndEpoch | None = struct(FetchLeaderIdAndEpoch, since=12, tag=1)
    """The current leader of the partition."""

    snapshot_id: SnapshotId | None = struct(SnapshotId, since=12, tag=2)
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset and
    epoch that should be used in the FetchSnapshot request.
    """

    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable_since=4, ignorable=True
    )
    """The aborted transactions."""

    preferred_read_replica: int = i32(since=11, default=-1)
    """The preferred read replica for the consumer to use on its next fetch request."""

    records: Records = records()
    """Record batches. The first may begin before the requested offset, and the last may be cut off.
    Decoded as a view of the frame; encoded by reference from a buffer, a file range or a list of
    them.
    """


class FetchableTopicResponse(Struct):
    """Element of `FetchResponse.responses`.

    Source: `FetchResponse.json`, struct `FetchableTopicResponse`.
    """

    topic: str = string(until=12, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The unique topic ID."""

    partitions: list[FetchPartitionData] = array(FetchPartitionData)
    """The topic partitions."""


class FetchNodeEndpoint(Struct):
    """Element of `FetchResponse.node_endpoints`.

    Source: `FetchResponse.json`, struct `NodeEndpoint`.
    """

    node_id: int = i32(since=16)
    """The ID of the associated node."""

    host: str = string(since=16)
    """The node's hostname."""

    port: int = i32(since=16)
    """The node's port."""

    rack: str | None = string(since=16, nullable_since=16, default=None)
    """The rack of the node, or null if it has not been assigned to a rack."""


class FetchResponse(Response, request=FetchRequest):
    """Response to `FetchRequest`.

    Versions 0-3 were removed in Apache Kafka 4.0, Version 4 is the new baseline.

    Version 1 adds throttle time. Version 2 and 3 are the same as version 1.

    Version 4 adds features for transactional consumption.

    Version 5 adds LogStartOffset to indicate the earliest available offset of partition data
    that can be consumed.

    Starting in version 6, we may return KAFKA_STORAGE_ERROR as an error code.

    Version 7 adds incremental fetch request support.

    Starting in version 8, on quota violation, brokers send out responses before throttling.

    Version 9 is the same as version 8.

    Version 10 indicates that the response data can use the ZStd compression algorithm, as
    described in KIP-110.

    Version 12 adds support for flexible versions, epoch detection through the
    `TruncationOffset` field, and leader discovery through the `CurrentLeader` field.

    Version 13 replaces the topic name field with topic ID (KIP-516).

    Version 14 is the same as version 13 but it also receives a new error called
    OffsetMovedToTieredStorageException (KIP-405).

    Version 15 is the same as version 14 (KIP-903).

    Version 16 adds the 'NodeEndpoints' field (KIP-951).

    Version 17 no changes to the response (KIP-853).

    Version 18 no changes to the response (KIP-1166).

    Source: `FetchResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16(since=7, ignorable=True)
    """The top level response error code."""

    session_id: int = i32(since=7)
    """The fetch session ID, or 0 if this is not part of a fetch session."""

    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    """The response topics."""

    node_endpoints: list[FetchNodeEndpoint] = array(FetchNodeEndpoint, since=16, tag=0)
    """Endpoints for all current-leaders enumerated in PartitionData, with errors
    NOT_LEADER_OR_FOLLOWER & FENCED_LEADER_EPOCH.
    """
