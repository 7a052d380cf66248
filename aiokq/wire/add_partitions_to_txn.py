"""The AddPartitionsToTxn API (key 24), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
]


class AddPartitionsToTxnTopic(Struct):
    """Element of `AddPartitionsToTxnTransaction.topics` and element of
    `AddPartitionsToTxnRequest.v3_and_below_topics`.

    Source: `AddPartitionsToTxnRequest.json`, struct `AddPartitionsToTxnTopic`.
    """

    name: str = string()
    """The name of the topic."""

    partitions: list[int] = array(i32)
    """The partition indexes to add to the transaction."""


class AddPartitionsToTxnTransaction(Struct):
    """Element of `AddPartitionsToTxnRequest.transactions`.

    Source: `AddPartitionsToTxnRequest.json`, struct `AddPartitionsToTxnTransaction`.
    """

    transactional_id: str = string(since=4)
    """The transactional id corresponding to the transaction."""

    producer_id: int = i64(since=4)
    """Current producer id in use by the transactional id."""

    producer_epoch: int = i16(since=4)
    """Current epoch associated with the producer id."""

    verify_only: bool = boolean(since=4)
    """Boolean to signify if we want to check if the partition is in the transaction rather than
    add it.
    """

    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)
    """The partitions to add to the transaction."""


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """Request of the AddPartitionsToTxn API.

    Version 1 is the same as version 0.

    Version 2 adds the support for new error code PRODUCER_FENCED.

    Version 3 enables flexible versions.

    Version 4 adds VerifyOnly field to check if partitions are already in transaction and adds
    support to batch multiple transactions.

    Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Versions 3 and below will be exclusively used by clients and versions 4 and above will be
    used by brokers.

    Source: `AddPartitionsToTxnRequest.json`.
    """

    API_KEY = 24
    NAME = "AddPartitionsToTxn"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4
    )
    """List of transactions to add partitions to."""

    v3_and_below_transactional_id: str = string(until=3)
    """The transactional id corresponding to the transaction."""

    v3_and_below_producer_id: int = i64(until=3)
    """Current producer id in use by the transactional id."""

    v3_and_below_producer_epoch: int = i16(until=3)
    """Current epoch associated with the producer id."""

    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)
    """The partitions to add to the transaction."""


class AddPartitionsToTxnPartitionResult(Struct):
    """Element of `AddPartitionsToTxnTopicResult.results_by_partition`.

    Source: `AddPartitionsToTxnResponse.json`, struct `AddPartitionsToTxnPartitionResult`.
    """

    partition_index: int = i32()
    """The partition indexes."""

    partition_error_code: int = i16()
    """The response error code."""


class AddPartitionsToTxnTopicResult(Struct):
    """Element of `AddPartitionsToTxnResult.topic_results` and element of
    `AddPartitionsToTxnResponse.results_by_topic_v3_and_below`.

    Source: `AddPartitionsToTxnResponse.json`, struct `AddPartitionsToTxnTopicResult`.
    """

    name: str = string()
    """The topic name."""

    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )
    """The results for each partition."""


class AddPartitionsToTxnResult(Struct):
    """Element of `AddPartitionsToTxnResponse.results_by_transaction`.

    Source: `AddPartitionsToTxnResponse.json`, struct `AddPartitionsToTxnResult`.
    """

    transactional_id: str = string(since=4)
    """The transactional id corresponding to the transaction."""

    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, since=4
    )
    """The results for each topic."""


class AddPartitionsToTxnResponse(Response, request=AddPartitionsToTxnRequest):
    """Response to `AddPartitionsToTxnRequest`.

    Starting in version 1, on quota violation brokers send out responses before throttling.

    Version 2 adds the support for new error code PRODUCER_FENCED.

    Version 3 enables flexible versions.

    Version 4 adds support to batch multiple transactions and a top level error code.

    Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Source: `AddPartitionsToTxnResponse.json`.
    """

    throttle_time_ms: int = i32()
    """Duration in milliseconds for which the request was throttled due to a quota violation, or
    zero if the request did not violate any quota.
    """

    error_code: int = i16(since=4, ignorable=True)
    """The response top level error code."""

    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4
    )
    """Results categorized by transactional ID."""

    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3
    )
    """The results for each topic."""
