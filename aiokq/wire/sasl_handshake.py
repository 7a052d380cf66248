"""SaslHandshake (API key 17): choose the SASL mechanism of a connection."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, string
from aiokq.wire.struct import Request, Response

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """Request of the SaslHandshake API.

    After a handshake of version 1, the client sends its tokens in SaslAuthenticate requests. A
    newer version would break Java clients up to 2.4, which negotiate it wrongly (KAFKA-9577).

    Source: `SaslHandshakeRequest.json`.
    """

    API_KEY = 17
    NAME = "SaslHandshake"
    MIN_VERSION = 0
    MAX_VERSION = 1

    mechanism: str = string()
    """The SASL mechanism that the client chooses."""


class SaslHandshakeResponse(Response, request=SaslHandshakeRequest):
    """Response to `SaslHandshakeRequest`.

    Version 1 is the same as version 0. A newer version would break Java clients up to 2.4, which
    negotiate it wrongly (KAFKA-9577).

    Source: `SaslHandshakeResponse.json`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    mechanisms: list[str] = array(string)
    """The SASL mechanisms that the broker has enabled."""
