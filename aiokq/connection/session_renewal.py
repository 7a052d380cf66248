"""`SessionRenewal`: authenticates a connection again before its SASL session ends (KIP-368).

The credentials are obtained while the connection is in use. New requests wait only during the SASL
exchange, and responses to earlier requests may arrive during it. Without credentials, the
connection stays in use until shortly before the session ends, and is then replaced.

Tests: ``tests/unit/connection/test_session_renewal.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.connection.sasl.authentication import SaslSession, authenticate
from aiokq.core.errors import AuthenticationFailed, Closed, ConnectionLost, KafkaError

if TYPE_CHECKING:
    from aiokq.connection.connection import Connection
    from aiokq.connection.sasl.mechanism import SaslMechanism
    from aiokq.core.supervisor import Supervisor

__all__ = ["SessionRenewal"]

logger = logging.getLogger("aiokq.connection")

_EARLIEST: Final = 0.85
_SPREAD: Final = 0.10
"""The renewal begins at 0.85 to 0.95 of the session's lifetime, as in Java."""

_LATEST: Final = 0.98
"""Part of a session's lifetime. If the session is not renewed by then, its connection takes no more
requests.
"""

_LEAST_SECONDS: Final = 1.05
"""Minimum seconds between two renewals; brokers refuse a renewal within a second of the last one.
"""

_RETRY_SECONDS: Final = 10.0
"""Seconds until credentials that could not be obtained are requested again, as in Java."""


class SessionRenewal:
    """Renews the sessions of one connection until the connection ends.

    Args:
        connection: the connection, which has logged in.
        mechanism: returns the mechanism for an exchange.
        random: spreads the renewals of several connections.
        supervisor: runs the exchanges; None to replace the connection instead.
    """

    def __init__(
        self,
        connection: Connection,
        mechanism: Callable[[], SaslMechanism],
        random: Random,
        supervisor: Supervisor | None,
    ) -> None:
        self._connection = connection
        self._mechanism = mechanism
        self._random = random
        self._supervisor = supervisor
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        self._task: asyncio.Task[None] | None = None
        self._ends = 0.0
        self._watches = False

    def begin(self, session: SaslSession) -> None:
        """Schedule the renewal of a session, or the replacement of the connection.

        Do nothing if the session does not end.
        """
        self._cancel_timers()
        if session.lifetime is None or self._connection.error is not None:
            return
        if not self._watches:
            self._watches = True
            self._connection.on_close(self._closed)
        lifetime = session.lifetime
        self._ends = session.began + lifetime * _LATEST
        part = _EARLIEST + _SPREAD * self._random.random()
        due = max(session.began + lifetime * part, session.began + _LEAST_SECONDS)
        if self._supervisor is None or due >= self._ends:
            # There is no supervisor, or the session is too short to be renewed.
            self._timers = [self._loop.call_at(session.began + lifetime * _EARLIEST, self._end)]
            return
        self._timers = [
            self._loop.call_at(due, self._due),
            self._loop.call_at(self._ends, self._end),
        ]

    def _due(self) -> None:
        assert self._supervisor is not None
        try:
            self._task = self._supervisor.spawn(
                self._renew(), name=f"renew the session with {self._connection.name}"
            )
        except Closed:
            pass  # the client is closing this connection

    async def _renew(self) -> None:
        connection = self._connection
        mechanism = self._mechanism()
        try:
            first = await mechanism.start()
        except KafkaError as error:
            logger.warning("session not renewed: node=%s error=%s", connection.name, error)
            again = self._loop.time() + _RETRY_SECONDS
            if again < self._ends:
                self._timers.append(self._loop.call_at(again, self._due))
            return
        if connection.closed or connection.retiring:
            return
        used, in_flight = connection.last_used, connection.in_flight
        connection.hold()
        try:
            session = await authenticate(connection, mechanism, first)
        except KafkaError as error:
            # If the broker closed the connection, ConnectionLost is reported, and the next login
            # shows whether the credentials are the cause.
            if not isinstance(error, ConnectionLost) and connection.error is None:
                connection.abort(_named(error))
            return
        if not in_flight and not connection.in_flight:
            connection.last_used = used  # the exchange does not count as a use of the connection
        connection.release()
        logger.debug("session renewed: node=%s lifetime=%s", connection.name, session.lifetime)
        self.begin(session)

    def _end(self) -> None:
        if not self._connection.holding:
            self._connection.retire()

    def _closed(self, connection: Connection) -> None:
        self._cancel_timers()
        if self._task is not None:
            self._task.cancel()

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []


def _named(error: KafkaError) -> KafkaError:
    """Return the error, with a text that says that the session was not renewed."""
    if isinstance(error, AuthenticationFailed):
        error.args = (f"the session was not renewed: {error.message}", *error.args[1:])
    return error
