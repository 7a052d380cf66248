"""SASL OAUTHBEARER: the client sends a token, which a validator accepts or refuses.

A refused token is answered with a reason. The client then either sends one byte, and the login
fails, or sends a second token. A second refused token ends the login. Some clients, such as
franz-go, close the connection instead.

Source: RFC 7628; Kafka ``OAuthBearerSaslServer.java``.
Tests: ``tests/unit/broker/security/authentication/test_oauthbearer.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.security.authentication.exchange import Authenticated, ExchangeFailed
from aiokq.connection.sasl.oauthbearer_messages import (
    REFUSAL_SEEN,
    ClientFirst,
    OAuthMessageError,
    Refusal,
)

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext

__all__ = ["INSUFFICIENT_SCOPE", "INVALID_TOKEN", "OAuthExchange", "TokenRefused", "TokenValidator"]

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"

MAX_TOKENS: Final = 2
"""Number of tokens that one login may try.

Kafka has no limit, so its clients can try tokens without the delay of a failed login.
"""


class TokenRefused(Exception):
    """A token is not valid.

    Attributes:
        reason: the cause, for the log of the broker; it contains no part of the token.
        scope: the scope that the token lacks; None if something else is wrong.
    """

    def __init__(self, reason: str, *, scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.scope = scope


TokenValidator: TypeAlias = Callable[["RequestContext", str], Awaitable[Authenticated]]
"""Takes a connection and its token; returns the principal, or raises TokenRefused."""


class OAuthExchange:
    """The broker's side of one exchange with the mechanism OAUTHBEARER.

    Args:
        connection: the connection of the client.
        validate: returns the principal of a token, or raises TokenRefused.

    Attributes:
        outcome: see `Exchange`.
        refusal: see `Exchange`. It is the reason of the last refused token.
    """

    __slots__ = ("_connection", "_tokens", "_told", "_validate", "outcome", "refusal")

    answer: Final = None
    """See `Exchange`. It is None, because the keys of tokens may have to be fetched."""

    def __init__(self, connection: RequestContext, validate: TokenValidator) -> None:
        self._connection = connection
        self._validate = validate
        self._tokens = 0
        self._told = ""
        self.outcome: Authenticated | None = None
        self.refusal: str | None = None

    async def respond(self, message: bytes) -> bytes:
        """Return an empty answer if the token is valid, and the reason as JSON if it is not.

        Raises:
            ExchangeFailed: the message is malformed, the client acknowledges the reason, the second
                token is not valid, or the client asks to act as another principal.
        """
        if self.refusal is not None and message == REFUSAL_SEEN:
            raise ExchangeFailed(self.refusal, told=self._told)
        try:
            first = ClientFirst.parse(message)
        except OAuthMessageError as error:
            raise ExchangeFailed(str(error)) from None
        self._tokens += 1
        try:
            found = await self._validate(self._connection, first.token)
        except TokenRefused as refused:
            return self._refuse(refused)
        if first.authzid not in ("", found.principal.name):
            told = (
                f"Authentication failed: Client requested an authorization id ({first.authzid}) "
                f"that is different from the token's principal name ({found.principal.name})"
            )
            raise ExchangeFailed("the client asks to act as another principal", told=told)
        self.outcome = found
        return b""

    def _refuse(self, refused: TokenRefused) -> bytes:
        status = INVALID_TOKEN if refused.scope is None else INSUFFICIENT_SCOPE
        answer = Refusal(status, refused.scope).render()
        self.refusal, self._told = refused.reason, answer.decode()
        if self._tokens >= MAX_TOKENS:
            raise ExchangeFailed(self.refusal, told=self._told)
        return answer
