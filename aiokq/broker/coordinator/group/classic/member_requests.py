"""Requests of a classic group's members: SyncGroup, Heartbeat and LeaveGroup.

Source: Kafka ``GroupMetadataManager.java`` (classicGroupSync, -Heartbeat, -Leave).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.broker.coordinator.outcome import Deferred, Outcome
from aiokq.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from aiokq.wire.heartbeat import HeartbeatResponse
from aiokq.wire.leave_group import LeaveGroupResponse, MemberResponse
from aiokq.wire.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from aiokq.broker.coordinator.group.classic.group import ClassicGroup
    from aiokq.broker.coordinator.group.classic.member import ClassicMember
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.core.errors import KafkaError
    from aiokq.wire.heartbeat import HeartbeatRequest
    from aiokq.wire.leave_group import LeaveGroupRequest, MemberIdentity
    from aiokq.wire.sync_group import SyncGroupRequest

__all__ = ["heartbeat", "leave", "sync"]

logger = logging.getLogger("aiokq.broker.coordinator")


def sync(
    group: ClassicGroup, request: SyncGroupRequest, instant: Instant
) -> Outcome[SyncGroupResponse]:
    """Handle SyncGroup: respond with the member's assignment, once the leader has sent it.

    Raises:
        BrokerError: COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
            UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; REBALANCE_IN_PROGRESS if the members have to
            join again.
    """
    member = _check_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if _differs(request.protocol_type, group.protocol_type_or_none) or _differs(
        request.protocol_name, group.protocol_name
    ):
        raise InconsistentGroupProtocol()
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise RebalanceInProgress()
    group.rebalance.synced(member.member_id)
    if group.state is ClassicState.STABLE:
        return Outcome(
            response=SyncGroupResponse(
                protocol_type=group.protocol_type_or_none,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
        )
    syncing: Deferred[SyncGroupResponse] = Deferred()
    group.roster.set_syncing(member, syncing)
    if not group.roster.is_leader(member.member_id):
        return Outcome(deferred=syncing)
    return _assign(group, request, syncing, instant)


def _assign(
    group: ClassicGroup,
    request: SyncGroupRequest,
    syncing: Deferred[SyncGroupResponse],
    instant: Instant,
) -> Outcome[SyncGroupResponse]:
    """Write the assignments that the leader sent, then respond to the members."""
    given = {one.member_id: one.assignment for one in request.assignments}
    assignment = {member.member_id: given.get(member.member_id, b"") for member in group.roster}
    without = sum(member_id not in given for member_id in assignment)
    log = logger.warning if without else logger.info
    log(
        "assigned: group=%s generation=%d leader=%s members=%d without=%d",
        group.group_id,
        group.generation,
        request.member_id,
        len(assignment),
        without,
    )

    record = group.record(assignment)

    def written(error: KafkaError | None) -> None:
        if error is None:
            group.logged(record)
        if (
            group.state is not ClassicState.COMPLETING_REBALANCE
            or group.generation != request.generation_id
        ):
            return  # a member joined or left meanwhile, so all members join again
        if error is None:
            group.rebalance.propagate(assignment, 0, instant)
            group.transition_to(ClassicState.STABLE, instant.timestamp_ms)
            return
        code = error.code if isinstance(error, BrokerError) else CoordinatorNotAvailable.code
        group.rebalance.propagate({}, code, instant)
        group.rebalance.prepare(f"the assignment could not be written: {error}", instant)

    return Outcome([record], deferred=syncing, replay=False, on_written=written)


def heartbeat(
    group: ClassicGroup, request: HeartbeatRequest, instant: Instant
) -> Outcome[HeartbeatResponse]:
    """Handle Heartbeat: restart the session of the member.

    The response has REBALANCE_IN_PROGRESS if the member has to join again.

    Raises:
        BrokerError: COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or
            ILLEGAL_GENERATION.
    """
    member = _check_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    group.rebalance.restart_session(member, instant)
    preparing = group.state is ClassicState.PREPARING_REBALANCE
    return Outcome(
        response=HeartbeatResponse(error_code=RebalanceInProgress.code if preparing else 0)
    )


def leave(
    group: ClassicGroup, request: LeaveGroupRequest, instant: Instant
) -> Outcome[LeaveGroupResponse]:
    """Handle LeaveGroup: remove members by member id, or static members by instance id alone.

    Raises:
        CoordinatorNotAvailable: the group is dead.
    """
    if group.state is ClassicState.DEAD:
        raise CoordinatorNotAvailable()
    answers = []
    left = []
    for one in request.members:
        try:
            _leave(group, one)
        except BrokerError as error:
            code = error.code
        else:
            code = 0
            left.append(one.member_id or f"static member {one.group_instance_id}")
        answers.append(
            MemberResponse(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code
            )
        )
    outcome: Outcome[None] = Outcome()
    if left:
        reason = f"{', '.join(left)} left"
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            outcome = group.rebalance.prepare(reason, instant)
        else:
            outcome = group.rebalance.complete_if_joined(instant)
    return Outcome(
        outcome.records,
        response=LeaveGroupResponse(members=answers),
        replay=outcome.replay,
        on_written=outcome.on_written,
    )


def _leave(group: ClassicGroup, identity: MemberIdentity) -> None:
    roster, member_id = group.roster, identity.member_id
    if member_id in roster.pending_joins:
        roster.remove(member_id)
        group.rebalance.end_session(member_id)
    elif member_id:
        group.rebalance.leave(roster.named(member_id, identity.group_instance_id))
    else:
        # An admin client names the instance id and not the current member id.
        present = roster.static_members.get(identity.group_instance_id or "")
        if present is None:
            raise UnknownMemberId()
        member_id = present
        group.rebalance.leave(roster.members[present])
    logger.info(
        "member left: group=%s member=%s reason=%r",
        group.group_id,
        member_id,
        identity.reason or "",
    )


def _check_member(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int
) -> ClassicMember:
    if group.state is ClassicState.DEAD:
        raise CoordinatorNotAvailable()
    if group.is_empty:
        raise UnknownMemberId()
    member = group.roster.named(member_id, group_instance_id)
    if generation != group.generation:
        raise IllegalGeneration()
    return member


def _differs(requested: str | None, known: str | None) -> bool:
    """Whether both protocols are given and differ; requests of old clients have no protocol."""
    return requested is not None and known is not None and requested != known
