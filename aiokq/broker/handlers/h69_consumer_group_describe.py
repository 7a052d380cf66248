"""ConsumerGroupDescribe (69), versions 0-1: describe members and assignments of consumer groups.

If a member's current or target assignment has a topic that the client may not describe, the whole
group gets TOPIC_AUTHORIZATION_FAILED.

Errors of a group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
INVALID_GROUP_ID, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND,
UNSUPPORTED_VERSION (`group.version` is 0). KIP-848.

v1  member types
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import check_consumer_groups, check_group_id
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups, Quorum
    from aiokq.broker.handlers.call import Call


async def handle(
    groups: Groups, quorum: Quorum, request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    """Describe each group, or return its error."""
    described = []
    for group_id in request.group_ids:
        group = _describe(groups, quorum, call, group_id)
        described.append(group)
        if call.pace.spend(1 + len(group.members)):
            await call.pace.next()
    names = {name for group in described for name in _topics(group)}
    permitted = await call.permitted_of_many(Operation.DESCRIBE, ResourceType.TOPIC, names)
    for name in sorted(names.difference(permitted)):
        call.denied(Operation.DESCRIBE, ResourceType.TOPIC, name)
    for at, group in enumerate(described):
        if not _topics(group).issubset(permitted):
            refusal = call.refusal(Operation.DESCRIBE, ResourceType.TOPIC)
            described[at] = _refused(group.group_id, refusal)
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = call.operations(ResourceType.GROUP, group.group_id)
        if call.pace.spend():
            await call.pace.next()
    return ConsumerGroupDescribeResponse(groups=described)


def _describe(
    groups: Groups, quorum: Quorum, call: Call, group_id: str
) -> ConsumerGroupDescribedGroup:
    try:
        check_consumer_groups(quorum)
        call.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        return groups.read(group_id, lambda shard: shard.describe_consumer_group(group_id))
    except BrokerError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: BrokerError) -> ConsumerGroupDescribedGroup:
    return ConsumerGroupDescribedGroup(
        group_id=group_id, error_code=error.code, error_message=error.message
    )


def _topics(group: ConsumerGroupDescribedGroup) -> set[str]:
    """Return the topics in the current and target assignments of members."""
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
