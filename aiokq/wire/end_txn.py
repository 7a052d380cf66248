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

    From version 5 on, each transaction ends with a new producer epoch (KIP-890, part 2).

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
    """The producer ID."""

    producer_epoch: int = i16()
    """The current epoch associated with the producer."""

    committed: bool = boolean()
    """True to commit the transaction, false to abort it."""


class EndTxnResponse(Response, request=EndTxnRequest):
    """Response to `EndTxnRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 adds the error code PRODUCER_FENCED.

    Version 3 is the first flexible version.

    Version 4 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    From version 5 on, each transaction ends with a new producer epoch (KIP-890, part 2), so the
    response has producer id and epoch.

    Source: `EndTxnResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    producer_id: int = i64(since=5, default=-1, ignorable=True)
    """The producer ID."""

    producer_epoch: int = i16(since=5, default=-1, ignorable=True)
    """The current epoch associated with the producer."""
