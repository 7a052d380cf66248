"""The context of a request: version, sender, connection, permissions, metrics and pace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Set
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from aiokq.broker.gate import Undecided
from aiokq.broker.permissions import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Operation,
    ResourceType,
)
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.gate import Gate, MutationQuota
    from aiokq.connection.request_context import RequestContext
    from aiokq.connection.turn import Pace
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.errors import BrokerError

__all__ = ["Call", "Question"]

T = TypeVar("T")

Question: TypeAlias = tuple[Operation, ResourceType, Iterable[str]]
"""An operation, the type of the resources, and their names."""

CHANGES_ALONE: Final = 100
CHANGES_TOGETHER: Final = 100
"""The first `CHANGES_ALONE` changes of a request are recorded one by one in the audit log, and the
others `CHANGES_TOGETHER` at a time.
"""

STEPS_PER_CHANGE: Final = 8
"""Number of steps of `Call.pace` that are spent for each change recorded in the audit log."""

NAMES_AT_ONCE: Final = 64
"""Number of names about which the gate is asked before other tasks may run."""


class Call(NamedTuple):
    """One request's API, version, sender and connection, with the node's gate and metrics.

    The gate decides which operations the client may perform. A handler whose work grows with the
    request counts its steps with `pace`, which lets other tasks run in between.
    """

    api_key: int
    version: int
    client_id: str | None
    connection: RequestContext
    gate: Gate
    counters: BrokerCounters
    pace: Pace

    def authorize(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Check that the client may perform an operation on a resource.

        A denial is recorded in the audit log.

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
        """Record in the audit log that an operation of the request was denied."""
        self.gate.denied(self.connection, self.api_key, operation, resource_type, name)

    def changed(self, what: str, items: Iterable[str]) -> None:
        """Record in the audit log what the client has changed; see `Audit.changed`."""
        if self.gate.audit is not None:
            self.gate.audit.changed(self.connection, what, items)

    async def changed_many(self, what: str, items: Iterable[str]) -> None:
        """Like `changed`, for any number of items; other tasks may run meanwhile."""
        audit = self.gate.audit
        if audit is None:
            return
        rest = iter(items)
        for item in islice(rest, CHANGES_ALONE):
            self.changed(what, (item,))
            if self.pace.spend(STEPS_PER_CHANGE):
                await self.pace.next()
        some: list[str] = []
        for item in rest:
            some.append(item)
            if len(some) == CHANGES_TOGETHER:
                audit.changed_also(self.connection, what, some)
                some = []
            if self.pace.spend(STEPS_PER_CHANGE):
                await self.pace.next()
        if some:
            audit.changed_also(self.connection, what, some)

    async def settle(self, *questions: Question) -> None:
        """Await in advance the answers of an authorizer that asks the user's code.

        The dispatcher asks about the resources that a request names (module `questions`). For other
        resources, a handler calls this method before its first change, because a later
        authorization may raise `Undecided`, and the handler then runs again from its beginning.
        """
        if self.gate.asks_caller:
            for operation, resource_type, names in questions:
                await self.permitted_of_many(operation, resource_type, names)

    async def settle_operations(self, resource_type: ResourceType, names: Iterable[str]) -> None:
        """Await in advance the answers that `operations` needs for several resources."""
        gate = self.gate
        if not gate.asks_caller:
            return
        distinct = list(dict.fromkeys(names))
        for operation in SUPPORTED_OPERATIONS[resource_type]:

            def decide(some: Collection[str], operation: Operation = operation) -> Collection[str]:
                assert gate.authorizer is not None
                return gate.authorizer.authorize(self.connection, operation, resource_type, some)

            await self._decided(decide, distinct)

    async def permitted_of_many(
        self, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> Set[str]:
        """Like `permitted`, for any number of names; other tasks may run meanwhile.

        The result is a set, because callers test each name.
        """
        if self.gate.authorizer is None:
            return set(names)

        def decide(some: Collection[str]) -> Collection[str]:
            return self.permitted(operation, resource_type, some)

        return await self._decided(decide, list(dict.fromkeys(names)))

    async def _decided(
        self, decide: Callable[[Collection[str]], Collection[str]], names: list[str]
    ) -> Set[str]:
        permitted: set[str] = set()
        for start in range(0, len(names), NAMES_AT_ONCE):
            some = names[start : start + NAMES_AT_ONCE]
            while True:
                try:
                    permitted.update(decide(some))
                except Undecided as undecided:
                    await self.gate.settle(self.connection, undecided)
                else:
                    break
            if self.pace.spend(len(some)):
                await self.pace.next()
        return permitted

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items of a request, each as one step; other tasks may run in between."""
        for item in items:
            yield item
            if self.pace.spend():
                await self.pace.next()

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
            strict_since: the first version in which a request beyond the quota is refused. In older
                versions, the client is only throttled.
        """
        quotas = self.gate.quotas
        if quotas is None:
            return None
        is_strict = self.version >= strict_since
        return quotas.mutations(self.connection, self.client_id, is_strict=is_strict)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the operations that the client may perform on a resource."""
        return self.gate.operations(self.connection, resource_type, name)
