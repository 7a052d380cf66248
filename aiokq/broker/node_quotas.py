"""`NodeQuotas`: applies the quotas in the metadata to the gate and the servers of a node.

A node without quotas has no `ClientQuotas`, so its requests cost no extra time.

Tests: ``tests/unit/broker/test_node_quotas.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.connection.connection_rates import HostRates
from aiokq.core.host_addresses import addresses_of, numeric_address
from aiokq.core.quota_keys import CONNECTION_CREATION_RATE, IP

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.gate import Gate
    from aiokq.broker.listening import NodeServers
    from aiokq.broker.metadata.changes import MetadataChanges
    from aiokq.broker.metadata.controller.quota_changes import QuotaChange
    from aiokq.broker.security.quotas.caller_quotas import CallerQuotas, QuotaCallable
    from aiokq.broker.security.quotas.client_quotas import ClientQuotas
    from aiokq.connection.request_context import RequestHandler
    from aiokq.connection.turn import Pace
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment
    from aiokq.core.errors import BrokerError
    from aiokq.core.quota_keys import QuotaEntity

__all__ = ["NodeQuotas"]

logger = logging.getLogger("aiokq.broker")

Stored: TypeAlias = "Mapping[QuotaEntity, Mapping[str, float]]"
"""The quotas in the metadata."""

_NONE: Final[Mapping[str, Sequence[str]]] = {}


class NodeQuotas:
    """The quotas of a node. Used from the node's loop only.

    Implements `handlers.areas.ClientQuotas`.

    Args:
        settings: the settings with which the node was started.
        spawn: starts a task that ends with the node.
        quota: a function, supplied by the user, that gives quotas of clients; None for none.

    Attributes:
        stored: the quotas in the metadata, which are in effect.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        environment: Environment,
        gate: Gate,
        servers: NodeServers,
        counters: BrokerCounters,
        *,
        spawn: Callable[[Coroutine[object, None, None], str], object],
        quota: QuotaCallable | None = None,
    ) -> None:
        self.stored: Stored = {}
        self._settings = settings
        self._environment = environment
        self._gate = gate
        self._servers = servers
        self._counters = counters
        self._spawn = spawn
        self._quota = quota
        self._source: CallerQuotas | None = None
        self._changes: MetadataChanges | None = None
        self._clients: ClientQuotas | None = None
        # Addresses by host name, host names to look up, and whether a task looks them up.
        self._found: dict[str, Sequence[str]] = {}
        self._unresolved: Collection[str] = ()
        self._is_resolving = False

    def start(self, changes: MetadataChanges, stored: Stored) -> None:
        """Apply the quotas in the metadata at the start of the node.

        Args:
            changes: makes changes of the metadata.
        """
        self._changes = changes
        if stored or self._quota is not None:
            self.apply(stored)

    def holding(self, handler: RequestHandler) -> RequestHandler:
        """Return a handler that holds requests until the user's function has given their quotas.

        Without such a function, return `handler`.
        """
        if self._source is None:
            return handler
        from aiokq.broker.security.quotas.held_requests import HeldRequests

        return HeldRequests(handler, self._source)

    def apply(self, stored: Stored) -> None:
        """Replace the quotas; the usage of clients so far still counts.

        Host names are looked up again. Until a lookup succeeds, the addresses that were found last
        stay in use.
        """
        self.stored = stored
        clients = self._clients or self._new_clients()
        clients.configure(stored)
        self._clients = clients
        self._gate.quotas = clients if clients.is_needed else None
        self._servers.measure_loop_time(clients.needs_loop_time)
        names = _names(stored)
        self._found = {name: self._found[name] for name in names if name in self._found}
        self._limit_hosts()
        self._unresolved = names
        if names and not self._is_resolving:
            self._is_resolving = True
            self._spawn(self._resolve(), "resolve the hosts of quotas")

    async def alter(
        self, changes: Sequence[QuotaChange], pace: Pace | None = None, *, validate_only: bool
    ) -> Sequence[BrokerError | None]:
        """Change quotas; they are in effect on return.

        Args:
            pace: lets other tasks run; None if there are few changes.

        Returns:
            The error of each change; None for a change that was made.

        Raises:
            KafkaStorage: the changes could not be recorded; nothing has changed.
        """
        assert self._changes is not None
        names = {
            name
            for change in changes
            for kind, name in change.entity
            if kind == IP and name and numeric_address(name) is None
        }
        found = await self._environment.offload.run(addresses_of, names) if names else _NONE
        self._found.update(found)  # `apply` then knows the addresses of new host names
        return await self._changes.alter_client_quotas(
            changes, pace, unknown_hosts=names - found.keys(), validate_only=validate_only
        )

    def _new_clients(self) -> ClientQuotas:
        from aiokq.broker.security.quotas.client_quotas import ClientQuotas
        from aiokq.connection.quota_windows import QuotaWindow

        settings = self._settings
        if self._quota is not None:
            self._source = self._new_source(self._quota)
        return ClientQuotas(
            self._environment.clock,
            self._counters,
            window=QuotaWindow(
                settings.quota_window_num, settings.quota_window_size_seconds * 1000
            ),
            controller_window=QuotaWindow(
                settings.controller_quota_window_num,
                settings.controller_quota_window_size_seconds * 1000,
            ),
            source=self._source,
        )

    def _new_source(self, quota: QuotaCallable) -> CallerQuotas:
        from aiokq.broker.security.quotas.caller_quotas import CallerQuotas

        return CallerQuotas(quota, self._environment.clock.monotonic, self._spawn)

    async def _resolve(self) -> None:
        """Look up host names and apply their quotas; repeat if the names change meanwhile."""
        try:
            while self._unresolved:
                names, self._unresolved = self._unresolved, ()
                found = await self._environment.offload.run(addresses_of, names)
                for name in _names(self.stored).intersection(names):
                    if name in found:
                        self._found[name] = found[name]
                    else:
                        logger.warning(
                            "host of a quota is unknown: host=%s addresses_until_now=%s",
                            name,
                            ",".join(self._found.get(name, ())) or "none",
                        )
                self._limit_hosts()
        finally:
            self._is_resolving = False

    def _limit_hosts(self) -> None:
        """Apply the quotas of addresses, and those of host names with known addresses."""
        default: float | None = None
        rates: dict[str, float] = {}
        for entity, values in self.stored.items():
            rate = values.get(CONNECTION_CREATION_RATE)
            if rate is None or [kind for kind, _ in entity] != [IP]:
                continue
            name = entity[0][1]
            if name is None:
                default = rate
                continue
            address = numeric_address(name)
            for host in self._found.get(name, ()) if address is None else (address,):
                rates[host] = rate
        limited = default is not None or rates
        self._servers.limit_hosts(HostRates(default, rates) if limited else None)


def _names(stored: Stored) -> set[str]:
    """Return the host names in IP quotas, without numeric addresses."""
    return {
        name
        for entity in stored
        for kind, name in entity
        if kind == IP and name is not None and numeric_address(name) is None
    }
