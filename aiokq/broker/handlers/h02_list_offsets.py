"""ListOffsets (2), versions 1-11, 0 with `legacy`: find offsets by time or by position in the log.

For a timestamp, the response has the offset of the first record with this timestamp or a later
one, or -1 if there is no such record. Negative timestamps have special meanings: -1 is the end, -2
the start, -3 the record with the largest timestamp, and -4 the start of the local log. -5 and -6
stand for offsets of tiered storage, which this broker does not have: the offset is -1. The end is
the high watermark, or with READ_COMMITTED the last stable offset; for a follower, it is the log end
offset.

Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
TOPIC_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION (a special timestamp that the version does not
have), INVALID_REQUEST (a partition that is named twice), KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH; for a timestamp also CORRUPT_MESSAGE, MESSAGE_TOO_LARGE and
UNSUPPORTED_COMPRESSION_TYPE, if a batch cannot be read.

v1  one offset with its timestamp   v8   timestamp -4
v2  isolation level                 v9   timestamp -5
v4  leader epochs                   v10  timeout, for tiered storage (not used)
v6  flexible                        v11  timestamp -6
v7  timestamp -3
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.replica.partition import check_leader_epoch
from aiokq.core.errors import (
    BrokerError,
    InvalidRequest,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Logs, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.replica.partition import Partition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_SINCE: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

READ_COMMITTED: Final = 1


class Found(NamedTuple):
    """An offset with its record's timestamp and leader epoch; -1 for an unknown value."""

    timestamp: int
    offset: int
    leader_epoch: int


NOTHING: Final = Found(-1, -1, -1)


async def handle(
    topics: Topics, logs: Logs, request: ListOffsetsRequest, call: Call
) -> ListOffsetsResponse:
    """Find the offset of each partition."""
    permits = Decisions(call, Operation.DESCRIBE, ResourceType.TOPIC)
    pace = call.pace
    named: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            (twice if key in named else named).add(key)
            if pace.spend():
                await pace.next()
    answered = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                permits.check(topic.name)
                if (topic.name, asked.partition_index) in twice:
                    raise InvalidRequest("the request names the partition twice")
                partition = topics.partition(topic.name, asked.partition_index)
                if partition is None:
                    raise UnknownTopicOrPartition()
                answers.append(await _answer(logs, partition, asked, request, call.version))
            except BrokerError as error:
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=error.code
                    )
                )
            if pace.spend():
                await pace.next()
        answered.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=answered)


async def _answer(
    logs: Logs,
    partition: Partition,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    version: int,
) -> ListOffsetsPartitionResponse:
    check_leader_epoch(partition, asked.current_leader_epoch)
    since = _SINCE.get(asked.timestamp)
    if asked.timestamp < 0 and (since is None or version < since):
        raise UnsupportedVersion(
            f"ListOffsets version {version} does not support timestamp {asked.timestamp}"
        )
    end = partition.visible_end(request.replica_id, request.isolation_level == READ_COMMITTED)
    if version == 0:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=0,
            old_style_offsets=await _old_style(logs, partition, asked, end),
        )
    found = await _find(logs, partition, asked.timestamp, end)
    answer = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
    )
    if version >= 4:
        answer.leader_epoch = found.leader_epoch
    return answer


async def _find(logs: Logs, partition: Partition, timestamp: int, end: int) -> Found:
    log = partition.log
    if timestamp == LATEST:
        return Found(-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return Found(-1, start, log.epoch_for_offset(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        timestamp = await logs.cold_reads.read(log.max_timestamp_ms)
        if timestamp < 0:
            return NOTHING
    return await _first_since(logs, partition, timestamp, end)


async def _first_since(logs: Logs, partition: Partition, timestamp: int, end: int) -> Found:
    """Return the first record before `end` with this timestamp or a later one, or `NOTHING`.

    The search runs in the executor, because it may read a whole segment, and because decompressing
    one batch takes milliseconds.
    """
    log = partition.log
    offset = log.log_start_offset
    # Records at or after `end` do not count, because the client could not read them.
    while offset < end:
        look = functools.partial(log.search_timestamp, timestamp, offset)
        search = await logs.cold_reads.read(look)
        if search is None:
            break
        try:
            record = await logs.cold_reads.run(search.run)
        except OSError as error:
            raise log.read_refused(error) from error
        if record is not None:
            if record.offset >= end:
                break
            epoch = log.epoch_for_offset(record.offset)
            return Found(record.timestamp_ms, record.offset, epoch)
        offset = search.end_offset
    return NOTHING


async def _old_style(
    logs: Logs, partition: Partition, asked: ListOffsetsPartition, end: int
) -> list[int]:
    """Return offsets in descending order, which is the response of version 0.

    For `LATEST` the offsets are the end and the start of the log, for `EARLIEST` the start. For a
    timestamp, the only offset is the result of `_find`, or the start if `_find` finds no record.
    Kafka, which served version 0 until 3.9, returned base offsets of segments.
    """
    start = partition.log.log_start_offset
    if asked.timestamp == LATEST:
        offsets = [end] if end == start else [end, start]
    elif asked.timestamp == EARLIEST:
        offsets = [start]
    else:
        found = await _find(logs, partition, asked.timestamp, end)
        offsets = [start if found.offset < 0 else found.offset]
    return offsets[: max(asked.max_num_offsets, 0)]
