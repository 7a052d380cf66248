"""The DescribeTransactions API (key 65), all versions."""

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
    """Array of transactionalIds to include in describe results. If empty, then no results will
    be returned.
    """


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
    """The timeout in milliseconds for the transaction."""

    transaction_start_time_ms: int = i64()
    """The start time of the transaction in milliseconds."""

    producer_id: int = i64()
    """The current producer id associated with the transaction."""

    producer_epoch: int = i16()
    """The current epoch associated with the producer id."""

    topics: list[DescribeTransactionsTopicData] = array(DescribeTransactionsTopicData)
    """The set of partitions included in the current transaction (if active). When a transaction
    is preparing to commit or abort, this will include only partitions which do not have
    markers.
    """


class DescribeTransactionsResponse(Response, request=DescribeTransactionsRequest):
    """Response to `DescribeTransactionsRequest`.

    Source: `DescribeTransactionsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    transaction_states: list[DescribeTransactionsTransactionState] = array(
        DescribeTransactionsTransactionState
    )
    """The current state of the transaction."""
