"""SaslAuthenticate (36), versions 0-2: continue a login with a token.

Errors: SASL_AUTHENTICATION_FAILED, after which the connection is closed; ILLEGAL_SASL_STATE if no
login has begun.

v1  lifetime of the session      v2  flexible

Source: Kafka ``SaslServerAuthenticator.handleSaslToken``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Login
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def handle(
    login: Login, request: SaslAuthenticateRequest, call: Call
) -> SaslAuthenticateResponse:
    """Pass the client's token to the SASL mechanism, and return its answer."""
    return await login.authenticate(call.connection, bytes(request.auth_bytes))
