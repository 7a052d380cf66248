"""Owns which connections a server accepts, and which idle one is closed to make room.

Source: Kafka's ``Selector.lowestPriorityChannel`` for the connection that has been idle longest.
Kafka does not make room when descriptors run out.
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
"""Seconds between two log lines of a kind: a client that connects in a loop must not fill the
disk."""

LOOKED_AT: Final = 16
"""Idle connections examined per call: some may have output that their clients do not read, or a
request that is not received yet. The next call examines the next ones, so that no call takes
long."""


class ConnectionQuotas:
    """The connections of one server, counted, and those of them that are idle.

    Args:
        counts: how many connections may be open; shared by all servers of a node.
        now: seconds on a monotonic clock.
        listener: its name.

    Attributes:
        listener: its name.
        idle: connections with no request in work, queued or received in part; idle longest first.
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
        self._leaving: set[AcceptedConnection] = set()
        self.listener = listener
        self._counts = counts
        self._counters = counters
        self._limited = _Line(now, f"connections refused: listener={listener}")
        self._scarce = _Line(now, f"out of descriptors: listener={listener}")
        self._full = _Line(now, f"too many connections: listener={listener}")
        counts.join(self)

    def admit(self, peer: str, host: str, make_room: Callable[[], bool] | None) -> bool:
        """Whether a new connection may stay; if so it is counted until `leave`.

        Args:
            make_room: has an idle connection closed for it; None where descriptors are left.
        """
        counters = self._counters
        refusal = self._counts.refusal(self.listener, host)
        if refusal is not None:
            return self._refuse(peer, refusal)
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
        """Connections that `make_room` aborted and whose sockets are open. In any thread."""
        return len(self._leaving)

    def idle_since(self, behind: int) -> float | None:
        """The loop's time since which the connection is idle before which `behind` others are.

        In any thread; None if there is no such connection.
        """
        while True:
            try:
                for connection in itertools.islice(self.idle, behind, None):
                    return connection.last_active
            except RuntimeError:  # changed meanwhile, on the loop
                continue
            return None

    def make_room(self, limit: str | None = None) -> bool:
        """Close the connection that has been idle longest; False if there is none.

        Args:
            limit: the setting that a connection of another listener goes beyond; None if the
                process is out of descriptors.
        """
        idle = self.idle
        for _ in range(min(LOOKED_AT, len(idle))):
            connection, _ = idle.popitem(last=False)
            if connection.transport.closing:
                continue
            if connection.transport.unsent or connection.transport.unread:
                idle[connection] = None
                continue
            # Nothing unsent is lost, nor a request that the system acknowledged to its sender. An
            # orderly close may wait for the client, with TLS.
            reason = "the process is out of descriptors" if limit is None else limit
            connection.transport.fail(Closed(f"idle, and {reason}"))
            self._leaving.add(connection)
            self._counters.connections_closed_for_room += 1
            if limit is None:
                self._scarce.note(closed_idle=1)
            else:
                self._full.note(f"reason={limit}", closed_idle=1)
            return True
        return False

    def leave(self, connection: AcceptedConnection, host: str) -> None:
        """A connection that was admitted is gone."""
        self.idle.pop(connection, None)
        if connection in self._leaving:  # its socket is closed when this turn of the loop is over
            asyncio.get_running_loop().call_soon(self._leaving.discard, connection)
        self._counts.closed(self.listener, host)
        self._counters.connections.value -= 1

    def report(self) -> None:
        """Log what happened since the last line; to be called now and then."""
        self._limited.report()
        self._scarce.report()
        self._full.report()

    def _refuse(self, peer: str, reason: str) -> bool:
        self._counters.connections_refused += 1
        self._limited.note(f"peer={peer} reason={reason}", refused=1)
        return False


class _Line:
    """A warning logged at once, then once a minute with the counts since the last line."""

    __slots__ = ("_counts", "_detail", "_logged_at", "_now", "_text")

    def __init__(self, now: Callable[[], float], text: str) -> None:
        self._now = now
        self._text = text
        self._counts: Counter[str] = Counter()
        self._detail = ""
        self._logged_at: float | None = None

    def note(self, detail: str = "", **counts: int) -> None:
        """It happened.

        Args:
            detail: more about this time; the line shows that of the latest.
        """
        self._counts.update(counts)
        self._detail = detail
        self.report()

    def report(self) -> None:
        """Log, if there is something and the last line is a minute old."""
        if not self._counts:
            return
        now = self._now()
        if self._logged_at is not None and now - self._logged_at < LOG_SECONDS:
            return
        self._logged_at = now
        counts = " ".join(f"{name}={count}" for name, count in self._counts.items())
        self._counts.clear()
        log_line(logger, logging.WARNING, "%s %s", self._text, f"{counts} {self._detail}".rstrip())
