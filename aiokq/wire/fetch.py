"""Fetch (API key 1): read batches of records from partitions."""

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
    """Id and epoch of the follower that fetches: the value of `FetchRequest.replica_state`.

    Source: `FetchRequest.json`, struct `ReplicaState`.
    """

    replica_id: int = i32(since=15, default=-1)
    """The replica ID of the follower, or -1 if this request is from a consumer."""

    replica_epoch: int = i64(since=15, default=-1)
    """The broker epoch of the follower, or -1 if it is unknown."""


class FetchPartition(Struct):
    """Partition to fetch: an element of `FetchTopic.partitions`.

    Source: `FetchRequest.json`, struct `FetchPartition`.
    """

    partition: int = i32()
    """The index of the partition in its topic."""

    current_leader_epoch: int = i32(since=9, default=-1, ignorable=True)
    """The leader epoch in the sender's metadata, for the broker to check; -1 for no check."""

    fetch_offset: int = i64()
    """The offset from which to fetch."""

    last_fetched_epoch: int = i32(since=12, default=-1)
    """The leader epoch of the last record that the sender has fetched, or -1 if there is none."""

    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    """The log start offset of the follower; -1 in requests of clients."""

    partition_max_bytes: int = i32()
    """The maximum size of the partition's batches, in bytes. The first batch of the response may be
    larger (KIP-74).
    """

    replica_directory_id: uuid.UUID = uuid_(since=17, tag=0, ignorable=True)
    """The id of the log directory in which the follower has the partition."""

    high_watermark: int = i64(since=18, default=9223372036854775807, tag=1, ignorable=True)
    """The high watermark of the follower; -1 if it is unknown, 2**63 - 1 if the follower does not
    support this field.
    """


class FetchTopic(Struct):
    """Partitions of one topic to fetch: an element of `FetchRequest.topics`.

    Source: `FetchRequest.json`, struct `FetchTopic`.
    """

    topic: str = string(until=12, ignorable=True)
    """The name of the topic that has the partitions."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The id of the topic that has the partitions."""

    partitions: list[FetchPartition] = array(FetchPartition)
    """The partitions to fetch."""


class ForgottenTopic(Struct):
    """Partitions to remove from the fetch session: an element of
    `FetchRequest.forgotten_topics_data`.

    Source: `FetchRequest.json`, struct `ForgottenTopic`.
    """

    topic: str = string(since=7, until=12, ignorable=True)
    """The name of the topic that has the partitions."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The id of the topic that has the partitions."""

    partitions: list[int] = array(i32, since=7)
    """The indexes of the partitions to remove from the fetch session."""


class FetchRequest(Request["FetchResponse"]):
    """Request of the Fetch API.

    Apache Kafka 4.0 removed versions 0 to 3.

    Version 1 is the same as version 0.

    From version 2 on, the client must be able to read message format 1.

    Version 3 adds MaxBytes. From this version on, the broker reads the partitions in the order of
    the request.

    Version 4 adds IsolationLevel. From this version on, the client must be able to read message
    format 2.

    Version 5 adds LogStartOffset, the log start offset of the follower.

    Version 6 is the same as version 5.

    Version 7 adds fetch sessions (KIP-227).

    Version 8 is the same as version 7.

    Version 9 adds CurrentLeaderEpoch (KIP-320).

    From version 10 on, the client must be able to read batches compressed with zstd (KIP-110).

    Version 11 adds RackId (KIP-392).

    Version 12 is the first flexible version. It adds LastFetchedEpoch, by which the leader detects
    that the sender's log diverges from the leader's log.

    Version 13 replaces the topic names by topic ids, and adds the error code UNKNOWN_TOPIC_ID
    (KIP-516).

    Version 14 is the same as version 13, but the response may have the error
    OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405).

    Version 15 replaces ReplicaId by ReplicaState, which has ReplicaId and the new ReplicaEpoch
    (KIP-903).

    Version 16 is the same as version 15 (KIP-951).

    Version 17 adds the directory id of the follower (KIP-853).

    Version 18 adds the high watermark of the follower (KIP-1166).

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
    """The id of the cluster, or null if it is unknown; checked only in fetches of the metadata log.
    """

    replica_id: int = i32(until=14, default=-1)
    """The broker id of the follower, or -1 if the request is from a consumer."""

    replica_state: FetchReplicaState | None = struct(FetchReplicaState, since=15, tag=1)
    """The id and epoch of the follower that sends the request."""

    max_wait_ms: int = i32()
    """How long the broker waits for `min_bytes`, in milliseconds."""

    min_bytes: int = i32()
    """The size of the record batches, in bytes, for which the broker waits before it answers."""

    max_bytes: int = i32(since=3, default=2147483647, ignorable=True)
    """The maximum size of all record batches, in bytes. The first batch of the response may be
    larger (KIP-74).
    """

    isolation_level: int = i8(since=4, ignorable=True)
    """The isolation level. With 0 (READ_UNCOMMITTED), the response may have records of open
    transactions. With 1 (READ_COMMITTED), the response has only records before the last stable
    offset, and the aborted transactions whose records the client must skip.
    """

    session_id: int = i32(since=7, ignorable=True)
    """The id of the fetch session, or 0 if there is none."""

    session_epoch: int = i32(since=7, default=-1, ignorable=True)
    """The number of the request in its fetch session: 0 to create a session, -1 to close the
    session or to use no session.
    """

    topics: list[FetchTopic] = array(FetchTopic)
    """The partitions to fetch; in a fetch session, only the new and the changed partitions."""

    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    """The partitions to remove from the fetch session."""

    rack_id: str = string(since=11, ignorable=True)
    """The rack id of the consumer, or the empty string."""


class FetchEpochEndOffset(Struct):
    """Leader epoch and its end offset: the value of `FetchPartitionData.diverging_epoch`.

    Source: `FetchResponse.json`, struct `EpochEndOffset`.
    """

    epoch: int = i32(since=12, default=-1)
    """The largest leader epoch in the leader's log that is not above the last fetched epoch."""

    end_offset: int = i64(since=12, default=-1)
    """The end offset of `epoch` in the leader's log."""


class FetchLeaderIdAndEpoch(Struct):
    """Id and epoch of the current leader: the value of `FetchPartitionData.current_leader`.

    Source: `FetchResponse.json`, struct `LeaderIdAndEpoch`.
    """

    leader_id: int = i32(since=12, default=-1)
    """The id of the current leader, or -1 if the leader is unknown."""

    leader_epoch: int = i32(since=12, default=-1)
    """The latest known leader epoch of the partition."""


class SnapshotId(Struct):
    """Id of a snapshot of the metadata log: the value of `FetchPartitionData.snapshot_id`.

    Source: `FetchResponse.json`, struct `SnapshotId`.
    """

    end_offset: int = i64(default=-1)
    """The offset after the last record that the snapshot contains."""

    epoch: int = i32(default=-1)
    """The leader epoch of the last record that the snapshot contains."""


class AbortedTransaction(Struct):
    """One aborted transaction: an element of `FetchPartitionData.aborted_transactions`.

    Source: `FetchResponse.json`, struct `AbortedTransaction`.
    """

    producer_id: int = i64(since=4)
    """The producer id of the aborted transaction."""

    first_offset: int = i64(since=4)
    """The offset of the first record of the aborted transaction."""


class FetchPartitionData(Struct):
    """Fetched records of one partition: an element of `FetchableTopicResponse.partitions`.

    Source: `FetchResponse.json`, struct `PartitionData`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    high_watermark: int = i64()
    """The high watermark of the partition."""

    last_stable_offset: int = i64(since=4, default=-1, ignorable=True)
    """The last stable offset: all transactions with records before it are committed or aborted."""

    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    """The log start offset of the partition."""

    diverging_epoch: FetchEpochEndOffset | None = struct(FetchEpochEndOffset, since=12, tag=0)
    """A leader epoch and its end offset in the leader's log; set only if the sender's log diverges
    from the leader's log.
    """

    current_leader: FetchLeaderIdAndEpoch | None = struct(FetchLeaderIdAndEpoch, since=12, tag=1)
    """The current leader of the partition; set if the sender's metadata is outdated."""

    snapshot_id: SnapshotId | None = struct(SnapshotId, since=12, tag=2)
    """The snapshot to fetch with FetchSnapshot; set if the fetch offset is before the log start
    offset.
    """

    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable_since=4, ignorable=True
    )
    """The aborted transactions with records in the fetched range; null for READ_UNCOMMITTED."""

    preferred_read_replica: int = i32(since=11, default=-1)
    """The replica from which the consumer should fetch next, or -1 for the leader."""

    records: Records = records()
    """The record batches. The first may begin before the requested offset, and the last may be cut
    off. Decoding returns a view of the frame. Encoding takes a buffer, a file range or a list of
    them, and copies only short data.
    """


class FetchableTopicResponse(Struct):
    """Fetched records of one topic: an element of `FetchResponse.responses`.

    Source: `FetchResponse.json`, struct `FetchableTopicResponse`.
    """

    topic: str = string(until=12, ignorable=True)
    """The name of the topic that has the partitions."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The id of the topic that has the partitions."""

    partitions: list[FetchPartitionData] = array(FetchPartitionData)
    """The result for each partition."""


class FetchNodeEndpoint(Struct):
    """Address of one node: an element of `FetchResponse.node_endpoints`.

    Source: `FetchResponse.json`, struct `NodeEndpoint`.
    """

    node_id: int = i32(since=16)
    """The node id of a new leader."""

    host: str = string(since=16)
    """The host name of the new leader."""

    port: int = i32(since=16)
    """The port of the new leader."""

    rack: str | None = string(since=16, nullable_since=16, default=None)
    """The rack of the node, or null if it has not been assigned to a rack."""


class FetchResponse(Response, request=FetchRequest):
    """Response to `FetchRequest`.

    Apache Kafka 4.0 removed versions 0 to 3.

    Version 1 adds the throttle time. Versions 2 and 3 are the same as version 1.

    Version 4 adds the last stable offset and the aborted transactions.

    Version 5 adds LogStartOffset, the earliest offset that can be read.

    Version 6 adds the error code KAFKA_STORAGE_ERROR.

    Version 7 adds fetch sessions (KIP-227).

    From version 8 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 9 is the same as version 8.

    From version 10 on, batches may be compressed with zstd (KIP-110).

    Version 11 adds PreferredReadReplica (KIP-392).

    Version 12 is the first flexible version. It adds CurrentLeader, and DivergingEpoch for a sender
    whose log diverges from the leader's log.

    Version 13 replaces the topic name by the topic id (KIP-516).

    Version 14 is the same as version 13, with the new error code OFFSET_MOVED_TO_TIERED_STORAGE
    (KIP-405).

    Version 15 is the same as version 14 (KIP-903).

    Version 16 adds NodeEndpoints (KIP-951).

    Version 17 is the same as version 16 (KIP-853).

    Version 18 is the same as version 17 (KIP-1166).

    Source: `FetchResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16(since=7, ignorable=True)
    """The error code of the whole request, or 0 if there was no error."""

    session_id: int = i32(since=7)
    """The id of the fetch session, or 0 if there is none."""

    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    """The result for each topic."""

    node_endpoints: list[FetchNodeEndpoint] = array(FetchNodeEndpoint, since=16, tag=0)
    """The endpoints of the brokers that `current_leader` names, for partitions with the error
    NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH.
    """
