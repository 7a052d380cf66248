"""The Assignor protocol of classic groups, and Kafka's assignors by name.

The leader of a classic group runs an assignor (KIP-54, KIP-429) that all members support.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
from aiokq.assign.range import RangeAssignor
from aiokq.assign.roundrobin import RoundRobinAssignor
from aiokq.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from aiokq.core.errors import ConfigError

__all__ = ["ASSIGNORS", "Assignor", "common_protocol", "resolve"]


@runtime_checkable
class Assignor(Protocol):
    """Assigns partitions to members; implement it for an assignment of your own.

    An instance belongs to one consumer. Its methods must not block and cannot await.

    Attributes:
        name: the name by which the members of a group agree on the assignor; unique among
            assignors.
        rebalance_protocols: the supported rebalance protocols. COOPERATIVE requires that a
            partition which moves is revoked first, and assigned to its new owner in the next
            rebalance.

    Source: Kafka's `ConsumerPartitionAssignor`.
    """

    @property
    def name(self) -> str: ...

    @property
    def rebalance_protocols(self) -> tuple[RebalanceProtocol, ...]: ...

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes for this member's subscription, which the leader's assignor receives."""
        ...

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Assign all partitions; called on the leader only, with all members by member id."""
        ...

    def assigned(self, assignment: Assignment, generation: int) -> None:
        """Note this member's assignment in this generation of the group."""
        ...


ASSIGNORS: Final[Mapping[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
"""Kafka's assignors by their names in the protocol."""

_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_JAVA_NAMES: Final[Mapping[str, str]] = {
    f"{_JAVA_PACKAGE}RangeAssignor": "range",
    f"{_JAVA_PACKAGE}RoundRobinAssignor": "roundrobin",
    f"{_JAVA_PACKAGE}StickyAssignor": "sticky",
    f"{_JAVA_PACKAGE}CooperativeStickyAssignor": "cooperative-sticky",
}


def resolve(strategy: Sequence[str | Assignor]) -> list[Assignor]:
    """Return the assignors of one consumer, most preferred first.

    Args:
        strategy: assignors by name or by the name of Java's class, or Assignor objects.

    Raises:
        ConfigError: a name is unknown or occurs twice, the list is empty, or the assignors have no
            rebalance protocol in common.
    """
    assignors = [_make(item) if isinstance(item, str) else item for item in strategy]
    if not assignors:
        raise ConfigError("partition_assignment_strategy is empty: name at least one assignor")
    names = [assignor.name for assignor in assignors]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"partition_assignment_strategy names {name!r} twice")
    common_protocol(assignors)
    return assignors


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the most advanced rebalance protocol that all assignors support, as in Java.

    Raises:
        ConfigError: the assignors have no rebalance protocol in common.
    """
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common &= set(assignor.rebalance_protocols)
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ConfigError(f"the assignors {names} have no rebalance protocol in common")
    return max(common, key=lambda protocol: protocol.value)


def _make(name: str) -> Assignor:
    make = ASSIGNORS.get(_JAVA_NAMES.get(name, name))
    if make is None:
        raise ConfigError.unknown(f"there is no assignor {name!r}", name, ASSIGNORS)
    return make()
