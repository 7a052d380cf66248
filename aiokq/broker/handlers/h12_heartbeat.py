"""Heartbeat (12), versions 0-4: restart the session of a classic member.

Errors: 15, 16, 22, 24, 25, 27 (the member has to join again), 30, 82. While the group is loaded the
answer is 0, because loading restarts all sessions.

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
    """Restart the session, and answer whether the member has to join again."""
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        check_group_id(request.group_id)
        return await groups.write(
            request.group_id, lambda shard, instant: shard.heartbeat(request, instant)
        )
    except CoordinatorLoadInProgress:
        # Loading restarts the sessions of all members.
        return HeartbeatResponse(error_code=0)
    except BrokerError as error:
        return HeartbeatResponse(error_code=call.counted(error))
