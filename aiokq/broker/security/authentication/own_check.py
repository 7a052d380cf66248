"""`OwnCheck`: logins by `authenticate`, the function that the caller of `EmbeddedCluster` gives.

``authenticate(mechanism, listener, name, secret)`` gets the user name and the password for PLAIN,
or "" and the token for OAUTHBEARER. It returns the name of the user, a `Principal`, an
`ExpiringLogin` (which adds the end of the session), or None to refuse the login.

The number of calls at the same time is limited, because clients before their login cause them. When
the limit is reached, client addresses take turns, and so do the users who log in again.

Tests: ``tests/unit/broker/security/authentication/test_own_check.py``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.security.authentication.exchange import Authenticated, ExchangeFailed
from aiokq.broker.security.authentication.expiring_login import ExpiringLogin
from aiokq.broker.security.authentication.oauthbearer import TokenRefused
from aiokq.connection.budgets import short_name
from aiokq.connection.principal import USER, Principal
from aiokq.connection.strangers import network_of
from aiokq.core.fair_queue import FairTurns
from aiokq.core.user_errors import is_for_caller, place_of
from aiokq.core.warning_backoff import WarningBackoff

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aiokq.connection.request_context import RequestContext
    from aiokq.core.clock import Clock

__all__ = ["Authenticate", "OwnCheck"]

logger = logging.getLogger("aiokq.broker")

_Answer: TypeAlias = "str | Principal | ExpiringLogin | None"

Authenticate: TypeAlias = Callable[[str, str, str, str], "_Answer | Awaitable[_Answer]"]
"""Takes mechanism, listener, name and secret. A function runs on the event loop and must not block;
a coroutine function may wait.
"""

UNVERIFIED: Final = "Authentication failed: credentials for user could not be verified"
"""Kafka's text for a check that could not be made."""

TIME_LIMIT: Final = 30.0
"""Seconds after which a coroutine function is cancelled and the login is refused.

They include the time in which a login waits because of `AT_ONCE`.
"""

AT_ONCE: Final = 64
"""Maximum number of calls of a coroutine function that run at the same time."""

LATEST: Final = 2**43
"""The last second since 1970 that may be the end of a session."""

LOGGED_FRAMES: Final = 10
"""Maximum number of stack frames that are logged for an exception."""


class _WrongAnswer(TypeError):
    """`authenticate` returned a value that is not allowed; the message contains no secret."""


class _NotCalled(TimeoutError):
    """`authenticate` was not called within `TIME_LIMIT`, because `AT_ONCE` calls were running."""


class _Failed(Exception):
    """`authenticate` gave no valid answer, which is logged already."""


class OwnCheck:
    """Calls the caller's function for the logins of a node.

    Args:
        authenticate: the function.
        clock: the broker's clock.
    """

    def __init__(self, authenticate: Authenticate, clock: Clock) -> None:
        self._authenticate = authenticate
        self._turns = FairTurns(AT_ONCE)
        self._timestamp_ms = clock.timestamp_ms
        self._warnings = WarningBackoff(clock.monotonic)

    async def password(
        self, connection: RequestContext, name: str, password: str
    ) -> Authenticated | None:
        """Return the principal of a name and password; None if the function refuses the login.

        Raises:
            ExchangeFailed: the function raised an exception, took too long, or returned an invalid
                value.
        """
        try:
            return await self._ask("PLAIN", connection, name, password)
        except _Failed:
            raise ExchangeFailed("authenticate() has failed", told=UNVERIFIED) from None

    async def token(self, connection: RequestContext, token: str) -> Authenticated:
        """Return the principal of a token.

        Raises:
            TokenRefused: the function returned None, raised an exception, took too long, or
                returned an invalid value.
        """
        try:
            found = await self._ask("OAUTHBEARER", connection, "", token)
        except _Failed:
            raise TokenRefused("authenticate() has failed") from None
        if found is None:
            raise TokenRefused("authenticate() has refused the token")
        return found

    async def _ask(
        self, mechanism: str, connection: RequestContext, name: str, secret: str
    ) -> Authenticated | None:
        """Return the answer of the function; None if it refuses the login.

        Raises:
            _Failed: the function raised an exception, took too long, or returned an invalid value.
        """
        called = False
        try:
            async with asyncio.timeout(TIME_LIMIT):
                await self._turns.begin(_group(connection))
                called = True
                try:
                    answer = self._authenticate(mechanism, connection.listener, name, secret)
                    if inspect.isawaitable(answer):
                        answer = await answer
                finally:
                    self._turns.end()
            return self._login(answer)
        except BaseException as error:
            if is_for_caller(error):
                raise
            self._warn(error if called else _NotCalled())
        raise _Failed

    def _login(self, answer: object) -> Authenticated | None:
        """Return the login that an answer of the function stands for; None if it refuses.

        Raises:
            _WrongAnswer: the answer is not valid.
        """
        if answer is None:
            return None
        if not isinstance(answer, ExpiringLogin):
            return Authenticated(_principal(answer))
        expires_at_ms = _milliseconds(answer.expires_at)
        if expires_at_ms <= self._timestamp_ms():
            return None  # a session must not end before it begins
        return Authenticated(_principal(answer.principal), expires_at_ms)

    def _warn(self, error: BaseException) -> None:
        """Log the type of an exception and the calls that led to it.

        The text of the function's exception is not logged, because it may contain the password.
        """
        level, times = self._warnings.note(type(error))
        level = logging.ERROR if level == logging.WARNING else level
        if isinstance(error, _NotCalled):
            logger.log(
                level,
                "authenticate() was not called within %g s, because %d of its calls were running; "
                "the login is refused: times=%d",
                TIME_LIMIT,
                AT_ONCE,
                times,
            )
            return
        logger.log(
            level,
            "authenticate() failed, the login is refused: error=%s times=%d; %s",
            type(error).__name__,
            times,
            error if isinstance(error, _WrongAnswer) else place_of(error, LOGGED_FRAMES),
        )


def _group(connection: RequestContext) -> Hashable:
    """Return the address of a client before its login, else its principal."""
    session = connection.session
    if session.mechanism:
        return short_name(str(session.principal))
    return network_of(connection.peer_host)


def _principal(answer: object) -> Principal:
    if isinstance(answer, Principal):
        return answer
    if not isinstance(answer, str) or not answer or answer.startswith(f"{USER}:"):
        raise _WrongAnswer(
            "authenticate() must return the name of the user without its type, a Principal, an "
            f"ExpiringLogin with one of them, or None, and returned {type(answer).__name__}"
        )
    return Principal.user(answer)


def _milliseconds(expires_at: object) -> int:
    """Return `ExpiringLogin.expires_at` in milliseconds since 1970."""
    if isinstance(expires_at, datetime) and expires_at.tzinfo is not None:
        expires_at = expires_at.timestamp()
    if (
        isinstance(expires_at, bool)
        or not isinstance(expires_at, int | float)
        or not -LATEST <= expires_at <= LATEST
    ):
        raise _WrongAnswer(
            "expires_at of an ExpiringLogin must be seconds since 1970 or a datetime with a time "
            "zone"
        )
    return int(expires_at * 1000)
