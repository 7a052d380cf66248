"""ListGroups (16), versions 0-5: list the groups that this node coordinates.

Groups that the client may not describe are left out.

Errors: COORDINATOR_LOAD_IN_PROGRESS (a shard is being loaded), COORDINATOR_NOT_AVAILABLE (a shard
cannot be used). KIP-518, KIP-848.

v1  throttle time   v3  flexible   v4  filter by state   v5  filter by type
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call


async def handle(groups: Groups, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    """List the groups that are in a requested state and of a requested type."""
    try:
        listed = groups.read_all(
            lambda shard: shard.list_groups(request.states_filter, request.types_filter)
        )
    except BrokerError as error:
        return ListGroupsResponse(error_code=error.code)
    if not call.permits(Operation.DESCRIBE, ResourceType.CLUSTER):
        names = [group.group_id for group in listed]
        permitted = await call.permitted_of_many(Operation.DESCRIBE, ResourceType.GROUP, names)
        listed = [group for group in listed if group.group_id in permitted]
    return ListGroupsResponse(groups=listed)
