"""OffsetForLeaderEpoch (23), versions 2-4: return where a leader epoch ends in the log.

The response has an epoch and an end offset, which depend on the requested epoch:

- the partition's leader epoch or the newest epoch in the log: this epoch and the log end offset.
- an older epoch: the newest epoch in the log up to the requested epoch, and its end offset.
- an epoch before all epochs in the log: this epoch, and the start of the oldest epoch in the log.
- any other epoch, or -1 (no epoch): the epoch -1 and the offset -1.

Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH. KIP-101,
KIP-320.

v2  current leader epoch, to fence clients   v3  replica id   v4  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.replica.partition import check_leader_epoch
from aiokq.core.errors import BrokerError, UnknownTopicOrPartition
from aiokq.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Topics
    from aiokq.broker.handlers.call import Call


async def handle(
    topics: Topics, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    """Return the end of the requested epoch of each partition."""
    permits = None
    if not call.permits(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        permits = Decisions(call, Operation.DESCRIBE, ResourceType.TOPIC)
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answer = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        for asked in topic.partitions:
            answer.partitions.append(_answer(topics, permits, topic.topic, asked))
            if call.pace.spend():
                await call.pace.next()
    return response


def _answer(
    topics: Topics, permits: Decisions | None, topic: str, asked: OffsetForLeaderPartition
) -> OffsetForLeaderEpochEndOffset:
    try:
        if permits is not None:
            permits.check(topic)
        partition = topics.partition(topic, asked.partition)
        if partition is None:
            raise UnknownTopicOrPartition()
        check_leader_epoch(partition, asked.current_leader_epoch)
        epoch, end = partition.end_offset_for_epoch(asked.leader_epoch)
    except BrokerError as error:
        return OffsetForLeaderEpochEndOffset(error_code=error.code, partition=asked.partition)
    return OffsetForLeaderEpochEndOffset(
        error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end
    )
