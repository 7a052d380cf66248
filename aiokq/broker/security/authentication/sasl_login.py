"""`SaslLogin`: the state machine of SASL logins, their sessions, and re-authentication.

A login is an optional ApiVersions, a SaslHandshake, and one or more tokens. The gate admits no
other request before a login is complete. A failed login is answered after a delay, and the
connection is closed. A client whose session expires logs in again on the same connection (KIP-368),
with the same mechanism and as the same principal.

A failed login is counted once, as soon as a credential is refused. Kafka counts it at the end of
the exchange, and so misses a client that closes the connection after the refusal of its token. Each
different reason of the failure is logged. A login whose connection ends while a credential is
checked counts as failed, too. Otherwise a client could guess without a trace.

Source: Kafka ``SaslServerAuthenticator.java``, ``KafkaChannel.maybeBeginServerReauthentication``.
Tests: ``tests/unit/broker/security/authentication/test_sasl_login.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from aiokq.broker.security.authentication.exchange import ExchangeFailed
from aiokq.connection.request_context import CloseConnection, SessionState
from aiokq.core.errors import (
    AuthenticationFailed,
    IllegalSaslState,
    UnsupportedSaslMechanism,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.utf8 import response_text
from aiokq.core.warning_backoff import WarningBackoff
from aiokq.wire.sasl_authenticate import SaslAuthenticateResponse
from aiokq.wire.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from aiokq.broker.security.authentication.exchange import Authenticated, Exchange, Mechanism
    from aiokq.connection.request_context import RequestContext, Session
    from aiokq.core.clock import Clock
    from aiokq.core.counters import BrokerCounters
    from aiokq.wire.struct import Response

__all__ = ["ListenerLogin", "SaslLogin"]

logger = logging.getLogger("aiokq.broker")

SECONDS_BETWEEN_LOGINS: Final = 1.0
"""Minimum seconds between the beginnings of two re-authentications of a connection, as in Kafka."""

LATEST_MS: Final = 2**53
"""The longest lifetime of a session, in milliseconds."""

_LEFT: Final = "the connection ended before the answer"

_READY: Final = SessionState.READY
_AUTHENTICATE: Final = SessionState.AUTHENTICATE
_FIRST_LOGIN: Final = (SessionState.HANDSHAKE, SessionState.MECHANISM)
"""States of a session in which a client begins its first login."""


class ListenerLogin(NamedTuple):
    """The SASL mechanisms of a listener.

    Attributes:
        mechanisms: the enabled mechanisms by their names, which are case-sensitive.
        max_reauth_ms: `connections.max.reauth.ms` by mechanism; a mechanism without an entry has no
            limit.
    """

    mechanisms: Mapping[str, Mechanism]
    max_reauth_ms: Mapping[str, int]


class _Login:
    """A login in progress.

    Attributes:
        exchange: None if the login has failed, or must fail because a re-authentication names
            another mechanism.
        reasons: the different reasons for which credentials have been refused. With at least one,
            the login has been counted as failed. It may still succeed, if the mechanism lets the
            client try another credential.
    """

    __slots__ = ("exchange", "is_again", "mechanism", "reasons")

    def __init__(self, mechanism: str, exchange: Exchange | None, *, is_again: bool) -> None:
        self.mechanism = mechanism
        self.exchange = exchange
        self.is_again = is_again
        self.reasons: tuple[str, ...] = ()


class SaslLogin:
    """Logs in the clients of a node.

    Args:
        listeners: the listeners with SASL, by their names.
        clock: the broker's clock.
        counters: the broker's counters.
        failure_delay: returns the seconds after which a failed login is answered.
        failed: called with the connection, the mechanism and the reason of each failed login, and
            again if a login fails for another reason later; None logs a warning instead.
    """

    def __init__(
        self,
        listeners: Mapping[str, ListenerLogin],
        *,
        clock: Clock,
        counters: BrokerCounters,
        failure_delay: Callable[[], float] = lambda: 0.1,
        failed: Callable[[RequestContext, str, str], None] | None = None,
    ) -> None:
        self._listeners = listeners
        self._clock = clock
        self._counters = counters
        self._failure_delay = failure_delay
        self._failed = failed
        self._warnings = WarningBackoff(clock.monotonic)

    def handshake(
        self, connection: RequestContext, mechanism: str, *, sends_tokens: bool
    ) -> SaslHandshakeResponse:
        """Begin a login or a re-authentication.

        Args:
            sends_tokens: whether the client sends tokens without request headers (SaslHandshake
                version 0).

        Returns:
            The response. It has the error ILLEGAL_SASL_STATE if the listener has no SASL. It also
            has this error if the client has logged in already, and either its session does not
            expire or its last re-authentication began less than a second ago.

        Raises:
            CloseConnection: the mechanism is not enabled; or the session has expired less than a
                second after the beginning of the last re-authentication.
        """
        session = connection.session
        listener = self._listeners.get(connection.listener)
        is_again = session.state not in _FIRST_LOGIN
        if listener is None or (is_again and not self._may_log_in_again(session)):
            if session.state is SessionState.EXPIRED:
                raise CloseConnection("logged in again less than a second ago")
            return SaslHandshakeResponse(error_code=IllegalSaslState.code, mechanisms=[])
        names = sorted(listener.mechanisms)
        if mechanism not in listener.mechanisms:
            self._counters.failed_logins["other"] += 1
            self._log_failure(connection, "other", "the mechanism is not enabled")
            if is_again:
                raise CloseConnection("the mechanism is not enabled")
            raise self.failure(
                "the mechanism is not enabled",
                SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=names),
            )
        exchange = None
        if not is_again:
            exchange = listener.mechanisms[mechanism](connection)
        else:
            session.reauthenticated_at = _now()
            if mechanism == session.mechanism:
                exchange = listener.mechanisms[mechanism](connection)
        session.sasl = _Login(mechanism, exchange, is_again=is_again)
        session.sends_tokens = sends_tokens
        session.state = _AUTHENTICATE
        return SaslHandshakeResponse(error_code=0, mechanisms=names)

    async def authenticate(
        self, connection: RequestContext, message: bytes
    ) -> SaslAuthenticateResponse:
        """Continue a login with the token of a SaslAuthenticate request.

        If no login has begun, the response has the error ILLEGAL_SASL_STATE.

        Raises:
            CloseConnection: the login has failed.
        """
        login = connection.session.sasl
        if not isinstance(login, _Login):
            return SaslAuthenticateResponse(
                error_code=IllegalSaslState.code,
                error_message="SaslAuthenticate request received after successful authentication",
                auth_bytes=b"",
            )
        try:
            answer, lifetime_ms = await self._respond(connection, login, message)
        except ExchangeFailed as failure:
            raise self._refusal(connection, login, failure) from None
        return SaslAuthenticateResponse(
            error_code=0, error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms
        )

    def authenticate_at_once(
        self, connection: RequestContext, message: bytes
    ) -> tuple[bytes, int] | None:
        """Do the same as `authenticate`, without waiting.

        Returns:
            The answer to the token, and the session's lifetime in ms (0 without a limit). None,
            with nothing done, if no login has begun, or if its mechanism may have to wait.

        Raises:
            CloseConnection: the login has failed.
        """
        login = connection.session.sasl
        exchange = login.exchange if isinstance(login, _Login) else None
        if exchange is None or exchange.answer is None:
            return None
        assert isinstance(login, _Login)
        try:
            answer = exchange.answer(message)
            return answer, self._check_outcome(connection, login, exchange)
        except ExchangeFailed as failure:
            raise self._refusal(connection, login, failure) from None

    async def token(self, connection: RequestContext, message: bytes) -> bytes:
        """Continue a login with a token that has no request header; return the answer.

        Raises:
            CloseConnection: the login has failed. Without a header, the client cannot be told the
                reason.
        """
        login = connection.session.sasl
        assert isinstance(login, _Login)
        try:
            answer, _ = await self._respond(connection, login, message)
        except ExchangeFailed as failure:
            self._note_login(connection, login, failure.reason)
            raise self.failure(failure.reason, None) from None
        return answer

    def failure(self, reason: str, response: Response | None) -> CloseConnection:
        """Return the error that ends a connection whose login has failed."""
        return CloseConnection(reason, response=response, delay=self._failure_delay())

    async def _respond(
        self, connection: RequestContext, login: _Login, message: bytes
    ) -> tuple[bytes, int]:
        """Return the answer to a token, and the session's lifetime in ms (0 without a limit).

        Raises:
            ExchangeFailed: the client is not authenticated, or has disconnected.
            CloseConnection: the mechanism is not that of the first login.
        """
        exchange = login.exchange
        if exchange is None:
            self._note_login(connection, login, "another mechanism than before")
            raise self.failure("another mechanism than before", None)
        try:
            answer = await exchange.respond(message)
        except asyncio.CancelledError:
            if not connection.connected:
                self._note_login(connection, login, _LEFT)
            raise
        if not connection.connected:
            if exchange.refusal is not None:
                self._note_login(connection, login, exchange.refusal)
            raise ExchangeFailed(_LEFT)  # the caller's function has suppressed the cancellation
        return answer, self._check_outcome(connection, login, exchange)

    def _check_outcome(self, connection: RequestContext, login: _Login, exchange: Exchange) -> int:
        """If the exchange is complete, log the client in; return the session lifetime in ms, or 0.

        If a credential has been refused, count the login as failed, whatever the client does next.

        Raises:
            ExchangeFailed: the client has another principal than before.
        """
        if exchange.refusal is not None:
            self._note_login(connection, login, exchange.refusal)
        outcome = exchange.outcome
        if outcome is None:
            return 0
        session = connection.session
        if login.is_again and outcome.principal != session.principal:
            raise ExchangeFailed(
                "another principal than before",
                told="Cannot change principals during re-authentication from "
                f"{_dotted(session)}: {outcome.principal.type}.{outcome.principal.name}",
            )
        return self._complete(connection, login, outcome)

    def _refusal(
        self, connection: RequestContext, login: _Login, failure: ExchangeFailed
    ) -> CloseConnection:
        """Record that a client was not authenticated; return the error that ends its connection."""
        self._note_login(connection, login, failure.reason)
        response = SaslAuthenticateResponse(
            error_code=AuthenticationFailed.code,
            error_message=response_text(failure.told or _same_for_all(login)),
            auth_bytes=b"",
        )
        login.exchange = None  # break a reference cycle: the exchange refers to the connection
        return self.failure(failure.reason, response)

    def _complete(self, connection: RequestContext, login: _Login, outcome: Authenticated) -> int:
        """Make a session READY; return its lifetime in ms, or 0 for no limit."""
        session = connection.session
        lifetime_ms = self._lifetime_ms(connection.listener, login.mechanism, outcome)
        session.principal = outcome.principal
        session.mechanism = login.mechanism
        session.sasl = None
        session.sends_tokens = False
        session.expires_at = None if lifetime_ms is None else _now() + lifetime_ms / 1000
        session.state = _READY
        if connection.on_login is not None:
            connection.on_login()
            connection.on_login = None
        self._counters.logins[
            f"{login.mechanism} again" if login.is_again else login.mechanism
        ] += 1
        return lifetime_ms or 0

    def _lifetime_ms(self, listener: str, mechanism: str, outcome: Authenticated) -> int | None:
        limits = []
        limit = self._listeners[listener].max_reauth_ms.get(mechanism, 0)
        if limit > 0:
            limits.append(limit)
        if outcome.expires_at_ms is not None:
            limits.append(outcome.expires_at_ms - self._clock.timestamp_ms())
        return min(max(min(limits), 0), LATEST_MS) if limits else None

    @staticmethod
    def _may_log_in_again(session: Session) -> bool:
        """Return whether a session expires, and its last re-authentication is long enough ago."""
        began = session.reauthenticated_at
        return session.expires_at is not None and (
            began is None or _now() - began >= SECONDS_BETWEEN_LOGINS
        )

    def _note_login(self, connection: RequestContext, login: _Login, reason: str) -> None:
        """Count a login as failed, unless it has been counted; log the reason if it is new.

        A later reason may be more serious: a client whose token has expired may send a valid one
        of another principal next.
        """
        if reason in login.reasons:
            return
        if not login.reasons:
            self._counters.failed_logins[login.mechanism] += 1
        login.reasons += (reason,)
        self._log_failure(connection, login.mechanism, reason)

    def _log_failure(self, connection: RequestContext, mechanism: str, reason: str) -> None:
        """Pass the reason of a failed login to `failed`; without `failed`, log a warning."""
        if self._failed is not None:
            self._failed(connection, mechanism, reason)
            return
        level, times = self._warnings.note((connection.listener, mechanism))
        logger.log(
            level,
            "login failed: peer=%s listener=%s mechanism=%s reason=%s times=%d",
            connection.peer,
            connection.listener,
            mechanism,
            reason,
            times,
        )


def _same_for_all(login: _Login) -> str:
    """Return Kafka's text for a failure whose cause the client must not learn."""
    what = "re-authentication" if login.is_again else "authentication"
    return (
        f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
        f"{login.mechanism}"
    )


def _dotted(session: Session) -> str:
    return f"{session.principal.type}.{session.principal.name}"


def _now() -> float:
    return asyncio.get_running_loop().time()
