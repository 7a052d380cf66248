"""SaslHandshake (17), versions 0-1: choose the SASL mechanism of a login.

Errors: UNSUPPORTED_SASL_MECHANISM, after which the connection is closed; ILLEGAL_SASL_STATE if the
listener has no SASL, if the client has logged in and its session does not expire, or if the last
re-authentication began less than a second ago. The connection is closed without a response if a
re-authentication names a mechanism that is not enabled, or if a session has expired less than a
second after the beginning of the last re-authentication.

v0  tokens follow without request headers      v1  tokens follow in SaslAuthenticate requests

Source: Kafka ``SaslServerAuthenticator.handleHandshakeRequest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Login
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

FIRST_WITH_REQUESTS: Final = 1


async def handle(login: Login, request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    """Begin a login, or a re-authentication."""
    return login.handshake(
        call.connection, request.mechanism, sends_tokens=call.version < FIRST_WITH_REQUESTS
    )
