"""The sticky assignors, which balance partitions with few moves (KIP-54, KIP-429).

The assignors read the previous partitions of the members; `balance` makes the assignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokq.assign.balance import Claim, balance
from aiokq.assign.model import Assignment, RebalanceProtocol, Subscription, Topology
from aiokq.assign.sticky_data import (
    decode_generation,
    decode_previous,
    encode_generation,
    encode_previous,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]

NO_GENERATION = -1


class _Previous(NamedTuple):
    partitions: tuple[TopicPartition, ...]
    generation: int


class StickyAssignor:
    """Kafka's "sticky", an eager assignor: members report their previous partitions as user data.

    Source: Kafka's `StickyAssignor`.
    """

    name = "sticky"
    rebalance_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._previous: _Previous | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        if self._previous is None:
            return None
        return encode_previous(*self._previous)

    def assigned(self, assignment: Assignment, generation: int) -> None:
        self._previous = _Previous(assignment.partitions, generation)

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        # Previous partitions come from the user data: `owned` is empty, because an eager member
        # revokes all partitions before it joins.
        claims = {m: Claim(*decode_previous(s.user_data)) for m, s in members.items()}
        return _assignments(balance(topology, members, claims))


class CooperativeStickyAssignor:
    """Kafka's "cooperative-sticky": members keep partitions that the next assignment contains.

    A partition that moves is unassigned for one rebalance, in which the previous owner revokes it.
    The new owner gets it in the next rebalance.

    Source: Kafka's `CooperativeStickyAssignor`; KIP-429.
    """

    name = "cooperative-sticky"
    rebalance_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return encode_generation(self._generation)

    def assigned(self, assignment: Assignment, generation: int) -> None:
        self._generation = generation

    def assign(
        self, topology: Topology, members: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        claims = {member: _owned(subscription) for member, subscription in members.items()}
        partitions = balance(topology, members, claims)
        _withhold_moving(partitions, members)
        return _assignments(partitions)


def _owned(subscription: Subscription) -> Claim:
    generation = subscription.generation
    if generation < 0:  # an older member, which reports the generation only in its user data
        generation = decode_generation(subscription.user_data)
    return Claim(subscription.owned, generation)


def _withhold_moving(
    partitions: dict[str, list[TopicPartition]], members: Mapping[str, Subscription]
) -> None:
    """Remove partitions that another member still has to revoke."""
    given_up: set[TopicPartition] = set()
    for member, subscription in members.items():
        given_up.update(set(subscription.owned).difference(partitions[member]))
    for member, assigned in partitions.items():
        owned = set(members[member].owned)
        partitions[member] = [tp for tp in assigned if tp in owned or tp not in given_up]


def _assignments(partitions: Mapping[str, list[TopicPartition]]) -> dict[str, Assignment]:
    return {member: Assignment(tuple(sorted(taken))) for member, taken in partitions.items()}
