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
    """The transactional ids to describe; the empty list describes none."""


class DescribeTransactionsTopicData(Struct):
    """Partitions of one topic: an element of `DescribeTransactionsTransactionState.topics`.

    Source: `DescribeTransactionsResponse.json`, struct `TopicData`.
    """

    topic: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of the partitions that are in the transaction."""


class DescribeTransactionsTransactionState(Struct):
    """State of one transactional id: an element of
    `DescribeTransactionsResponse.transaction_states`.

    Source: `DescribeTransactionsResponse.json`, struct `TransactionState`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    transactional_id: str = string()
    """The transactional id that was described."""

    transaction_state: str = string()
    """The state of the transaction, such as `Ongoing`."""

    transaction_timeout_ms: int = i32()
    """The maximum duration of the transaction, in milliseconds from its start."""

    transaction_start_time_ms: int = i64()
    """When the transaction was started, in milliseconds since the Unix epoch; -1 if there is no
    transaction.
    """

    producer_id: int = i64()
    """The current producer id of the transactional id."""

    producer_epoch: int = i16()
    """The current epoch of the producer id."""

    topics: list[DescribeTransactionsTopicData] = array(DescribeTransactionsTopicData)
    """The partitions of the transaction. While the transaction is being committed or aborted,
    these are the partitions that have no marker yet.
    """


class DescribeTransactionsResponse(Response, request=DescribeTransactionsRequest):
    """Response to `DescribeTransactionsRequest`.

    Source: `DescribeTransactionsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    transaction_states: list[DescribeTransactionsTransactionState] = array(
        DescribeTransactionsTransactionState
    )
    """The state of each transactional id in the request."""
