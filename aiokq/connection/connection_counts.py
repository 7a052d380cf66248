"""Limits on open and new connections over all listeners of a node.

Source: Kafka ``ConnectionQuotas`` in ``SocketServer.scala``. In Kafka, a connection above
``max.connections`` blocks the acceptor until another connection is closed. Here the new connection
is closed, so that it does not delay other clients.
Tests: ``tests/unit/connection/test_connection_counts.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from aiokq.connection.connection_rates import ConnectionRates

if TYPE_CHECKING:
    from aiokq.connection.connection_quotas import ConnectionQuotas
    from aiokq.connection.server_limits import ServerLimits

__all__ = ["ConnectionCounts"]


class ConnectionCounts:
    """Open connections, counted per node, per listener and per client address.

    Args:
        limits: the largest permitted counts.
        protected: listeners of brokers and administrators, if the node has other listeners too.
            `max.connections` does not apply to them. To make room for their connections, the
            longest idle connection of the other listeners is closed.
        now: returns seconds on a monotonic clock.

    Attributes:
        rates: limits of new connections per second.
    """

    def __init__(
        self,
        limits: ServerLimits,
        *,
        now: Callable[[], float],
        protected: AbstractSet[str] = frozenset(),
    ) -> None:
        self.rates = ConnectionRates(now, window=limits.rate_window, protected=protected)
        self._protected = protected
        self.limit(limits)
        self._open = 0
        self._per_listener: Counter[str] = Counter()
        self._per_host: Counter[str] = Counter()
        self._quotas: list[ConnectionQuotas] = []

    def join(self, quotas: ConnectionQuotas) -> None:
        """Add the quotas of a listener."""
        self._quotas.append(quotas)

    def limit(self, limits: ServerLimits) -> None:
        """Replace the limits. Open connections above the new limits stay open."""
        self._limits = limits
        self.rates.of_node = limits.max_connection_creation_rate
        self.rates.of_listener = limits.max_connection_creation_rate_of_listener

    def refusal(self, listener: str, host: str) -> str | None:
        """Return the setting or quota, with its value, that forbids one more connection.

        Return None if one more connection is permitted.

        Args:
            listener: the name of the listener that the client connected to.
            host: the client's address, in brackets if it is IPv6.
        """
        limits = self._limits
        if self._open >= limits.max_connections and listener not in self._protected:
            return f"max.connections={limits.max_connections}"
        most = limits.max_connections_of_listener.get(listener)
        if most is not None and self._per_listener[listener] >= most:
            return f"listener.name.{listener.lower()}.max.connections={most}"
        most = limits.max_connections_of_host.get(host)
        if most is not None:
            if self._per_host[host] >= most:
                return f"max.connections.per.ip.overrides={host}:{most}"
        elif self._per_host[host] >= limits.max_connections_per_ip:
            return f"max.connections.per.ip={limits.max_connections_per_ip}"
        return self.rates.refusal(listener, host)

    def opened(self, listener: str, host: str) -> None:
        """Count a connection; above `max.connections`, close an idle one if there is one."""
        self._open += 1
        self._per_listener[listener] += 1
        self._per_host[host] += 1
        self.rates.opened(listener, host)
        if self._open > self._limits.max_connections:
            self._close_idle()

    def closed(self, listener: str, host: str) -> None:
        """Remove a connection from the counts."""
        self._open -= 1
        self._per_listener[listener] -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def _close_idle(self) -> None:
        """Close the connection that has been idle longest, except on protected listeners."""
        since: dict[float, ConnectionQuotas] = {}
        for quotas in self._quotas:
            idle_since = quotas.idle_since(0)
            if quotas.listener not in self._protected and idle_since is not None:
                since.setdefault(idle_since, quotas)
        if since:
            since[min(since)].make_room(f"max.connections={self._limits.max_connections}")
