"""DescribeProducers (61), version 0: describe the producers of partitions (KIP-664).

Errors of a partition: INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER,
TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION.

Source: Kafka ``KafkaApis.handleDescribeProducersRequest``, ``UnifiedLog.activeProducers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.metadata.image.topic_names import check_topic_name
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, UnknownTopicOrPartition
from aiokq.wire.describe_producers import (
    DescribeProducersPartitionResponse,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.describe_producers import DescribeProducersRequest


async def handle(
    topics: Topics, request: DescribeProducersRequest, call: Call
) -> DescribeProducersResponse:
    """Describe the producers of each partition, or return its error."""
    permits = Decisions(call, Operation.READ, ResourceType.TOPIC)
    response = DescribeProducersResponse()
    for topic in request.topics:
        answer = DescribeProducersTopicResponse(name=topic.name)
        response.topics.append(answer)
        for index in topic.partition_indexes:
            described = _described(topics, permits, topic.name, index)
            answer.partitions.append(described)
            if call.pace.spend(1 + len(described.active_producers)):
                await call.pace.next()
    return response


def _described(
    topics: Topics, permits: Decisions, name: str, index: int
) -> DescribeProducersPartitionResponse:
    try:
        check_topic_name(name)
        permits.check(name)
        partition = topics.partition(name, index)
        if partition is None:
            raise UnknownTopicOrPartition()
        producers = partition.log.producers
    except BrokerError as error:
        return DescribeProducersPartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return DescribeProducersPartitionResponse(
        partition_index=index,
        error_code=0,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=(
                    -1 if entry.transaction_first_offset is None else entry.transaction_first_offset
                ),
            )
            for entry in producers
        ],
    )
