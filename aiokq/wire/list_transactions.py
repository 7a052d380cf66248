"""The ListTransactions API (key 66), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListTransactionsTransactionState",
]


class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """Request of the ListTransactions API.

    Version 1: adds DurationFilter to list transactions older than specified duration.

    Version 2: adds TransactionalIdPattern to list transactions with the same
    pattern(KIP-1152).

    Source: `ListTransactionsRequest.json`.
    """

    API_KEY = 66
    NAME = "ListTransactions"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0

    state_filters: list[str] = array(string)
    """The transaction states to filter by: if empty, all transactions are returned; if non-
    empty, then only transactions matching one of the filtered states will be returned.
    """

    producer_id_filters: list[int] = array(i64)
    """The producerIds to filter by: if empty, all transactions will be returned; if non-empty,
    only transactions which match one of the filtered producerIds will be returned.
    """

    duration_filter: int = i64(since=1, default=-1)
    """Duration (in millis) to filter by: if < 0, all transactions will be returned; otherwise,
    only transactions running longer than this duration will be returned.
    """

    transactional_id_pattern: str | None = string(since=2, nullable_since=2, default=None)
    """The transactional ID regular expression pattern to filter by: if it is empty or null, all
    transactions are returned; Otherwise then only the transactions matching the given regular
    expression will be returned.
    """


class ListTransactionsTransactionState(Struct):
    """Element of `ListTransactionsResponse.transaction_states`.

    Source: `ListTransactionsResponse.json`, struct `TransactionState`.
    """

    transactional_id: str = string()
    """The transactional id."""

    producer_id: int = i64()
    """The producer id."""

    transaction_state: str = string()
    """The current transaction state of the producer."""


class ListTransactionsResponse(Response, request=ListTransactionsRequest):
    """Response to `ListTransactionsRequest`.

    Version 1 is the same as version 0 (KIP-994). This API can return InvalidRegularExpression
    (KIP-1152).

    Source: `ListTransactionsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    unknown_state_filters: list[str] = array(string)
    """Set of state filters provided in the request which were unknown to the transaction
    coordinator.
    """

    transaction_states: list[ListTransactionsTransactionState] = array(
        ListTransactionsTransactionState
    )
    """The current state of the transaction for the transactional id."""
