"""`ConnectionRates`: limits of new connections per second per node, listener and client address.

In Kafka, a connection above ``max.connection.creation.rate`` delays all later connections of its
listener. Here it is closed, so that it does not delay other clients, and it is not counted.

Source: Kafka ``ConnectionQuotas`` in ``SocketServer.scala``; KIP-402, KIP-612.
Tests: ``tests/unit/connection/test_connection_rates.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from aiokq.connection.budgets import Budgets
from aiokq.connection.quota_windows import DEFAULT_WINDOW, QuotaWindow, Rate
from aiokq.core.named_tuple import NamedTuple

__all__ = ["ConnectionRates", "HostRates"]

UNLIMITED: Final = 2**31 - 1


class HostRates(NamedTuple):
    """The quotas ``connection_creation_rate`` of client addresses.

    Attributes:
        default: the rate of an address that is not in `of_host`; None for no limit.
        of_host: rates by address, IPv6 in brackets.
    """

    default: float | None
    of_host: Mapping[str, float]


class ConnectionRates:
    """Rates of new connections over all listeners of a node.

    Args:
        now: returns seconds on a monotonic clock.
        window: the window over which rates are measured.
        protected: listeners to which the limit of the node does not apply.

    Attributes:
        of_node: the limit of the node (`max.connection.creation.rate`).
        of_listener: limits of listeners; the keys are their names in capitals.
        hosts: the quotas of client addresses.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        window: QuotaWindow = DEFAULT_WINDOW,
        protected: AbstractSet[str] = frozenset(),
    ) -> None:
        self.of_node = UNLIMITED
        self.of_listener: Mapping[str, int] = {}
        self.hosts: HostRates | None = None
        self._now = now
        self._protected = protected
        self._node = Rate(window)
        self._listeners: Budgets[Rate] = Budgets(lambda: Rate(window))
        self._hosts: Budgets[Rate] = Budgets(lambda: Rate(window))

    def refusal(self, listener: str, host: str) -> str | None:
        """Return the setting or quota, with its value, that forbids one more connection now.

        Return None if one more connection is permitted.
        """
        if not self._has_limits:
            return None
        now_ms = int(self._now() * 1000)
        for what, limit, rate in self._limits(listener, host, now_ms):
            if rate.excess_ms(limit, now_ms, more=1):
                return f"{what}={limit:g}"
        return None

    def opened(self, listener: str, host: str) -> None:
        """Count a connection that was admitted."""
        if not self._has_limits:
            return
        now_ms = int(self._now() * 1000)
        for _, _, rate in self._limits(listener, host, now_ms):
            rate.record(1, now_ms)

    @property
    def _has_limits(self) -> bool:
        return self.of_node != UNLIMITED or bool(self.of_listener) or self.hosts is not None

    def _limits(self, listener: str, host: str, now_ms: int) -> Iterator[tuple[str, float, Rate]]:
        """Yield the name, the value and the measured rate of each limit that applies."""
        if self.of_node != UNLIMITED and listener not in self._protected:
            yield "max.connection.creation.rate", self.of_node, self._node
        most = self.of_listener.get(listener, UNLIMITED)
        if most != UNLIMITED:
            name = f"listener.name.{listener.lower()}.max.connection.creation.rate"
            yield name, most, self._listeners.get((listener,), now_ms)
        if self.hosts is not None:
            quota = self.hosts.of_host.get(host, self.hosts.default)
            if quota is not None and quota != UNLIMITED:
                name = f"connection_creation_rate of {host}"
                yield name, quota, self._hosts.get((host,), now_ms)
