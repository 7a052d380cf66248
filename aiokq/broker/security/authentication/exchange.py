"""The interface between a login and its SASL mechanism.

Source: RFC 4422; Kafka ``SaslServer``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.connection.principal import Principal
    from aiokq.connection.request_context import RequestContext

__all__ = ["Authenticated", "Exchange", "ExchangeFailed", "Mechanism"]


class Authenticated(NamedTuple):
    """The result of a successful exchange.

    Attributes:
        expires_at_ms: the time at which the credential expires, in milliseconds since 1970; None if
            the credential does not expire.
    """

    principal: Principal
    expires_at_ms: int | None = None


class ExchangeFailed(Exception):
    """The client is not authenticated.

    Attributes:
        reason: the cause, for the log of the broker. It contains no secret.
        told: the text for the client. None stands for Kafka's text for an authentication failure,
            which is the same for all causes, so that clients cannot learn which users exist.
    """

    def __init__(self, reason: str, *, told: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


class Exchange(Protocol):
    """The broker's side of the messages of one login."""

    @property
    def outcome(self) -> Authenticated | None:
        """The result; None before the exchange is complete."""
        ...

    @property
    def refusal(self) -> str | None:
        """Why a credential of the client has been refused, although the exchange goes on.

        The text is for the log of the broker. It contains no secret. None if no credential has been
        refused, or if the mechanism ends the exchange with each refusal.
        """
        ...

    @property
    def answer(self) -> Callable[[bytes], bytes] | None:
        """A function like `respond` that never waits; None if the mechanism may have to wait."""
        ...

    async def respond(self, message: bytes) -> bytes:
        """Return the broker's answer to a message of the client.

        Raises:
            ExchangeFailed: the client is not authenticated.
        """
        ...


Mechanism: TypeAlias = Callable[["RequestContext"], Exchange]
"""Returns the exchange for a login of a connection."""
