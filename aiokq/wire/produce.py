"""Produce (API key 0): append batches of records to partitions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import Records, array, i16, i32, i64, records, string, struct, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "BatchIndexAndErrorMessage",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceLeaderIdAndEpoch",
    "ProduceNodeEndpoint",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
]


class PartitionProduceData(Struct):
    """Records for one partition: an element of `TopicProduceData.partition_data`.

    Source: `ProduceRequest.json`, struct `PartitionProduceData`.
    """

    index: int = i32()
    """The index of the partition in its topic."""

    records: Records = records()
    """The record batches to append: from version 3 on, exactly one batch, of magic 2. Decoding
    returns a view of the frame. Encoding takes a buffer, a file range or a list of them, and copies
    only short data.
    """


class TopicProduceData(Struct):
    """Records for the partitions of one topic: an element of `ProduceRequest.topic_data`.

    Source: `ProduceRequest.json`, struct `TopicProduceData`.
    """

    name: str = string(until=12, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The id of the topic that has the partitions."""

    partition_data: list[PartitionProduceData] = array(PartitionProduceData)
    """The records for each partition."""


class ProduceRequest(Request["ProduceResponse"]):
    """Request of the Produce API.

    Apache Kafka 4.0 removed versions 0 to 2. Because of a bug in librdkafka, the ApiVersions
    response still names them (KAFKA-18659), but brokers refuse them.

    Versions 1 and 2 are the same as version 0.

    Version 3 adds message format 2, and the transactional id, for which a transactional producer
    must be authorized.

    Version 4 is the same as version 3, but the response may have the error KAFKA_STORAGE_ERROR.

    Versions 5 and 6 are the same as version 3.

    From version 7 on, batches may be compressed with zstd (KIP-110).

    From version 8 on, the response has RecordErrors and ErrorMessage (KIP-467).

    Version 9 is the first flexible version.

    Version 10 is the same as version 9 (KIP-951).

    Version 11 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 12 is the same as version 11. A client sends it within a transaction only if transaction
    version 2 is enabled (KIP-890, part 2); the request then also adds the partitions to the
    transaction, so that no AddPartitionsToTxn request is needed.

    Version 13 replaces the topic names by topic ids, and adds the error code UNKNOWN_TOPIC_ID
    (KIP-516).

    Source: `ProduceRequest.json`.
    """

    API_KEY = 0
    NAME = "Produce"
    MIN_VERSION = 0
    MAX_VERSION = 13
    FLEXIBLE_SINCE = 9

    transactional_id: str | None = string(since=3, nullable_since=3, default=None)
    """The transactional ID, or null if the producer is not transactional."""

    acks: int = i16()
    """Which replicas must have the records before the broker answers: 0 for none (there is no
    response), 1 for the leader, -1 for all in-sync replicas.
    """

    timeout_ms: int = i32()
    """How long the broker waits for the in-sync replicas, in milliseconds."""

    topic_data: list[TopicProduceData] = array(TopicProduceData)
    """The records for each topic."""


class BatchIndexAndErrorMessage(Struct):
    """Record that caused the refusal of a batch: an element of
    `PartitionProduceResponse.record_errors`.

    Source: `ProduceResponse.json`, struct `BatchIndexAndErrorMessage`.
    """

    batch_index: int = i32(since=8)
    """The index within the batch of a record that caused the refusal of the batch."""

    batch_index_error_message: str | None = string(since=8, nullable_since=8, default=None)
    """The error message for the record, or null."""


class ProduceLeaderIdAndEpoch(Struct):
    """Id and epoch of the current leader: the value of `PartitionProduceResponse.current_leader`.

    Source: `ProduceResponse.json`, struct `LeaderIdAndEpoch`.
    """

    leader_id: int = i32(since=10, default=-1)
    """The id of the current leader, or -1 if the leader is unknown."""

    leader_epoch: int = i32(since=10, default=-1)
    """The latest known leader epoch of the partition."""


class PartitionProduceResponse(Struct):
    """Result for one partition: an element of `TopicProduceResponse.partition_responses`.

    Source: `ProduceResponse.json`, struct `PartitionProduceResponse`.
    """

    index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    base_offset: int = i64()
    """The offset of the first appended record, or -1 if the batch was refused."""

    log_append_time_ms: int = i64(since=2, default=-1, ignorable=True)
    """When the broker appended the records, in milliseconds since the Unix epoch, if the topic has
    LogAppendTime; -1 if it has CreateTime.
    """

    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    """The log start offset of the partition, or -1."""

    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    """The records that caused the refusal of the batch."""

    error_message: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    """The reason why the batch was refused, or null."""

    current_leader: ProduceLeaderIdAndEpoch | None = struct(
        ProduceLeaderIdAndEpoch, since=10, tag=0
    )
    """The current leader of the partition; set if the producer's metadata is outdated."""


class TopicProduceResponse(Struct):
    """Results for the partitions of one topic: an element of `ProduceResponse.responses`.

    Source: `ProduceResponse.json`, struct `TopicProduceResponse`.
    """

    name: str = string(until=12, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The id of the topic that has the partitions."""

    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)
    """The result for each partition."""


class ProduceNodeEndpoint(Struct):
    """Address of one node: an element of `ProduceResponse.node_endpoints`.

    Source: `ProduceResponse.json`, struct `NodeEndpoint`.
    """

    node_id: int = i32(since=10)
    """The node id of a new leader."""

    host: str = string(since=10)
    """The host name of the new leader."""

    port: int = i32(since=10)
    """The port of the new leader."""

    rack: str | None = string(since=10, nullable_since=10, default=None)
    """The rack of the node, or null if it has not been assigned to a rack."""


class ProduceResponse(Response, request=ProduceRequest):
    """Response to `ProduceRequest`.

    Apache Kafka 4.0 removed versions 0 to 2. Because of a bug in librdkafka, the ApiVersions
    response still names them (KAFKA-18659), but brokers refuse them.

    Version 1 adds the throttle time.

    Version 2 adds the log append time.

    Version 3 is the same as version 2.

    Version 4 adds the error code KAFKA_STORAGE_ERROR.

    Version 5 adds LogStartOffset, by which a client recognizes OUT_OF_ORDER_SEQUENCE_NUMBER errors
    that do not mean a loss of records.

    From version 6 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 8 adds RecordErrors and ErrorMessage, which describe the records that caused the refusal
    of a batch (KIP-467).

    Version 9 is the first flexible version.

    Version 10 adds the tagged fields CurrentLeader and NodeEndpoints (KIP-951).

    Version 11 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 12 is the same as version 11 (KIP-890).

    Version 13 replaces the topic names by topic ids, and adds the error code UNKNOWN_TOPIC_ID
    (KIP-516).

    Source: `ProduceResponse.json`.
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    """The result for each topic."""

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    node_endpoints: list[ProduceNodeEndpoint] = array(ProduceNodeEndpoint, since=10, tag=0)
    """The endpoints of the brokers that `current_leader` names, for partitions with the error
    NOT_LEADER_OR_FOLLOWER.
    """
