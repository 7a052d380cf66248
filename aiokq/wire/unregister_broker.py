"""UnregisterBroker (API key 64): remove the registration of a broker."""

from __future__ import annotations

from aiokq.wire.fields import i16, i32, string
from aiokq.wire.struct import Request, Response

__all__ = ["UnregisterBrokerRequest", "UnregisterBrokerResponse"]


class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    """Request of the UnregisterBroker API.

    Source: `UnregisterBrokerRequest.json`.
    """

    API_KEY = 64
    NAME = "UnregisterBroker"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    broker_id: int = i32()
    """The id of the broker whose registration to remove."""


class UnregisterBrokerResponse(Response, request=UnregisterBrokerRequest):
    """Response to `UnregisterBrokerRequest`.

    Source: `UnregisterBrokerResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""
