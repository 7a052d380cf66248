"""ConsumerGroupHeartbeat (68), versions 0-1: join, keep or end the membership in a group.

The response has the member's epoch, and the member's assignment if it has changed. KIP-848.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN_MEMBER_ID,
TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST, GROUP_ID_NOT_FOUND,
GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, UNSUPPORTED_VERSION (`group.version` is 0),
UNKNOWN_SERVER_ERROR (the records are larger than the coordinator's log accepts).

v1  subscription by regular expression, member ids chosen by the client
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import check_consumer_groups, subscriber_of
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups, Quorum
    from aiokq.broker.handlers.call import Call


async def handle(
    groups: Groups, quorum: Quorum, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse:
    """Add or remove the member, or restart its session; return its epoch and new assignment."""
    caller = subscriber_of(call)
    try:
        check_consumer_groups(quorum)
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        names = request.subscribed_topic_names or ()
        for name in names:
            call.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)
            if call.pace.spend():
                await call.pace.next()
        return await groups.write(
            request.group_id,
            lambda shard, instant: shard.consumer_group_heartbeat(request, caller, instant),
        )
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
