"""JoinGroup in a classic group: which members are admitted, and whether the group rebalances.

Source: Kafka ``GroupMetadataManager.java`` (classicGroupJoin ...); KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group.classic.member import ClassicMember, protocols_of
from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.broker.coordinator.outcome import Deferred, Outcome
from aiokq.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    MemberIdRequired,
    UnknownMemberId,
)
from aiokq.wire.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from aiokq.broker.coordinator.group.classic.group import ClassicGroup
    from aiokq.broker.coordinator.group.group import Caller
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.core.errors import KafkaError
    from aiokq.wire.join_group import JoinGroupRequest

__all__ = ["join"]

logger = logging.getLogger("aiokq.broker.coordinator")

FIRST_WITH_REQUIRED_MEMBER_ID: Final = 4
FIRST_WITH_SKIP_ASSIGNMENT: Final = 9


def join(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller, instant: Instant
) -> Outcome[JoinGroupResponse]:
    """Handle JoinGroup; the response is immediate or deferred."""
    member_id = request.member_id
    if not _is_within_max_size(group, member_id):
        group.roster.remove(member_id)
        group.rebalance.end_session(member_id)
        # The group no longer waits for this member.
        outcome = group.rebalance.complete_if_joined(instant)
        return _refused(GroupMaxSizeReached, "", outcome)
    if group.state is ClassicState.DEAD:
        return _refused(CoordinatorNotAvailable, member_id)
    if not group.supports(request.protocol_type, protocols_of(request.protocols)):
        return _refused(InconsistentGroupProtocol, member_id)
    if not member_id:
        return _join_unknown(group, request, caller, instant)
    if member_id in group.roster.pending_joins and request.group_instance_id is None:
        return _add(group, request, caller, member_id, instant)
    return _join_again(group, request, instant)


def _is_within_max_size(group: ClassicGroup, member_id: str) -> bool:
    """Whether a member may join under `group.max.size`.

    While the group prepares a rebalance, only the members that have joined count. If the group is
    too large, for instance because the limit was lowered, the members that join last are refused.
    """
    roster, most = group.roster, group.settings.group_max_size
    member = roster.members.get(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        return (member is not None and member.joining is not None) or roster.joining < most
    if group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
        return member is not None or len(roster) < most
    return True


def _join_unknown(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller, instant: Instant
) -> Outcome[JoinGroupResponse]:
    """Handle a join without member id: a new member, or a restarted static member."""
    instance = request.group_instance_id
    member_id = group.new_member_id(caller.client_id, instance)
    if instance is not None:
        if instance in group.roster.static_members:
            return _replace_static(group, request, caller, member_id, instant)
        return _add(group, request, caller, member_id, instant)
    if caller.version < FIRST_WITH_REQUIRED_MEMBER_ID:
        return _add(group, request, caller, member_id, instant)
    # The client has to join again with this member id (KIP-394). Without the second join, a client
    # that disconnects before the response arrives would leave a member behind.
    group.rebalance.await_pending(member_id, request.session_timeout_ms, instant)
    return _refused(MemberIdRequired, member_id)


def _add(
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: Caller,
    member_id: str,
    instant: Instant,
) -> Outcome[JoinGroupResponse]:
    member = ClassicMember(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        protocols_of(request.protocols),
        is_new=True,
    )
    if (
        group.state is ClassicState.PREPARING_REBALANCE
        and group.previous_state is ClassicState.EMPTY
    ):
        group.rebalance.member_added = True
    joining: Deferred[JoinGroupResponse] = Deferred()
    if not len(group.roster):
        group.protocol_type_or_none = member.protocol_type
    group.roster.add(member, joining)
    group.rebalance.await_first_join(member, instant)
    reason = f"{member_id} joins{_because(request)}"
    return _waiting(group.rebalance.prepare_or_complete(reason, instant), joining)


def _join_again(
    group: ClassicGroup, request: JoinGroupRequest, instant: Instant
) -> Outcome[JoinGroupResponse]:
    """Handle the join of a known member, for a rebalance or because its protocols changed."""
    member_id = request.member_id
    try:
        member = group.roster.named(member_id, request.group_instance_id)
    except BrokerError as error:
        return _refused(type(error), member_id)
    unchanged = member.protocols == protocols_of(request.protocols)
    if group.is_empty:
        # An empty group has no members, so this branch is reached only because of a bug.
        return _refused(UnknownMemberId, member_id)
    # The join may be a retry, because the member's first JoinGroup response of this generation may
    # have been lost. A leader that joins again in a stable group requests a rebalance, because only
    # the leader notices changed topics.
    repeats = group.state is ClassicState.COMPLETING_REBALANCE or (
        group.state is ClassicState.STABLE and not group.roster.is_leader(member_id)
    )
    if repeats and unchanged:
        return Outcome(response=group.joined(member_id))
    joining: Deferred[JoinGroupResponse] = Deferred()
    _update(group, member, request, joining)
    reason = f"{member_id} rejoins{_because(request)}"
    return _waiting(group.rebalance.prepare_or_complete(reason, instant), joining)


def _replace_static(
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: Caller,
    member_id: str,
    instant: Instant,
) -> Outcome[JoinGroupResponse]:
    """Give a restarted static member a new member id, without a rebalance if possible."""
    roster, instance = group.roster, request.group_instance_id
    assert instance is not None
    old_member_id = roster.static_members[instance]
    old_leader = roster.leader_id
    logger.info(
        "static member rejoins: group=%s instance=%s old=%s new=%s state=%s",
        group.group_id,
        instance,
        old_member_id,
        member_id,
        group.state_name,
    )
    member = roster.replace_static(instance, member_id)
    group.rebalance.end_session(old_member_id)
    group.rebalance.restart_session(member, instant)
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    joining: Deferred[JoinGroupResponse] = Deferred()
    _update(group, member, request, joining)
    reason = f"static member {instance} rejoins as {member_id}{_because(request)}"
    if group.state is not ClassicState.STABLE or roster.elect_protocol() != group.protocol_name:
        renamed = group.record_renamed(old_member_id, member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            outcome = group.rebalance.complete_if_joined(instant)
        else:
            # In CompletingRebalance, the leader may be computing an assignment for the old member
            # id.
            outcome = group.rebalance.prepare(reason, instant)
        return _waiting(outcome if renamed is None else _with(group, renamed, outcome), joining)

    assignments = {one.member_id: one.assignment for one in roster}
    record = group.record(assignments)

    def written(error: KafkaError | None) -> None:
        if error is None:
            group.logged(record)
        if roster.members.get(member_id) is not member or member.joining is not joining:
            return  # the member left or joined again meanwhile
        if error is not None:
            roster.update(member, *before, None)
            roster.replace_static(instance, old_member_id)
            group.rebalance.end_session(member_id)
            group.rebalance.restart_session(member, instant)
            return
        response = group.joined(member_id)
        if caller.version >= FIRST_WITH_SKIP_ASSIGNMENT:
            response.skip_assignment = roster.is_leader(member_id)
        else:
            # Before version 9, the response has no `skip_assignment`. A restarted leader gets its
            # old member id as the leader id instead, and therefore does not compute an assignment.
            response.leader = old_leader or ""
            response.members = []
        roster.complete_join(member, response)

    return Outcome([record], deferred=joining, replay=False, on_written=written)


def _with(group: ClassicGroup, renamed: CoordinatorRecord, outcome: Outcome[None]) -> Outcome[None]:
    """Return the outcome with `renamed` as its first record."""

    def written(error: KafkaError | None) -> None:
        if error is None:
            group.logged(renamed)
        if outcome.on_written is not None:
            outcome.on_written(error)

    return Outcome([renamed, *outcome.records], replay=False, on_written=written)


def _update(
    group: ClassicGroup,
    member: ClassicMember,
    request: JoinGroupRequest,
    joining: Deferred[JoinGroupResponse],
) -> None:
    group.roster.update(
        member,
        protocols_of(request.protocols),
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        joining,
    )


def _because(request: JoinGroupRequest) -> str:
    return f": {request.reason}" if request.reason else ""


def _refused(
    error: type[BrokerError], member_id: str, outcome: Outcome[None] | None = None
) -> Outcome[JoinGroupResponse]:
    outcome = outcome or Outcome()
    return Outcome(
        outcome.records,
        response=JoinGroupResponse(error_code=error.code, member_id=member_id),
        replay=outcome.replay,
        on_written=outcome.on_written,
    )


def _waiting(
    outcome: Outcome[None], joining: Deferred[JoinGroupResponse]
) -> Outcome[JoinGroupResponse]:
    """Return the records of a rebalance, with `joining` as the deferred response."""
    return Outcome(
        outcome.records, deferred=joining, replay=outcome.replay, on_written=outcome.on_written
    )
