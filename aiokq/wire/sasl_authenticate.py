"""SaslAuthenticate (API key 36): send one message of a SASL exchange."""

from __future__ import annotations

from aiokq.wire.fields import bytes_, i16, i64, string
from aiokq.wire.struct import Request, Response

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """Request of the SaslAuthenticate API.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Source: `SaslAuthenticateRequest.json`.
    """

    API_KEY = 36
    NAME = "SaslAuthenticate"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2

    auth_bytes: bytes = bytes_()
    """The message of the client, in the format of the SASL mechanism."""


class SaslAuthenticateResponse(Response, request=SaslAuthenticateRequest):
    """Response to `SaslAuthenticateRequest`.

    Version 1 adds the session lifetime.

    Version 2 is the first flexible version.

    Source: `SaslAuthenticateResponse.json`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    auth_bytes: bytes = bytes_()
    """The message of the server, in the format of the SASL mechanism."""

    session_lifetime_ms: int = i64(since=1, ignorable=True)
    """How long the session lasts, in milliseconds; 0 for no limit. After that time the connection
    accepts only a new authentication.
    """
