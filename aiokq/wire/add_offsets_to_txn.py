"""AddOffsetsToTxn (API key 25): add the offset commits of a group to a transaction."""

from __future__ import annotations

from aiokq.wire.fields import i16, i32, i64, string
from aiokq.wire.struct import Request, Response

__all__ = ["AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"]


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """Request of the AddOffsetsToTxn API.

    Version 1 is the same as version 0.

    Version 2 adds the error code PRODUCER_FENCED.

    Version 3 is the first flexible version.

    Version 4 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Source: `AddOffsetsToTxnRequest.json`.
    """

    API_KEY = 25
    NAME = "AddOffsetsToTxn"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3

    transactional_id: str = string()
    """The transactional id of the transaction."""

    producer_id: int = i64()
    """The current producer id of the transactional id."""

    producer_epoch: int = i16()
    """The current epoch of the producer id."""

    group_id: str = string()
    """The id of the group whose offsets the transaction will commit."""


class AddOffsetsToTxnResponse(Response, request=AddOffsetsToTxnRequest):
    """Response to `AddOffsetsToTxnRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 adds the error code PRODUCER_FENCED.

    Version 3 is the first flexible version.

    Version 4 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Source: `AddOffsetsToTxnResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""
