"""SyncGroup (14), versions 0-5: return the assignment of a member that uses the classic protocol.

In a classic group, the leader sends the assignments of all members with its own SyncGroup request.
The responses are sent when these assignments are written.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
REBALANCE_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED, FENCED_INSTANCE_ID, UNKNOWN_SERVER_ERROR (the
assignments are larger than the coordinator's log accepts).

v1  throttle time   v3  static members   v4  flexible   v5  protocol type and name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.handlers.group_calls import check_group_id
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InconsistentGroupProtocol
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call

FIRST_WITH_PROTOCOL: Final = 5


async def handle(groups: Groups, request: SyncGroupRequest, call: Call) -> SyncGroupResponse:
    """Return the member's assignment; store the assignments that the leader sends."""
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        check_group_id(request.group_id)
        if call.version >= FIRST_WITH_PROTOCOL and (
            request.protocol_type is None or request.protocol_name is None
        ):
            raise InconsistentGroupProtocol("protocol type and name are required")
        return await groups.write(
            request.group_id, lambda shard, instant: shard.sync(request, instant)
        )
    except BrokerError as error:
        return SyncGroupResponse(error_code=error.code)
