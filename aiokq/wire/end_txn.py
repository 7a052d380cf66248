"""The EndTxn API (key 26), all versions."""

from __future__ import annotations

from aiokq.wire.fields import boolean, i16, i32, i64, string
from aiokq.wire.struct import Request, Response

__all__ = ["EndTxnRequest", "EndTxnResponse"]


class EndTxnRequest(Request["EndTxnResponse"]):
    """Request of the EndTxn API.

    Version 1 is the same as version 0.

    Version 2 adds the support for new error code PRODUCER_FENCED.

    Version 3 enables flexible versions.

    Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Version 5 enables bumping epoch on every transaction (KIP-890 Part 2).

    Source: `EndTxnRequest.json`.
    """

    API_KEY = 26
    NAME = "EndTxn"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3

    transactional_id: str = string()
    """The ID of the transaction to end."""

    producer_id: int = i64()
    """The producer ID."""

    producer_epoch: int = i16()
    """The current epoch associated with the producer."""

    committed: bool = boolean()
    """True if the transaction was committed, false if it was aborted."""


class EndTxnResponse(Response, request=EndTxnRequest):
    """Response to `EndTxnRequest`.

    Starting in version 1, on quota violation, brokers send out responses before throttling.

    Version 2 adds the support for new error code PRODUCER_FENCED.

    Version 3 enables flexible versions.

    Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Version 5 enables bumping epoch on every transaction (KIP-890 Part 2), so producer ID and
    epoch are included in the response.

    Source: `EndTxnResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    producer_id: int = i64(since=5, default=-1, ignorable=True)
    """The producer ID."""

    producer_epoch: int = i16(since=5, default=-1, ignorable=True)
    """The current epoch associated with the producer."""
