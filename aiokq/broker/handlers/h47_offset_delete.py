"""OffsetDelete (47), version 0: delete committed offsets of a group.

Errors of the group: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.

Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
GROUP_SUBSCRIBED_TO_TOPIC (a member subscribes to the topic). KIP-496.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import check_group_id
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, UnknownTopicOrPartition
from aiokq.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups, Topics
    from aiokq.broker.handlers.call import Call


async def handle(
    topics: Topics, groups: Groups, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse:
    """Delete the offsets of permitted partitions that exist, and refuse the other partitions.

    When a topic is deleted, the coordinator removes the offsets of the topic without a request.
    """
    try:
        call.authorize(Operation.DELETE, ResourceType.GROUP, request.group_id)
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code)
    known, refused = await _sifted(topics, call, request.topics)
    request.topics = known
    try:
        check_group_id(request.group_id)
        response = await groups.write(
            request.group_id, lambda shard, instant: shard.delete_offsets(request)
        )
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if not response.error_code:
        answers = {topic.name: topic for topic in response.topics}
        for name, partitions in refused.items():
            answer = answers.setdefault(name, OffsetDeleteResponseTopic(name=name))
            answer.partitions = [*answer.partitions, *partitions]
        response.topics = list(answers.values())
    return response


async def _sifted(
    topics: Topics, call: Call, asked: list[OffsetDeleteRequestTopic]
) -> tuple[list[OffsetDeleteRequestTopic], dict[str, list[OffsetDeleteResponsePartition]]]:
    """Return the permitted partitions that exist, and the responses for all other partitions.

    A permitted partition that the request repeats is returned once. The responses are grouped by
    topic.
    """
    known: dict[str, dict[int, OffsetDeleteRequestPartition]] = {}
    refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
    async for topic in call.each(asked):
        found, code = None, UnknownTopicOrPartition.code
        try:
            call.authorize(Operation.READ, ResourceType.TOPIC, topic.name)
            found = topics.get(topic.name)
        except BrokerError as error:
            code = error.code
        present: dict[int, OffsetDeleteRequestPartition] = {}
        async for one in call.each(topic.partitions):
            if found is not None and found.partition(one.partition_index) is not None:
                present[one.partition_index] = one
            else:
                refusal = OffsetDeleteResponsePartition(
                    partition_index=one.partition_index, error_code=code
                )
                refused.setdefault(topic.name, []).append(refusal)
        if present:
            known.setdefault(topic.name, {}).update(present)
    distinct = [
        OffsetDeleteRequestTopic(name=name, partitions=list(partitions.values()))
        for name, partitions in known.items()
    ]
    return distinct, refused
