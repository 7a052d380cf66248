"""DeleteRecords (21), versions 0-2: raise the log start offset of partitions.

Records before the new log start offset are hidden immediately, and stay hidden after a crash. The
files of segments that contain only such records are removed after a delay. Offset -1 means the high
watermark.

Errors of a partition: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
INVALID_TOPIC_EXCEPTION (an internal topic), TOPIC_AUTHORIZATION_FAILED, POLICY_VIOLATION (the
topic's cleanup.policy is compact, without delete), KAFKA_STORAGE_ERROR. KIP-107.

v2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidTopic, UnknownTopicOrPartition
from aiokq.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Logs, Topics
    from aiokq.broker.handlers.call import Call

NOT_KNOWN: Final = -1


async def handle(
    topics: Topics, logs: Logs, request: DeleteRecordsRequest, call: Call
) -> DeleteRecordsResponse:
    """Raise the log start offset of each partition, and return its low watermark."""
    permits = Decisions(call, Operation.DELETE, ResourceType.TOPIC)
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answer = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answer)
        for asked in topic.partitions:
            answer.partitions.append(_delete(topics, permits, topic.name, asked))
            if call.pace.spend():
                await call.pace.next()
    results = [result for topic in response.topics for result in topic.partitions]
    try:
        await logs.save_log_starts()  # so that the records stay hidden after a crash
    except BrokerError as error:
        for result in results:
            if not result.error_code:
                result.error_code, result.low_watermark = error.code, NOT_KNOWN
    logs.purge_later()
    return response


def _delete(
    topics: Topics, permits: Decisions, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        permits.check(topic)
        partition = topics.partition(topic, asked.partition_index)
        if partition is None:
            raise UnknownTopicOrPartition()
        if partition.topic.is_internal:
            raise InvalidTopic(f"Cannot delete records of internal topic {topic}")
        low_watermark = partition.delete_records(asked.offset)
    except BrokerError as error:
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=NOT_KNOWN, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=0
    )
