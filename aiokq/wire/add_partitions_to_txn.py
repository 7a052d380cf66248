"""AddPartitionsToTxn (API key 24): add partitions to a transaction, before their first record."""

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
    """Partitions of one topic: an element of `AddPartitionsToTxnTransaction.topics` and of
    `AddPartitionsToTxnRequest.v3_and_below_topics`.

    Source: `AddPartitionsToTxnRequest.json`, struct `AddPartitionsToTxnTopic`.
    """

    name: str = string()
    """The name of the topic."""

    partitions: list[int] = array(i32)
    """The indexes of partitions of the topic."""


class AddPartitionsToTxnTransaction(Struct):
    """Partitions to add to one transaction, or to check: an element of
    `AddPartitionsToTxnRequest.transactions`.

    Source: `AddPartitionsToTxnRequest.json`, struct `AddPartitionsToTxnTransaction`.
    """

    transactional_id: str = string(since=4)
    """The transactional id of the transaction."""

    producer_id: int = i64(since=4)
    """The current producer id of the transactional id."""

    producer_epoch: int = i16(since=4)
    """The current epoch of the producer id."""

    verify_only: bool = boolean(since=4)
    """Whether to check that the partitions are in the transaction, instead of adding them."""

    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)
    """The partitions to add to the transaction, or to check if `verify_only` is true."""


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """Request of the AddPartitionsToTxn API.

    Version 1 is the same as version 0.

    Version 2 adds the error code PRODUCER_FENCED.

    Version 3 is the first flexible version.

    From version 4 on, a request can contain several transactions. Version 4 also adds VerifyOnly,
    with which a broker checks whether partitions are already in the transaction.

    Version 5 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Clients send versions 0 to 3; brokers send version 4 or newer.

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
    """The transactions to which partitions are added, or whose partitions are checked."""

    v3_and_below_transactional_id: str = string(until=3)
    """The transactional id of the transaction."""

    v3_and_below_producer_id: int = i64(until=3)
    """The current producer id of the transactional id."""

    v3_and_below_producer_epoch: int = i16(until=3)
    """The current epoch of the producer id."""

    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)
    """The partitions to add to the transaction."""


class AddPartitionsToTxnPartitionResult(Struct):
    """Result for one partition: an element of `AddPartitionsToTxnTopicResult.results_by_partition`.

    Source: `AddPartitionsToTxnResponse.json`, struct `AddPartitionsToTxnPartitionResult`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    partition_error_code: int = i16()
    """The error code, or 0 if there was no error."""


class AddPartitionsToTxnTopicResult(Struct):
    """Results for the partitions of one topic: an element of
    `AddPartitionsToTxnResult.topic_results` and of
    `AddPartitionsToTxnResponse.results_by_topic_v3_and_below`.

    Source: `AddPartitionsToTxnResponse.json`, struct `AddPartitionsToTxnTopicResult`.
    """

    name: str = string()
    """The topic name."""

    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )
    """The result for each partition."""


class AddPartitionsToTxnResult(Struct):
    """Result for one transaction: an element of
    `AddPartitionsToTxnResponse.results_by_transaction`.

    Source: `AddPartitionsToTxnResponse.json`, struct `AddPartitionsToTxnResult`.
    """

    transactional_id: str = string(since=4)
    """The transactional id of the transaction."""

    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, since=4
    )
    """The result for each topic."""


class AddPartitionsToTxnResponse(Response, request=AddPartitionsToTxnRequest):
    """Response to `AddPartitionsToTxnRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 adds the error code PRODUCER_FENCED.

    Version 3 is the first flexible version.

    From version 4 on, a response can contain the results of several transactions. Version 4 also
    adds an error code for the whole request.

    Version 5 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Source: `AddPartitionsToTxnResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16(since=4, ignorable=True)
    """The error code of the whole request, or 0 if there was no error."""

    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4
    )
    """The result for each transaction."""

    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3
    )
    """The result for each topic."""
