"""The AddOffsetsToTxn API (key 25), all versions."""

from __future__ import annotations

from aiokq.wire.fields import i16, i32, i64, string
from aiokq.wire.struct import Request, Response

__all__ = ["AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"]


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """Request of the AddOffsetsToTxn API.

    Version 1 is the same as version 0.

    Version 2 adds the support for new error code PRODUCER_FENCED.

    Version 3 enables flexible versions.

    Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Source: `AddOffsetsToTxnRequest.json`.
    """

    API_KEY = 25
    NAME = "AddOffsetsToTxn"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3

    transactional_id: str = string()
    """The transactional id corresponding to the transaction."""

    producer_id: int = i64()
    """Current producer id in use by the transactional id."""

    producer_epoch: int = i16()
    """Current epoch associated with the producer id."""

    group_id: str = string()
    """The unique group identifier."""


class AddOffsetsToTxnResponse(Response, request=AddOffsetsToTxnRequest):
    """Response to `AddOffsetsToTxnRequest`.

    Starting in version 1, on quota violation brokers send out responses before throttling.

    Version 2 adds the support for new error code PRODUCER_FENCED.

    Version 3 enables flexible versions.

    Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Source: `AddOffsetsToTxnResponse.json`.
    """

    throttle_time_ms: int = i32()
    """Duration in milliseconds for which the request was throttled due to a quota violation, or
    zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The response error code, or 0 if there was no error."""
