"""Members that use the classic protocol in a group of the consumer protocol: join, sync, heartbeat.

The generation of such a member is its member epoch. The member has to join again whenever its
assignment changes; its Heartbeat then gets REBALANCE_IN_PROGRESS. No member becomes the leader,
because the broker computes the assignment.

Source: Kafka ``GroupMetadataManager.classicGroup...ToConsumerGroup`` (4.2).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aiokq.assign.protocol import PROTOCOL_TYPE, decode_subscription
from aiokq.broker.coordinator.group.classic.member import Protocol, protocols_of
from aiokq.broker.coordinator.group.consumer.classic_assignment import (
    assignment_bytes,
    partitions_by_id,
)
from aiokq.broker.coordinator.group.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
)
from aiokq.broker.coordinator.group.consumer.member_change import new_member_id
from aiokq.broker.coordinator.group.consumer.removal import named_member, static_member_or_fenced
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.core.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
)
from aiokq.wire.heartbeat import HeartbeatResponse
from aiokq.wire.join_group import JoinGroupResponse
from aiokq.wire.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from aiokq.assign.model import Subscription
    from aiokq.broker.coordinator.group.consumer.group import ConsumerGroup
    from aiokq.broker.coordinator.group.consumer.image import GroupImage
    from aiokq.broker.coordinator.group.consumer.member_change import MemberChange
    from aiokq.broker.coordinator.group.group import Caller
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.core.errors import KafkaError
    from aiokq.wire.heartbeat import HeartbeatRequest
    from aiokq.wire.join_group import JoinGroupRequest
    from aiokq.wire.sync_group import SyncGroupRequest

__all__ = ["heartbeat", "join", "sync"]

logger = logging.getLogger("aiokq.broker.coordinator")

FIRST_WITH_REQUIRED_MEMBER_ID: Final = 4


def join(
    group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, instant: Instant
) -> Outcome[JoinGroupResponse]:
    """Handle JoinGroup without waiting for other members; the member epoch is the generation.

    The last member of the consumer protocol may be a static member that joins again by the classic
    protocol. In that case, the group becomes a classic group if the settings permit it.

    Raises:
        BrokerError: INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED,
            FENCED_INSTANCE_ID or FENCED_MEMBER_EPOCH.
    """
    image, instance_id = group.image, request.group_instance_id
    change = group.begin_change(caller, instant)
    existing = image.static_member(instance_id)
    change.check_capacity(request.member_id, existing)
    protocols = protocols_of(request.protocols)
    if request.protocol_type != PROTOCOL_TYPE or not _share_a_protocol(image, protocols):
        raise InconsistentGroupProtocol(
            f"Member {request.member_id}'s protocols are not supported."
        )
    try:
        subscription = decode_subscription(protocols[0].metadata)
    except ProtocolError as error:
        raise InconsistentGroupProtocol(f"the subscription cannot be read: {error}") from error
    member_id = request.member_id or new_member_id(group.context)
    if (
        not request.member_id
        and instance_id is None
        and caller.version >= FIRST_WITH_REQUIRED_MEMBER_ID
    ):
        # The client has to join again with this member id, as in a classic group (KIP-394).
        return Outcome(
            response=JoinGroupResponse(error_code=MemberIdRequired.code, member_id=member_id)
        )
    member = _find_member(image, change, request, existing, member_id)
    logger.info("classic member joins: group=%s member=%s", group.group_id, member.member_id)
    change.update(member, _updated(member, request, protocols, subscription, caller))
    if existing is not None and existing.classic is None:
        others = [one for one in image.members.values() if one is not existing]
        if group.context.downgrades.is_due(group.group_id, [*others, change.member]):
            return _join_with_downgrade(group, change, existing, others, subscription, instant)
    return _join_consumer_group(group, change, subscription, request, instant)


def _join_consumer_group(
    group: ConsumerGroup,
    change: MemberChange,
    subscription: Subscription,
    request: JoinGroupRequest,
    instant: Instant,
) -> Outcome[JoinGroupResponse]:
    """Join a group that keeps the consumer protocol."""
    change.reconcile(partitions_by_id(subscription.owned, group.context.topics))
    outcome = group.take(change, _joined(change.member), instant)
    changed = outcome.on_written

    def written(error: KafkaError | None) -> None:
        if changed is not None:
            changed(error)
        if error is None:
            group.timers.cancel(change.member.member_id, "join", "revocation")
            group.timers.start_session(change.member, instant)
            group.timers.start_sync(change.member, instant)

    outcome.on_written = written
    return outcome


def _join_with_downgrade(
    group: ConsumerGroup,
    change: MemberChange,
    existing: ConsumerMember,
    others: list[ConsumerMember],
    subscription: Subscription,
    instant: Instant,
) -> Outcome[JoinGroupResponse]:
    """Join a group that becomes a classic group by this join.

    The classic group rebalances, unless all members have reached the target assignment.
    """
    image = group.image
    epoch = image.assignment_epoch
    steady = change.epoch == epoch and all(one.is_reconciled_to(epoch) for one in others)
    if steady:
        change.reconcile(partitions_by_id(subscription.owned, group.context.topics))
        steady = change.member.is_reconciled_to(epoch)
    targets = {one.member_id: image.target(one.member_id) for one in others}
    targets[change.member.member_id] = image.target(existing.member_id)
    outcome = group.downgrade(
        [*others, change.member],
        targets,
        _joined(change.member),
        None if steady else "a static member rejoins by the classic protocol",
        instant,
        change=change,
    )
    if outcome is not None:
        return outcome
    raise InconsistentGroupProtocol(
        f"the subscription of a member of group {group.group_id} cannot be read, so the group "
        "cannot become a classic group"
    )


def _share_a_protocol(image: GroupImage, protocols: tuple[Protocol, ...]) -> bool:
    """Whether at least one of these protocols is supported by all classic members."""
    supported = [
        {protocol.name for protocol in member.classic.protocols}
        for member in image.members.values()
        if member.classic is not None
    ]
    return any(all(protocol.name in names for names in supported) for protocol in protocols)


def _find_member(
    image: GroupImage,
    change: MemberChange,
    request: JoinGroupRequest,
    existing: ConsumerMember | None,
    member_id: str,
) -> ConsumerMember:
    """Return the member that joins: an existing, a restarted static, or a new member."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return image.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id:
        return static_member_or_fenced(image, instance_id, member_id)
    if existing is None:
        return ConsumerMember(member_id)
    return change.take_over(existing, member_id)


def _updated(
    member: ConsumerMember,
    request: JoinGroupRequest,
    protocols: tuple[Protocol, ...],
    subscription: Subscription,
    caller: Caller,
) -> ConsumerMember:
    """Return the member updated from the request; the same object if nothing changed."""
    updated = replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )
    return member if updated == member else updated


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=_classic_metadata(member).protocols[0].name,
    )


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, instant: Instant
) -> Outcome[SyncGroupResponse]:
    """Handle SyncGroup: respond with the assignment of the member.

    The member itself revokes partitions that it owns and that the assignment does not contain.

    Raises:
        BrokerError: ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID or
            FENCED_INSTANCE_ID; REBALANCE_IN_PROGRESS if the member has to join again.
    """
    member = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    protocol = _classic_metadata(member).protocols[0]
    for requested, known in (
        (request.protocol_type, PROTOCOL_TYPE),
        (request.protocol_name, protocol.name),
    ):
        if requested is not None and requested != known:
            raise InconsistentGroupProtocol(
                f"the request has {requested}, but the member joined with {known}"
            )
    # A member that still has to revoke partitions joins again by itself after the revocation.
    if (
        group.image.epoch > member.member_epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        group.timers.start_join(member, instant)
        raise RebalanceInProgress(
            f"A new rebalance is triggered in group {group.group_id} and member "
            f"{member.member_id} should rejoin to catch up."
        )
    group.timers.cancel(member.member_id, "sync")
    group.timers.start_session(member, instant)
    return Outcome(
        response=SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.assigned, group.context.topics, protocol.metadata),
        )
    )


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, instant: Instant
) -> Outcome[HeartbeatResponse]:
    """Handle Heartbeat; respond with REBALANCE_IN_PROGRESS if the member has to join again.

    A member has to join again to revoke partitions, or to be assigned new partitions.

    Raises:
        BrokerError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    member = _classic_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    group.timers.start_session(member, instant)
    if (
        member.member_epoch < group.image.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and _all_free(group.image, member))
    ):
        group.timers.start_join(member, instant)
        return Outcome(response=HeartbeatResponse(error_code=RebalanceInProgress.code))
    return Outcome(response=HeartbeatResponse(error_code=0))


def _all_free(image: GroupImage, member: ConsumerMember) -> bool:
    """Whether all partitions that the member waits for are free."""
    return all(
        image.owner_of(topic_id, number) in (None, member.member_id)
        for topic_id, numbers in image.target(member.member_id).items()
        for number in numbers - member.assigned.get(topic_id, frozenset())
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    member = named_member(group.image, instance_id, member_id)
    if member.classic is None:
        raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
    if member.member_epoch != generation:
        raise IllegalGeneration(
            f"The request generation id {generation} is not equal to the member epoch "
            f"{member.member_epoch} of member {member_id}."
        )
    return member


def _classic_metadata(member: ConsumerMember) -> ClassicMetadata:
    assert member.classic is not None
    return member.classic
