"""ListTransactions (API key 66): list the transactions that a broker coordinates."""

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

    Version 1 adds DurationFilter, the minimum duration of the transactions to list (KIP-994).

    Version 2 adds TransactionalIdPattern, which selects transactional ids by a regular expression
    (KIP-1152).

    Source: `ListTransactionsRequest.json`.
    """

    API_KEY = 66
    NAME = "ListTransactions"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0

    state_filters: list[str] = array(string)
    """The states of the transactions to list; empty for all states."""

    producer_id_filters: list[int] = array(i64)
    """The producer ids of the transactions to list; empty for all producer ids."""

    duration_filter: int = i64(since=1, default=-1)
    """The minimum duration of the transactions to list, in milliseconds; negative for all."""

    transactional_id_pattern: str | None = string(since=2, nullable_since=2, default=None)
    """A regular expression for the transactional ids to list; null or empty for all."""


class ListTransactionsTransactionState(Struct):
    """One transaction: an element of `ListTransactionsResponse.transaction_states`.

    Source: `ListTransactionsResponse.json`, struct `TransactionState`.
    """

    transactional_id: str = string()
    """The transactional id of the transaction."""

    producer_id: int = i64()
    """The current producer id of the transactional id."""

    transaction_state: str = string()
    """The state of the transaction, such as `Ongoing`."""


class ListTransactionsResponse(Response, request=ListTransactionsRequest):
    """Response to `ListTransactionsRequest`.

    Version 1 is the same as version 0 (KIP-994). Version 2 adds the error code
    INVALID_REGULAR_EXPRESSION (KIP-1152).

    Source: `ListTransactionsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    unknown_state_filters: list[str] = array(string)
    """The states in the request that the coordinator does not recognize."""

    transaction_states: list[ListTransactionsTransactionState] = array(
        ListTransactionsTransactionState
    )
    """The transactions that match all filters."""
