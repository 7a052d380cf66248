"""OffsetDelete (47), version 0: deletes committed offsets of a group.

Errors of the group: 14, 15, 16, 24, 68, 69; of a partition: 3, or 86 if a member subscribes to its
topic. KIP-496.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import check_group_id
from aiokq.core.errors import BrokerError, UnknownTopicOrPartition
from aiokq.wire.offset_delete import (
    OffsetDeleteRequest,
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
    """Delete the offsets of existing partitions; those of deleted topics are gone already."""
    known, unknown = _sifted(topics, request.topics)
    request.topics = known
    try:
        check_group_id(request.group_id)
        response = await groups.write(
            request.group_id, lambda shard, instant: shard.delete_offsets(request)
        )
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=call.counted(error))
    if not response.error_code:
        answers = {topic.name: topic for topic in response.topics}
        for name, refused in unknown.items():
            answer = answers.setdefault(name, OffsetDeleteResponseTopic(name=name))
            answer.partitions = [*answer.partitions, *refused]
        response.topics = list(answers.values())
    return response


def _sifted(
    topics: Topics, asked: list[OffsetDeleteRequestTopic]
) -> tuple[list[OffsetDeleteRequestTopic], dict[str, list[OffsetDeleteResponsePartition]]]:
    """The partitions that exist, and by topic the answers for those that do not."""
    known: list[OffsetDeleteRequestTopic] = []
    unknown: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for topic in asked:
        found = topics.get(topic.name)
        present = []
        for one in topic.partitions:
            if found is not None and found.partition(one.partition_index) is not None:
                present.append(one)
            else:
                refusal = OffsetDeleteResponsePartition(
                    partition_index=one.partition_index, error_code=UnknownTopicOrPartition.code
                )
                unknown.setdefault(topic.name, []).append(refusal)
        if present:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=present))
    return known, unknown
