"""The SaslHandshake API (key 17), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, string
from aiokq.wire.struct import Request, Response

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """Request of the SaslHandshake API.

    Version 1 supports SASL_AUTHENTICATE. NOTE: Version cannot be easily bumped due to
    incorrect client negotiation for clients <= 2.4. See
    https://issues.apache.org/jira/browse/KAFKA-9577.

    Source: `SaslHandshakeRequest.json`.
    """

    API_KEY = 17
    NAME = "SaslHandshake"
    MIN_VERSION = 0
    MAX_VERSION = 1

    mechanism: str = string()
    """The SASL mechanism chosen by the client."""


class SaslHandshakeResponse(Response, request=SaslHandshakeRequest):
    """Response to `SaslHandshakeRequest`.

    Version 1 is the same as version 0. NOTE: Version cannot be easily bumped due to incorrect
    client negotiation for clients <= 2.4. See
    https://issues.apache.org/jira/browse/KAFKA-9577.

    Source: `SaslHandshakeResponse.json`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    mechanisms: list[str] = array(string)
    """The mechanisms enabled in the server."""
