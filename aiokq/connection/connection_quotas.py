"""Admission of connections to a server, and closing of idle connections when limits are reached.

Source: Kafka's ``Selector.lowestPriorityChannel`` for the connection that has been idle longest.
Kafka closes no connection when descriptors run out.
Tests: ``tests/unit/connection/test_connection_quotas.py``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import Closed
from aiokq.core.log_lines import log_line

if TYPE_CHECKING:
    from aiokq.connection.accepted_connection import AcceptedConnection
    from aiokq.connection.connection_counts import ConnectionCounts
    from aiokq.core.counters import BrokerCounters

__all__ = ["ConnectionQuotas"]

logger = logging.getLogger("aiokq.connection")

LOG_SECONDS: Final = 60.0
"""Minimum seconds between two log lines of the same kind.

A client that connects in a loop must not fill the disk.
"""

LOOKED_AT: Final = 16
"""Maximum number of idle connections that a call of `make_room` examines, to limit its duration.

Connections with unsent output, or with an unread request in the socket, are not closed. They move
to the end of `idle`, so that the next call examines other connections.
"""

STALLED_SECONDS: Final = 1.0
"""Age from which a connection before its login may be closed to make room.

A login takes some milliseconds, unless the check of a password takes longer. A connection whose
password is being checked is not closed.
"""

_STRANGERS_FIRST: Final = 1e9
"""Seconds added to the idle time of connections that are stalled before their login.

These connections are therefore closed before all other idle connections.
"""


class ConnectionQuotas:
    """Counts the connections of one server, and tracks which of them are idle.

    Args:
        counts: numbers of open connections; shared by all servers of a node.
        counters: the broker's counters.
        now: returns seconds on a monotonic clock.
        listener: name of the listener.

    Attributes:
        listener: name of the listener.
        idle: connections without a request that is being handled, queued or partly received, in
            the order in which they became idle or were last passed over by `make_room`.
        strangers: connections whose TLS handshake or login is not complete, with the time of their
            accept, in the order in which they were accepted or last passed over by `make_room`.
    """

    def __init__(
        self,
        counts: ConnectionCounts,
        counters: BrokerCounters,
        *,
        now: Callable[[], float],
        listener: str,
    ) -> None:
        self.idle: OrderedDict[AcceptedConnection, None] = OrderedDict()
        self.strangers: OrderedDict[AcceptedConnection, float] = OrderedDict()
        self._leaving: set[AcceptedConnection] = set()
        self.listener = listener
        self._now = now
        self._counts = counts
        self._counters = counters
        self._limited = _Line(now, f"connections refused: listener={listener}")
        self._scarce = _Line(now, f"out of descriptors: listener={listener}")
        self._full = _Line(now, f"too many connections: listener={listener}")
        self._logins = _Line(now, f"connections closed before their login: listener={listener}")
        counts.join(self)

    def admit(self, peer: str, host: str, make_room: Callable[[], bool] | None) -> bool:
        """Admit or refuse a new connection; return whether it was admitted.

        An admitted connection is counted until `leave`.

        Args:
            peer: address and port of the client, for the log.
            host: address of the client, in brackets if it is IPv6.
            make_room: closes a file or an idle connection of the process, and returns False if
                there is none. If enough descriptors are free, `make_room` is None.
        """
        counters = self._counters
        refusal = self._counts.refusal(self.listener, host)
        if refusal is not None:
            self.refuse(peer, refusal)
            return False
        if make_room is not None and not make_room():
            counters.connections_refused += 1
            self._scarce.note(refused=1)
            return False
        self._counts.opened(self.listener, host)
        counters.connections_accepted += 1
        counters.connections.value += 1
        return True

    @property
    def leaving(self) -> int:
        """The number of idle connections that `make_room` aborted and whose sockets are still open.

        Context: any thread.
        """
        return len(self._leaving)

    def idle_since(self, behind: int) -> float | None:
        """Return the loop's time at which the connection at a position became idle.

        Positions count `strangers` first, and then `idle`. For a stalled stranger, the result is
        the time of its accept minus `_STRANGERS_FIRST`. If the stranger at the position is not
        stalled, the first connection of `idle` is used instead. Return None if there is no
        connection.

        Context: any thread.

        Args:
            behind: the position, counted from 0.
        """
        while True:
            try:
                stalled = self._now() - STALLED_SECONDS
                for accepted in itertools.islice(self.strangers.values(), behind, None):
                    if accepted <= stalled:
                        return accepted - _STRANGERS_FIRST
                    break
                behind = max(behind - len(self.strangers), 0)
                for connection in itertools.islice(self.idle, behind, None):
                    return connection.last_active
            except RuntimeError:  # the loop changed the dictionary during the iteration
                continue
            return None

    def stranger(self, connection: AcceptedConnection) -> None:
        """Add a connection whose client has to complete a TLS handshake or a login."""
        self.strangers[connection] = self._now()

    def known(self, connection: AcceptedConnection) -> None:
        """Remove a connection from `strangers`, because its handshake and login are complete."""
        self.strangers.pop(connection, None)

    def make_room(self, limit: str | None = None) -> bool:
        """Close a connection that is stalled before its login, or else the longest idle one.

        A stalled connection is not closed while its request is being handled. An idle connection is
        not closed while it has unsent output or unread requests. At most `LOOKED_AT` connections of
        each kind are examined. Return False if none was closed.

        Args:
            limit: the setting that is exceeded, with its value; None if the process has no free
                file descriptor.
        """
        connection = self._stalled() or self._idle_longest()
        if connection is None:
            return False
        # Aborting the connection loses nothing. With TLS, an orderly close could wait for the
        # client.
        reason = "the process has no free file descriptor" if limit is None else limit
        connection.transport.fail(Closed(f"closed while idle: {reason}"))
        self._leaving.add(connection)
        self._counters.connections_closed_for_room += 1
        if limit is None:
            self._scarce.note(closed_idle=1)
        else:
            self._full.note(f"reason={limit}", closed_idle=1)
        return True

    def _stalled(self) -> AcceptedConnection | None:
        """Remove and return the oldest connection that is stalled before its login, or None."""
        strangers = self.strangers
        stalled = self._now() - STALLED_SECONDS
        for _ in range(min(LOOKED_AT, len(strangers))):
            connection, accepted = strangers.popitem(last=False)
            if accepted > stalled:
                strangers[connection] = accepted
                strangers.move_to_end(connection, last=False)
                return None
            if connection.transport.ended:
                continue
            if connection.busy:
                strangers[connection] = accepted
                continue
            self.idle.pop(connection, None)
            return connection
        return None

    def _idle_longest(self) -> AcceptedConnection | None:
        """Remove and return the longest idle connection that can be closed, or None."""
        idle = self.idle
        for _ in range(min(LOOKED_AT, len(idle))):
            connection, _ = idle.popitem(last=False)
            if connection.transport.closing:
                continue
            if connection.transport.unsent or connection.transport.unread:
                idle[connection] = None
                continue
            return connection
        return None

    def leave(self, connection: AcceptedConnection, host: str) -> None:
        """Stop counting a connection that was admitted and has ended."""
        self.idle.pop(connection, None)
        self.strangers.pop(connection, None)
        if connection in self._leaving:  # asyncio closes the socket after this call returns
            asyncio.get_running_loop().call_soon(self._leaving.discard, connection)
        self._counts.closed(self.listener, host)
        self._counters.connections.value -= 1

    def note_login(self, peer: str, reason: str) -> None:
        """Count and log a connection that exceeded a limit before its login."""
        self._counters.connections_closed_before_login += 1
        self._logins.note(f"peer={peer} reason={reason}", closed=1)

    def report(self) -> None:
        """Log the events that were counted but not logged; called periodically.

        Each of the four warnings is logged at most once a minute.
        """
        for line in (self._limited, self._scarce, self._full, self._logins):
            line.report()

    def refuse(self, peer: str, reason: str) -> None:
        """Count and log a new connection that is closed because of a limit."""
        self._counters.connections_refused += 1
        self._limited.note(f"peer={peer} reason={reason}", refused=1)


class _Line:
    """A warning that is logged at most once a minute, with counts since the last line."""

    __slots__ = ("_counts", "_detail", "_logged_at", "_now", "_text")

    def __init__(self, now: Callable[[], float], text: str) -> None:
        self._now = now
        self._text = text
        self._counts: Counter[str] = Counter()
        self._detail = ""
        self._logged_at: float | None = None

    def note(self, detail: str = "", **counts: int) -> None:
        """Count an event and log it, unless a line was logged within the last minute.

        Args:
            detail: details of this event; a line shows the details of the latest event.
        """
        self._counts.update(counts)
        self._detail = detail
        self.report()

    def report(self) -> None:
        """Log the events since the last line, if that line is at least a minute old."""
        if not self._counts:
            return
        now = self._now()
        if self._logged_at is not None and now - self._logged_at < LOG_SECONDS:
            return
        self._logged_at = now
        counts = " ".join(f"{name}={count}" for name, count in self._counts.items())
        self._counts.clear()
        log_line(logger, logging.WARNING, "%s %s", self._text, f"{counts} {self._detail}".rstrip())
