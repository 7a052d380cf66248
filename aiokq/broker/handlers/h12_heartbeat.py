"""Heartbeat (12), versions 0-4: restart the session of a classic member.

While the group is being loaded, the response has no error, because loading restarts all sessions.

Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, ILLEGAL_GENERATION, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS (the member has to join again), GROUP_AUTHORIZATION_FAILED,
FENCED_INSTANCE_ID.

v1  throttle time   v3  static members   v4  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import check_group_id
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, CoordinatorLoadInProgress
from aiokq.wire.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call


async def handle(groups: Groups, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    """Restart the session, and return whether the member has to join again."""
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        check_group_id(request.group_id)
        return await groups.write(
            request.group_id, lambda shard, instant: shard.heartbeat(request, instant)
        )
    except CoordinatorLoadInProgress:
        # No error is needed, because loading restarts the sessions of all members.
        return HeartbeatResponse(error_code=0)
    except BrokerError as error:
        return HeartbeatResponse(error_code=error.code)
