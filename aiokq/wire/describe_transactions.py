"""DescribeTransactions (API key 65): describe transactions by transactional id."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeTransactionsTopicData",
    "DescribeTransactionsTransactionState",
]


class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    """Request of the DescribeTransactions API.

    Source: `DescribeTransactionsRequest.json`.
    """

    API_KEY = 65
    NAME = "DescribeTransactions"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    transactional_ids: list[str] = array(string)
    """The transactional ids to describe; none if empty."""


class DescribeTransactionsTopicData(Struct):
    """Element of `DescribeTransactionsTransactionState.topics`.

    Source: `DescribeTransactionsResponse.json`, struct `TopicData`.
    """

    topic: str = string()
    """The topic name."""

    partitions: list[int] = array(i32)
    """The partition ids included in the current transaction."""


class DescribeTransactionsTransactionState(Struct):
    """Element of `DescribeTransactionsResponse.transaction_states`.

    Source: `DescribeTransactionsResponse.json`, struct `TransactionState`.
    """

    error_code: int = i16()
    """The error code."""

    transactional_id: str = string()
    """The transactional id."""

    transaction_state: str = string()
    """The current transaction state of the producer."""

    transaction_timeout_ms: int = i32()
    """The transaction timeout, in milliseconds from the start of the transaction."""

    transaction_start_time_ms: int = i64()
    """When the transaction was started, in milliseconds since the Unix epoch; -1 if there is no
    transaction.
    """

    producer_id: int = i64()
    """The current producer id associated with the transaction."""

    producer_epoch: int = i16()
    """The current epoch associated with the producer id."""

    topics: list[DescribeTransactionsTopicData] = array(DescribeTransactionsTopicData)
    """The partitions of the transaction. While the transaction is being committed or aborted,
    these are the partitions that have no marker yet.
    """


class DescribeTransactionsResponse(Response, request=DescribeTransactionsRequest):
    """Response to `DescribeTransactionsRequest`.

    Source: `DescribeTransactionsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    transaction_states: list[DescribeTransactionsTransactionState] = array(
        DescribeTransactionsTransactionState
    )
    """The state of each transactional id in the request."""
