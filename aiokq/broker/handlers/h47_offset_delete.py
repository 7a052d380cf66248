"""OffsetDelete (47), version 0: a group forgets where it was in some partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.group_calls import check_group_id, counted
from aiokq.core.errors import BrokerError, UnknownTopicOrPartition
from aiokq.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.node import BrokerNode


async def handle(
    node: BrokerNode, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse:
    """Delete the offsets of partitions that exist; those of a deleted topic went with it."""
    known, unknown = _sifted(node, request.topics)
    request.topics = known
    try:
        check_group_id(request.group_id)
        response = await node.group_coordinator.write(
            request.group_id, lambda shard, instant: shard.delete_offsets(request)
        )
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=counted(node, error))
    if not response.error_code:
        answers = {topic.name: topic for topic in response.topics}
        for name, refused in unknown.items():
            answer = answers.setdefault(name, OffsetDeleteResponseTopic(name=name))
            answer.partitions = [*answer.partitions, *refused]
        response.topics = list(answers.values())
    return response


def _sifted(
    node: BrokerNode, topics: list[OffsetDeleteRequestTopic]
) -> tuple[list[OffsetDeleteRequestTopic], dict[str, list[OffsetDeleteResponsePartition]]]:
    """What can be deleted, and by topic the refusals of the rest."""
    known: list[OffsetDeleteRequestTopic] = []
    unknown: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for topic in topics:
        found = node.topics.get(topic.name)
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
