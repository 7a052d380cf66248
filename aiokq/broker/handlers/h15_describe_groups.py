"""DescribeGroups (15), versions 0-6: describe members and assignments of classic groups.

A group that does not exist or is not classic is described as dead. From version 6 on, it also has
the error GROUP_ID_NOT_FOUND.

Errors of a group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND.

v1  throttle time                     v4  static members    v6  GROUP_ID_NOT_FOUND
v3  authorized operations (KIP-430)   v5  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call


async def handle(
    groups: Groups, request: DescribeGroupsRequest, call: Call
) -> DescribeGroupsResponse:
    """Describe each group, or return its error."""
    described = []
    for group_id in request.groups:
        group = _describe(groups, call, group_id, call.version)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = call.operations(ResourceType.GROUP, group_id)
        described.append(group)
        if call.pace.spend(1 + len(group.members)):
            await call.pace.next()
    return DescribeGroupsResponse(groups=described)


def _describe(groups: Groups, call: Call, group_id: str, version: int) -> DescribedGroup:
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        return groups.read(group_id, lambda shard: shard.describe_group(group_id, version))
    except BrokerError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
