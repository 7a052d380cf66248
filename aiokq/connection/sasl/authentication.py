"""`authenticate`: the SASL exchange with a broker, at login and at the renewal of a session.

The client uses the configured mechanism only, and does not choose from the broker's list: the list
is not authenticated, and a weaker mechanism could disclose the password.

Source: KIP-43, KIP-152, KIP-368.
Tests: ``tests/unit/connection/test_handshake.py``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import AuthenticationFailed, ConnectionLost, UnsupportedVersion, error_for
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.connection.connection import Connection
    from aiokq.connection.sasl.mechanism import SaslMechanism

__all__ = ["SaslSession", "authenticate"]

_UNSUPPORTED_SASL_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34

_LONGEST: Final = 30 * 86400.0
"""Maximum of `SaslSession.lifetime`, in seconds, because asyncio refuses timers of many years."""


@frozen
class SaslSession:
    """The start and the lifetime of a SASL session.

    Attributes:
        began: the loop's time in seconds at which the mechanism's exchange began, after
            SaslHandshake was answered.
        lifetime: seconds from `began` until the broker ends the session; None if it does not end.
    """

    began: float
    lifetime: float | None


async def authenticate(
    connection: Connection, mechanism: SaslMechanism, first: bytes | None = None
) -> SaslSession:
    """Choose the mechanism, then exchange messages until the mechanism is done.

    Args:
        first: the first message of the mechanism, if the caller has called `start` already.

    Raises:
        AuthenticationFailed: there are no credentials, the broker refuses them, or the broker is
            not authentic.
        UnsupportedVersion: the broker is older than 1.0, or its listener does not offer SASL.
        BrokerError: the listener does not offer SASL, or not this mechanism.
        ConnectionLost, RequestTimeout, ProtocolError: the connection failed during the exchange.
    """
    # Imported here, because a client without SASL needs neither module.
    from aiokq.wire.sasl_authenticate import SaslAuthenticateRequest
    from aiokq.wire.sasl_handshake import SaslHandshakeRequest

    if connection.api_versions.get(SaslHandshakeRequest.API_KEY, (0, -1))[1] < 1:
        raise UnsupportedVersion(
            "the broker has no SaslHandshake version 1: it is older than 1.0, or its listener"
            " does not offer SASL",
            api="SaslHandshake",
            node=connection.name,
        )
    chosen = await connection.sasl_request(
        SaslHandshakeRequest(mechanism=mechanism.name), version=1
    )
    if chosen.error_code:
        message = None
        if chosen.error_code == _UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(chosen.mechanisms) or "none"
            message = (
                f"the listener does not offer {mechanism.name}: enable it on the listener, or set "
                f"sasl_mechanism to one of: {offered}"
            )
        elif chosen.error_code == _ILLEGAL_SASL_STATE:
            message = (
                "this listener does not use SASL: set security_protocol=PLAINTEXT or SSL, or use "
                "the broker's SASL port"
            )
        raise error_for(chosen.error_code, message, api="SaslHandshake", node=connection.name)
    # The session's lifetime counts from the login, not from the earlier requests, which have all
    # been answered.
    began = asyncio.get_running_loop().time()
    token: bytes | None = await mechanism.start() if first is None else first
    lifetime_ms = 0
    while token is not None:
        try:
            answer = await connection.sasl_request(SaslAuthenticateRequest(auth_bytes=token))
        except ConnectionLost as error:
            # A broker that refuses credentials sends an error (KIP-152), so a lost connection may
            # mean that the broker was stopped.
            if isinstance(connection.error, ConnectionLost):
                raise ConnectionLost(
                    "the broker closed the connection during authentication; if this repeats, the "
                    "broker's configuration of the mechanism is wrong, or differs",
                    api="SaslAuthenticate",
                    node=connection.name,
                ) from error
            raise
        if answer.error_code:
            refusal = error_for(
                answer.error_code,
                answer.error_message,
                api="SaslAuthenticate",
                node=connection.name,
            )
            if answer.error_message is not None and answer.error_code == AuthenticationFailed.code:
                refusal.args = (
                    f"{refusal.message}; check the credentials of this client "
                    f"(sasl_* of {mechanism.name})",
                )
            raise refusal
        lifetime_ms = answer.session_lifetime_ms
        try:
            token = await mechanism.step(answer.auth_bytes)
        except AuthenticationFailed as error:
            error.add_context(api="SaslAuthenticate", node=connection.name)
            raise
    return SaslSession(began, min(lifetime_ms / 1000, _LONGEST) if lifetime_ms > 0 else None)
