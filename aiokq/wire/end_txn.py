"""EndTxn (API key 26): commit or abort a transaction."""

from __future__ import annotations

from aiokq.wire.fields import boolean, i16, i32, i64, string
from aiokq.wire.struct import Request, Response

__all__ = ["EndTxnRequest", "EndTxnResponse"]


class EndTxnRequest(Request["EndTxnResponse"]):
    """Request of the EndTxn API.

    Version 1 is the same as version 0.

    Version 2 adds the error code PRODUCER_FENCED.

    Version 3 is the first flexible version.

    Version 4 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    From version 5 on, the end of a transaction bumps the producer epoch (KIP-890, part 2).

    Source: `EndTxnRequest.json`.
    """

    API_KEY = 26
    NAME = "EndTxn"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3

    transactional_id: str = string()
    """The transactional id of the transaction to end."""

    producer_id: int = i64()
    """The producer id of the transaction."""

    producer_epoch: int = i16()
    """The current epoch of the producer id."""

    committed: bool = boolean()
    """Whether to commit the transaction; false aborts it."""


class EndTxnResponse(Response, request=EndTxnRequest):
    """Response to `EndTxnRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 adds the error code PRODUCER_FENCED.

    Version 3 is the first flexible version.

    Version 4 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    From version 5 on, the end of a transaction bumps the producer epoch (KIP-890, part 2), and the
    response has the producer id and epoch for the next transaction.

    Source: `EndTxnResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    producer_id: int = i64(since=5, default=-1, ignorable=True)
    """The producer id for the next transaction, or -1."""

    producer_epoch: int = i16(since=5, default=-1, ignorable=True)
    """The producer epoch for the next transaction, or -1."""
