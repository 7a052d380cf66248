"""One step of a member towards its target assignment.

The member first revokes partitions; after that, it gets new partitions as they become free.

`reconcile` is a pure function from a member to its next state.

Source: Kafka ``CurrentAssignmentBuilder.java`` (4.2), KIP-848 "Reconciliation of the group".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.group.consumer.member import ConsumerMember, MemberState
from aiokq.core.errors import FencedMemberEpoch

__all__ = ["OwnerOf", "Target", "reconcile"]

OwnerOf: TypeAlias = Callable[[uuid.UUID, int], str | None]
"""Returns the member that owns a partition or still has to revoke it; None if it is free."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member, and the group epoch for which it was computed."""

    epoch: int
    partitions: Partitions


def reconcile(
    member: ConsumerMember,
    target: Target,
    *,
    wanted: Set[uuid.UUID],
    owner_of: OwnerOf,
    owned: Partitions | None,
    subscription_changed: bool,
) -> ConsumerMember:
    """Return the member after one step towards its target; the result may equal `member`.

    Args:
        wanted: the topics that the member subscribes to now. The member gets no partitions of other
            topics, even if the target assignment is older than the subscription.
        owned: the partitions that the member reports as its own; None if the request does not list
            them.
        subscription_changed: whether this request changed the subscription.

    Raises:
        FencedMemberEpoch: the member's state was written by a newer version; the member has to join
            again.
    """
    if member.is_reconciled_to(target.epoch) or (
        # The member has not yet confirmed the revocation. A changed subscription may require it to
        # revoke more partitions.
        member.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, member.pending_revocation)
    ):
        return _without_unwanted(member, wanted, owned) if subscription_changed else member
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise FencedMemberEpoch(
                "The consumer group member is in an unknown state. The member must abandon all "
                "its partitions and rejoin."
            )
        return _next_step(member, target.epoch, target, wanted, owner_of, owned)
    return _next_step(member, member.member_epoch, target, wanted, owner_of, owned)


def _owns(owned: Partitions | None, revoked: Partitions) -> bool:
    """Whether the member may still own any of these partitions, according to its request.

    True if the request does not list the member's partitions.
    """
    if owned is None:
        return True
    return any(
        not owned[topic_id].isdisjoint(revoked[topic_id]) for topic_id in owned.keys() & revoked
    )


def _without_unwanted(
    member: ConsumerMember, wanted: Set[uuid.UUID], owned: Partitions | None
) -> ConsumerMember:
    """Revoke partitions of topics that the member no longer subscribes to.

    The member keeps its epoch.
    """
    dropped = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in wanted
    }
    if not dropped:
        return member
    assigned = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id in wanted
    }
    pending = dict(member.pending_revocation)
    for topic_id, partitions in dropped.items():
        pending[topic_id] = pending.get(topic_id, frozenset()) | partitions
    if _owns(owned, pending):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            pending_revocation=pending,
        )
    return replace(member, assigned=assigned)


def _next_step(
    member: ConsumerMember,
    epoch: int,
    target: Target,
    wanted: Set[uuid.UUID],
    owner_of: OwnerOf,
    owned: Partitions | None,
) -> ConsumerMember:
    kept: dict[uuid.UUID, frozenset[int]] = {}
    revoked: dict[uuid.UUID, frozenset[int]] = {}
    added: dict[uuid.UUID, frozenset[int]] = {}
    unreleased = False
    for topic_id in target.partitions.keys() | member.assigned.keys():
        goal = target.partitions.get(topic_id, frozenset()) if topic_id in wanted else frozenset()
        current = member.assigned.get(topic_id, frozenset())
        if current and goal >= current:
            kept[topic_id] = current
        else:
            if common := current & goal:
                kept[topic_id] = common
            if gone := current - goal:
                revoked[topic_id] = gone
        if missing := goal - current:
            # Partitions that the member itself was to revoke, and may now keep, count as free.
            free = frozenset(
                number
                for number in missing
                if owner_of(topic_id, number) in (None, member.member_id)
            )
            unreleased |= len(free) < len(missing)
            if free:
                added[topic_id] = free
    if revoked and _owns(owned, revoked):
        # The epoch stays until the member has revoked these partitions. After that, the member gets
        # new partitions.
        return member.reconciled_to(epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    for topic_id, partitions in added.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.reconciled_to(target.epoch, state, kept)
