"""OAUTHBEARER: the client sends a token from a token provider.

Source: RFC 7628, KIP-255, KIP-342; Kafka ``OAuthBearerSaslClient.java``.
Tests: ``tests/unit/connection/sasl/test_oauthbearer.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiokq.connection.sasl.oauthbearer_messages import (
    REFUSAL_SEEN,
    ClientFirst,
    OAuthMessageError,
    Refusal,
)
from aiokq.core.errors import AuthenticationFailed

if TYPE_CHECKING:
    from aiokq.connection.sasl.token_cache import TokenCache

__all__ = ["OAuthBearer", "oauthbearer"]


class OAuthBearer:
    """The client's side of one SASL exchange with the mechanism OAUTHBEARER.

    Args:
        tokens: gives the token; shared by the exchanges of a client.
        extensions: SASL extensions that are sent in addition to those of the token.
    """

    name = "OAUTHBEARER"

    def __init__(self, tokens: TokenCache, extensions: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._extensions = extensions
        self._refused = False

    def __repr__(self) -> str:
        return "<OAuthBearer>"

    async def start(self) -> bytes:
        """Return the message with the token.

        Raises:
            AuthenticationFailed: there is no token, or it cannot be sent.
            ConnectionLost: there is no token at the moment.
        """
        token = await self._tokens.get()
        try:
            return ClientFirst(
                token.value, extensions={**self._extensions, **token.extensions}
            ).render()
        except OAuthMessageError as error:
            raise AuthenticationFailed(f"SASL OAUTHBEARER: {error}") from None

    async def step(self, challenge: bytes) -> bytes | None:
        """Return None if the token is accepted.

        If the token is refused, forget it, and return the acknowledgement that Kafka's broker
        awaits before it sends its error.

        Raises:
            AuthenticationFailed: the broker refused the token and sent no error for it.
        """
        if not challenge and not self._refused:
            return None
        self._tokens.refused()
        if not self._refused:
            self._refused = True
            return REFUSAL_SEEN
        raise AuthenticationFailed(
            f"SASL OAUTHBEARER: the broker refused the token{_why(challenge)}"
        )


def _why(challenge: bytes) -> str:
    try:
        told = Refusal.parse(challenge)
    except OAuthMessageError:
        return ""
    scope = f", which lacks the scope {told.scope!r}" if told.scope else ""
    return f": {told.status!r}{scope}"


def oauthbearer(
    tokens: TokenCache, extensions: Mapping[str, str] | None = None
) -> Callable[[str], OAuthBearer]:
    """Return a mechanism factory for `Security`."""
    return lambda host: OAuthBearer(tokens, extensions or {})
