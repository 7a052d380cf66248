"""The context of a request: version, sender, connection, permissions and metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from aiokq.broker.gate import Undecided
from aiokq.broker.permissions import CLUSTER_NAME
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.gate import Gate, MutationQuota
    from aiokq.broker.permissions import Operation, ResourceType
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.errors import BrokerError

__all__ = ["Call"]


class Call(NamedTuple):
    """One request's API, version, sender and connection, with the node's gate and metrics.

    The gate decides which operations the client may perform.
    """

    api_key: int
    version: int
    client_id: str | None
    connection: RequestContext
    gate: Gate
    counters: BrokerCounters

    def authorize(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Check that the client may perform an operation on a resource.

        Raises:
            BrokerError: the client lacks the permission. The row in `PERMISSIONS` determines
                which error.
        """
        # Hot path, measured by benchmarks/micro/groups.py. Without an authorizer, the first check
        # saves three calls.
        if self.gate.authorizer is not None and not self.permits(operation, resource_type, name):
            self.denied(operation, resource_type, name)
            raise self.refusal(operation, resource_type)

    def denied(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Record in the audit log that the request was denied an operation that it asked for."""
        self.gate.denied(self.connection, self.api_key, operation, resource_type, name)

    def changed(self, what: str, items: Iterable[str]) -> None:
        """Record in the audit log what the client has changed; see `Audit.changed`."""
        if self.gate.audit is not None:
            self.gate.audit.changed(self.connection, what, items)

    async def settle(
        self,
        *questions: tuple[Operation, ResourceType, Collection[str]],
    ) -> None:
        """Let an authorizer that asks the user's code await its answers in advance.

        A handler calls the method before it changes anything, if it would otherwise change
        something between two authorizations: each authorization may raise `Undecided`, and then
        the handler runs again from its beginning.

        Args:
            questions: operations, types of resources, and the names of the resources.
        """
        gate = self.gate
        if not gate.asks_caller:
            return
        for operation, resource_type, names in questions:
            while True:
                try:
                    self.permitted(operation, resource_type, names)
                except Undecided as undecided:
                    await gate.settle(self.connection, undecided)
                else:
                    break

    def refusal(self, operation: Operation, resource_type: ResourceType) -> BrokerError:
        """Return the error of a denied operation, according to `PERMISSIONS`."""
        return self.gate.row(self.api_key, operation, resource_type).refusal()

    def permits(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Return whether the client may perform an operation on a resource."""
        return name in self.permitted(operation, resource_type, (name,))

    def permitted(
        self, operation: Operation, resource_type: ResourceType, names: Collection[str]
    ) -> Collection[str]:
        """Return the names of the resources on which the client may perform an operation."""
        return self.gate.authorize(self.connection, self.api_key, operation, resource_type, names)

    def permits_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the client may perform an operation on at least one resource of a type."""
        return self.gate.authorize_any(self.connection, self.api_key, operation, resource_type)

    def mutations(self, *, strict_since: int) -> MutationQuota | None:
        """Return the quota of created and deleted partitions; None if the client has none.

        Args:
            strict_since: the first version in which a request beyond the quota is refused. In
                older versions its client is only throttled.
        """
        quotas = self.gate.quotas
        if quotas is None:
            return None
        is_strict = self.version >= strict_since
        return quotas.mutations(self.connection, self.client_id, is_strict=is_strict)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the operations that the client may perform on a resource."""
        return self.gate.operations(self.connection, resource_type, name)
