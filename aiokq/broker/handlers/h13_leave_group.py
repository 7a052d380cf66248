"""LeaveGroup (13), versions 0-5: remove members, at the request of a member or of an admin client.

Errors of a member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.

Errors of the group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED. KIP-345.

v1  throttle time   v3  several members, static ones by instance id   v4  flexible   v5  reason
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.handlers.group_calls import check_group_id
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, UnknownMemberId
from aiokq.wire.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call

FIRST_WITH_MEMBERS: Final = 3

MEMBERS_AT_ONCE: Final = 256
"""Number of members that are removed before other tasks run."""


async def handle(groups: Groups, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    """Remove each member; if the group does not exist, each member gets UNKNOWN_MEMBER_ID."""
    single = call.version < FIRST_WITH_MEMBERS
    if single:
        request.members = [MemberIdentity(member_id=request.member_id)]
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        check_group_id(request.group_id)
        response = LeaveGroupResponse()
        members = request.members
        for start in range(0, len(members) or 1, MEMBERS_AT_ONCE):
            request.members = members[start : start + MEMBERS_AT_ONCE]
            response.members += await _leave(groups, request)
            if call.pace.spend(len(request.members)):
                await call.pace.next()
    except BrokerError as error:
        return LeaveGroupResponse(error_code=error.code)
    if single:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response


async def _leave(groups: Groups, request: LeaveGroupRequest) -> list[MemberResponse]:
    try:
        response = await groups.write(
            request.group_id, lambda shard, instant: shard.leave(request, instant)
        )
    except UnknownMemberId as error:
        code = error.code
        return [
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=code,
            )
            for one in request.members
        ]
    return response.members
