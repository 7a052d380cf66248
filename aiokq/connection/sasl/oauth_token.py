"""`OAuthToken`: a bearer token, and the types of token providers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Protocol, TypeAlias, runtime_checkable

from aiokq.core.frozen import frozen

__all__ = ["OAuthToken", "TokenFunction", "TokenProvider"]


@frozen
class OAuthToken:
    """A bearer token for the SASL mechanism OAUTHBEARER.

    Attributes:
        value: the token, as it is sent to the broker.
        expires_at: expiry time in seconds since 1970; None for a JWT, which contains the time, and
            for an unknown time.
        extensions: SASL extensions that are sent with the token (KIP-342).
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


TokenFunction: TypeAlias = Callable[[], str | OAuthToken | Awaitable[str | OAuthToken]]
"""A function or coroutine function that returns a token; a function is called in a thread."""


@runtime_checkable
class TokenProvider(Protocol):
    """An object that returns tokens, as in aiokafka.

    The object may also have a method `extensions()`, which returns the SASL extensions.
    """

    def token(self) -> str | OAuthToken | Awaitable[str | OAuthToken]:
        """Return a token.

        May be a coroutine function. Otherwise it is called in a thread, because it may block.
        """
        ...
