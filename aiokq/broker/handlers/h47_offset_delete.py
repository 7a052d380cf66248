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
    """Delete the offsets in topics that exist; those of a deleted topic went with it."""
    refused = [_unknown(topic) for topic in request.topics if node.topics.get(topic.name) is None]
    request.topics = [topic for topic in request.topics if node.topics.get(topic.name) is not None]
    try:
        check_group_id(request.group_id)
        response = await node.coordinator.write(
            request.group_id, lambda shard, instant: shard.delete_offsets(request)
        )
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=counted(node, error))
    response.topics += refused
    return response


def _unknown(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=one.partition_index, error_code=UnknownTopicOrPartition.code
            )
            for one in topic.partitions
        ],
    )
