"""ConsumerGroupHeartbeat (68), versions 0-1: join, keep or end the membership in a group.

The answer carries the member's epoch, and its assignment if that has changed. KIP-848.

Errors: 14, 15, 16, 25, 29, 30, 42, 69, 81, 82, 110, 111, 112, 128.

v1  subscription by regular expression, member ids chosen by the client
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import subscriber_of
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call


async def handle(
    groups: Groups, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse:
    """Handle the heartbeat of a member."""
    caller = subscriber_of(call)
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        for name in request.subscribed_topic_names or ():
            call.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)
        return await groups.write(
            request.group_id,
            lambda shard, instant: shard.consumer_group_heartbeat(request, caller, instant),
        )
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=call.counted(error), error_message=error.message
        )
