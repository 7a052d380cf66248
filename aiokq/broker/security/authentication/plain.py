"""SASL PLAIN: the client sends its user name and password in one message.

Source: RFC 4616; Kafka ``PlainSaslServer.java``, ``PlainServerCallbackHandler.java``.
Tests: ``tests/unit/broker/security/authentication/test_plain.py``.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.security.authentication.exchange import Authenticated, ExchangeFailed
from aiokq.connection.principal import Principal

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext

__all__ = ["PasswordCheck", "Passwords", "PlainExchange"]

PasswordCheck: TypeAlias = Callable[["RequestContext", str, str], Awaitable[Authenticated | None]]
"""Takes a connection, a user name and a password; returns who the client is, or None."""

WRONG: Final = "Authentication failed: Invalid username or password"
"""Kafka's text, which is the same for an unknown user and for a wrong password."""

PARTS: Final = 3


class PlainExchange:
    """The broker's side of one exchange with the mechanism PLAIN.

    Args:
        connection: the connection of the client.
        check: returns the principal of a user name and password.

    Attributes:
        outcome: see `Exchange`.
    """

    __slots__ = ("_check", "_connection", "outcome")

    refusal: Final = None
    """See `Exchange`."""

    def __init__(self, connection: RequestContext, check: PasswordCheck) -> None:
        self._connection = connection
        self._check = check
        self.outcome: Authenticated | None = None

    @property
    def answer(self) -> Callable[[bytes], bytes] | None:
        """See `Exchange.answer`; None if `check` is not `Passwords`, because it may then wait."""
        return self._answer if isinstance(self._check, Passwords) else None

    async def respond(self, message: bytes) -> bytes:
        """Return an empty answer if the password is right.

        Raises:
            ExchangeFailed: the message is malformed, the password is wrong, or the client asks to
                act as another user.
        """
        authorization_id, name, password = _parts(message)
        return self._complete(
            authorization_id, name, await self._check(self._connection, name, password)
        )

    def _answer(self, message: bytes) -> bytes:
        assert isinstance(self._check, Passwords)
        authorization_id, name, password = _parts(message)
        return self._complete(authorization_id, name, self._check.find(name, password))

    def _complete(self, authorization_id: str, name: str, found: Authenticated | None) -> bytes:
        if found is None:
            raise ExchangeFailed("unknown user or wrong password", told=WRONG)
        if authorization_id not in ("", name):
            told = (
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
            raise ExchangeFailed("the client asks to act as another user", told=told)
        self.outcome = found
        return b""


def _parts(message: bytes) -> list[str]:
    """Return the authorization id, the name and the password in a message.

    Raises:
        ExchangeFailed: the message is malformed.
    """
    try:
        parts = message.decode().split("\0", PARTS)
    except UnicodeDecodeError:
        raise ExchangeFailed("the message is not UTF-8", told=WRONG) from None
    if len(parts) != PARTS:
        told = "Invalid SASL/PLAIN response: expected 3 tokens, got "
        told += str(min(len(parts), PARTS + 1))
        raise ExchangeFailed("the message has not three parts", told=told)
    for value, what in ((parts[1], "username"), (parts[2], "password")):
        if not value:
            told = f"Authentication failed: {what} not specified"
            raise ExchangeFailed(f"no {what}", told=told)
    return parts


class Passwords:
    """The passwords of users by name; a `PasswordCheck` that never waits.

    The time of a check does not depend on whether the user exists.
    """

    __slots__ = ("_passwords",)

    def __init__(self, users: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in users.items()}

    def find(self, name: str, password: str) -> Authenticated | None:
        """Return the user; None if there is no such user, or the password is wrong."""
        stored = self._passwords.get(name)
        is_equal = hmac.compare_digest(password.encode(), stored or b"\0")
        return Authenticated(Principal.user(name)) if is_equal and stored is not None else None

    async def __call__(
        self, connection: RequestContext, name: str, password: str
    ) -> Authenticated | None:
        return self.find(name, password)
