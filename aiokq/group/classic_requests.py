"""The requests of a member of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Source: Kafka's `AbstractCoordinator`; the schemas of the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiokq.assign.model import Subscription
from aiokq.assign.protocol import PROTOCOL_TYPE, encode_subscription
from aiokq.wire.heartbeat import HeartbeatRequest
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiokq.wire.leave_group import LeaveGroupRequest, MemberIdentity
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from aiokq.assign.assignor import Assignor
    from aiokq.core.types import GroupMetadata, TopicPartition
    from aiokq.group.member_state import MemberConfig

__all__ = ["heartbeat_request", "join_request", "leave_request", "sync_request"]

SEVERAL_LEAVE_SINCE: Final = 3
"""The first LeaveGroup version with a list of members."""


def join_request(
    config: MemberConfig,
    member: GroupMetadata,
    user_data: Mapping[str, bytes | None],
    *,
    topics: frozenset[str],
    owned: frozenset[TopicPartition],
    reason: str,
) -> JoinGroupRequest:
    """Return the request to join the group's next generation.

    Args:
        user_data: the user data of each supported assignor, by the assignor's name.
    """

    def subscription(data: bytes | None) -> bytes:
        return encode_subscription(
            Subscription(
                tuple(sorted(topics)),
                owned=tuple(sorted(owned)),
                generation=member.generation,
                rack=config.rack,
                user_data=data,
            )
        )

    return JoinGroupRequest(
        group_id=member.group_id,
        session_timeout_ms=round(config.session_timeout * 1000),
        rebalance_timeout_ms=round(config.rebalance_timeout * 1000),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=subscription(data))
            for name, data in user_data.items()
        ],
        reason=reason,
    )


def sync_request(
    member: GroupMetadata,
    assignor: Assignor | None,
    assignments: list[SyncGroupRequestAssignment],
) -> SyncGroupRequest:
    """Return a SyncGroup request for the member's assignment.

    Only the group's leader sends assignments.
    """
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=None if assignor is None else assignor.name,
        assignments=assignments,
    )


def heartbeat_request(member: GroupMetadata) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )


def leave_request(member: GroupMetadata, version: int, reason: str) -> LeaveGroupRequest:
    """Return the request with which a dynamic member leaves the group."""
    if version < SEVERAL_LEAVE_SINCE:
        return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
    return LeaveGroupRequest(
        group_id=member.group_id,
        members=[MemberIdentity(member_id=member.member_id, reason=reason)],
    )
