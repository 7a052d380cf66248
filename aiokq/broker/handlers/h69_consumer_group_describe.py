"""ConsumerGroupDescribe (69), versions 0-1: members and assignments of groups of KIP-848.

Errors of each group: 14, 15, 16, 24, 69.

v1  member types
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import check_group_id
from aiokq.broker.handlers.operations import GROUP_OPERATIONS
from aiokq.core.errors import BrokerError
from aiokq.wire.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups
    from aiokq.broker.handlers.call import Call


async def handle(
    groups: Groups, request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    """Each group, or its error."""
    described = [_describe(groups, call, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=described)


def _describe(groups: Groups, call: Call, group_id: str) -> ConsumerGroupDescribedGroup:
    try:
        check_group_id(group_id)
        return groups.read(group_id, lambda shard: shard.describe_consumer_group(group_id))
    except BrokerError as error:
        return ConsumerGroupDescribedGroup(
            group_id=group_id, error_code=call.counted(error), error_message=error.message
        )
