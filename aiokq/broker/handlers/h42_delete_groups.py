"""DeleteGroups (42), versions 0-2: deletes groups without members, and their offsets.

Errors of each group: 14, 15, 16, 68, 69. KIP-229.

v2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import counted
from aiokq.core.errors import BrokerError
from aiokq.wire.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.node import BrokerNode


async def handle(
    node: BrokerNode, request: DeleteGroupsRequest, call: Call
) -> DeleteGroupsResponse:
    """Delete each group; an error does not affect the other groups."""
    results = [await _delete(node, group_id) for group_id in dict.fromkeys(request.groups_names)]
    return DeleteGroupsResponse(results=results)


async def _delete(node: BrokerNode, group_id: str) -> DeletableGroupResult:
    try:
        return await node.group_coordinator.write(
            group_id, lambda shard, instant: shard.delete_group(group_id)
        )
    except BrokerError as error:
        return DeletableGroupResult(group_id=group_id, error_code=counted(node, error))
