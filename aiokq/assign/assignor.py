"""`Assignor`: the interface of the assignors of classic groups; and Kafka's assignors by name.

The leader of a classic group runs an assignor that all members support.
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
        name: the name by which the members of a group agree on the assignor; unique among the
            assignors of a consumer.
        rebalance_protocols: the supported rebalance protocols. With COOPERATIVE, `assign` must not
            assign a partition that is to move to another member. The new owner gets the partition
            in the next rebalance, after the previous owner has revoked it (KIP-429).

    Source: Kafka's `ConsumerPartitionAssignor`.
    """

    @property
    def name(self) -> str: ...

    @property
    def rebalance_protocols(self) -> tuple[RebalanceProtocol, ...]: ...

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the `Subscription.user_data` of this member, for the leader's assignor.

        Args:
            topics: the topics to which this member subscribes.
        """
        ...

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Return the assignment of each member by member id; called on the leader only.

        Args:
            topology: the topics to which the group subscribes.
            members: the subscription of each member by member id.
        """
        ...

    def assigned(self, assignment: Assignment, generation: int) -> None:
        """Record this member's new assignment and the generation in which it was assigned."""
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
        ConfigError: a name is unknown, two assignors have the same name, the list is empty, or the
            assignors have no rebalance protocol in common.
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
