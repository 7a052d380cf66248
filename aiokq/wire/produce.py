"""The Produce API (key 0), all versions."""

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
    """Element of `TopicProduceData.partition_data`.

    Source: `ProduceRequest.json`, struct `PartitionProduceData`.
    """

    index: int = i32()
    """The partition index."""

    records: Records = records()
    """The record batches to append: from version 3 on, exactly one batch, of magic 2. Decoded as a
    view of the frame; encoded by reference from a buffer, a file range or a list of them.
    """


class TopicProduceData(Struct):
    """Element of `ProduceRequest.topic_data`.

    Source: `ProduceRequest.json`, struct `TopicProduceData`.
    """

    name: str = string(until=12, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The unique topic ID."""

    partition_data: list[PartitionProduceData] = array(PartitionProduceData)
    """Each partition to produce to."""


class ProduceRequest(Request["ProduceResponse"]):
    """Request of the Produce API.

    Versions 0-2 were removed in Apache Kafka 4.0, version 3 is the new baseline. Due to a bug
    in librdkafka, these versions have to be included in the api versions response (see
    KAFKA-18659), but are rejected otherwise. See
    `ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION` for more details.

    Version 1 and 2 are the same as version 0.

    Version 3 adds the transactional ID, which is used for authorization when attempting to
    write transactional data. Version 3 also adds support for Kafka Message Format v2.

    Version 4 is the same as version 3, but the requester must be prepared to handle a
    KAFKA_STORAGE_ERROR.

    Version 5 and 6 are the same as version 3.

    Starting in version 7, records can be produced using ZStandard compression. See KIP-110.

    Starting in Version 8, response has RecordErrors and ErrorMessage. See KIP-467.

    Version 9 enables flexible versions.

    Version 10 is the same as version 9 (KIP-951).

    Version 11 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Version 12 is the same as version 11 (KIP-890). Note when produce requests are used in
    transaction, if transaction V2 (KIP_890 part 2) is enabled, the produce request will also
    include the function for a AddPartitionsToTxn call. If V2 is disabled, the client can't
    use produce request version higher than 11 within a transaction.

    Version 13 replaces topic names with topic IDs (KIP-516). May return UNKNOWN_TOPIC_ID
    error code.

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
    """The number of acknowledgments the producer requires the leader to have received before
    considering a request complete. Allowed values: 0 for no acknowledgments, 1 for only the
    leader and -1 for the full ISR.
    """

    timeout_ms: int = i32()
    """The timeout to await a response in milliseconds."""

    topic_data: list[TopicProduceData] = array(TopicProduceData)
    """Each topic to produce to."""


class BatchIndexAndErrorMessage(Struct):
    """Element of `PartitionProduceResponse.record_errors`.

    Source: `ProduceResponse.json`, struct `BatchIndexAndErrorMessage`.
    """

    batch_index: int = i32(since=8)
    """The batch index of the record that caused the batch to be dropped."""

    batch_index_error_message: str | None = string(since=8, nullable_since=8, default=None)
    """The error message of the record that caused the batch to be dropped."""


class ProduceLeaderIdAndEpoch(Struct):
    """Value of `PartitionProduceResponse.current_leader`.

    Source: `ProduceResponse.json`, struct `LeaderIdAndEpoch`.
    """

    leader_id: int = i32(since=10, default=-1)
    """The ID of the current leader or -1 if the leader is unknown."""

    leader_epoch: int = i32(since=10, default=-1)
    """The latest known leader epoch."""


class PartitionProduceResponse(Struct):
    """Element of `TopicProduceResponse.partition_responses`.

    Source: `ProduceResponse.json`, struct `PartitionProduceResponse`.
    """

    index: int = i32()
    """The partition index."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    base_offset: int = i64()
    """The base offset."""

    log_append_time_ms: int = i64(since=2, default=-1, ignorable=True)
    """When the broker appended the records, in milliseconds since the Unix epoch, if the topic has
    LogAppendTime; -1 if it has CreateTime.
    """

    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    """The log start offset."""

    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    """The batch indices of records that caused the batch to be dropped."""

    error_message: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    """The global error message summarizing the common root cause of the records that caused the
    batch to be dropped.
    """

    current_leader: ProduceLeaderIdAndEpoch | None = struct(
        ProduceLeaderIdAndEpoch, since=10, tag=0
    )
    """The leader broker that the producer should use for future requests."""


class TopicProduceResponse(Struct):
    """Element of `ProduceResponse.responses`.

    Source: `ProduceResponse.json`, struct `TopicProduceResponse`.
    """

    name: str = string(until=12, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=13, ignorable=True)
    """The unique topic ID."""

    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)
    """Each partition that we produced to within the topic."""


class ProduceNodeEndpoint(Struct):
    """Element of `ProduceResponse.node_endpoints`.

    Source: `ProduceResponse.json`, struct `NodeEndpoint`.
    """

    node_id: int = i32(since=10)
    """The ID of the associated node."""

    host: str = string(since=10)
    """The node's hostname."""

    port: int = i32(since=10)
    """The node's port."""

    rack: str | None = string(since=10, nullable_since=10, default=None)
    """The rack of the node, or null if it has not been assigned to a rack."""


class ProduceResponse(Response, request=ProduceRequest):
    """Response to `ProduceRequest`.

    Versions 0-2 were removed in Apache Kafka 4.0, version 3 is the new baseline. Due to a bug
    in librdkafka, these versions have to be included in the api versions response (see
    KAFKA-18659), but are rejected otherwise. See
    `ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION` for more details.

    Version 1 added the throttle time.

    Version 2 added the log append time.

    Version 3 is the same as version 2.

    Version 4 added KAFKA_STORAGE_ERROR as a possible error code.

    Version 5 added LogStartOffset to filter out spurious OutOfOrderSequenceExceptions on the
    client.

    Version 8 added RecordErrors and ErrorMessage to include information about records that
    cause the whole batch to be dropped. See KIP-467 for details.

    Version 9 enables flexible versions.

    Version 10 adds 'CurrentLeader' and 'NodeEndpoints' as tagged fields (KIP-951).

    Version 11 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Version 12 is the same as version 10 (KIP-890).

    Version 13 replaces topic names with topic IDs (KIP-516). May return UNKNOWN_TOPIC_ID
    error code.

    Source: `ProduceResponse.json`.
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    """Each produce response."""

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    node_endpoints: list[ProduceNodeEndpoint] = array(ProduceNodeEndpoint, since=10, tag=0)
    """Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors
    NOT_LEADER_OR_FOLLOWER.
    """
