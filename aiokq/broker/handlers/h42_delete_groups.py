"""DeleteGroups (42), versions 0-2: delete groups without members, together with their offsets.

Errors of a group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
GROUP_AUTHORIZATION_FAILED, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. KIP-229.

v2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call


async def handle(groups: Groups, request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    """Delete each group; an error does not affect the other groups."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        results.append(await _delete(groups, call, group_id))
        if call.pace.spend():
            await call.pace.next()
    return DeleteGroupsResponse(results=results)


async def _delete(groups: Groups, call: Call, group_id: str) -> DeletableGroupResult:
    try:
        call.authorize(Operation.DELETE, ResourceType.GROUP, group_id)
        return await groups.write(group_id, lambda shard, instant: shard.delete_group(group_id))
    except BrokerError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
