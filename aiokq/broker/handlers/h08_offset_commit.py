"""OffsetCommit (8), versions 2-10: commit offsets of a group.

Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION (with topic ids, UNKNOWN_TOPIC_ID if no topic has
the id), OFFSET_METADATA_TOO_LARGE, TOPIC_AUTHORIZATION_FAILED.

Errors of the group, which every partition without an error of its own gets:
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, ILLEGAL_GENERATION,
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION,
GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH, UNKNOWN_SERVER_ERROR (the records are
larger than the coordinator's log accepts).

v3  throttle time       v7  static members     v9   the consumer protocol (KIP-848)
v5  no retention time   v8  flexible           v10  topic ids in place of names
v6  leader epochs

The offsets of very many partitions are committed in parts, so that other tasks run in between. If
such a request has several entries for a partition, only the last entry is committed, and the
response has one entry for the partition.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, UnknownTopicId, UnknownTopicOrPartition
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.publisher.topics import Topic

FIRST_WITH_TOPIC_IDS: Final = 10

PARTITIONS_AT_ONCE: Final = 512
"""Number of partitions whose offsets are committed before other tasks run."""

_Place: TypeAlias = tuple[str, uuid.UUID]
"""Name and id of a topic, as in the response."""


async def handle(
    topics: Topics, groups: Groups, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse:
    """Commit the offsets of permitted partitions that exist, and refuse the other partitions."""
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_AT_ONCE:
        return await _commit_many(topics, groups, request, call)
    refused = []
    accepted = []
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
    except BrokerError as error:
        return _failed(request.topics, error.code)
    permits = Decisions(call, Operation.READ, ResourceType.TOPIC)
    pace = call.pace
    for topic in request.topics:
        if pace.spend(1 + len(topic.partitions)):
            await pace.next()
        found = _find(topics, topic, call.version)
        name = topic.name if found is None else found.name
        try:
            if found is not None or call.version < FIRST_WITH_TOPIC_IDS:
                permits.check(name)
        except BrokerError as error:
            refused.append(_answer(topic, error.code))
            continue
        known, reason = _sift(found, topic, call.version)
        if reason is not None:
            refused.append(reason)
        if known is not None:
            accepted.append(known)
    response = OffsetCommitResponse()
    request.topics = accepted
    if accepted or not refused:
        try:
            response = await groups.write(
                request.group_id,
                lambda shard, instant: shard.commit_offsets(request, call.version, instant),
            )
            call.counters.offsets_committed += _committed(response)
        except BrokerError as error:
            response = _failed(accepted, error.code)
    response.topics = _merged(response.topics + refused)
    return response


async def _commit_many(
    topics: Topics, groups: Groups, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse:
    codes: dict[_Place, dict[int, int]] = {}
    accepted = await _sift_many(topics, request, call, codes)
    part: list[OffsetCommitRequestTopic] = []
    room = PARTITIONS_AT_ONCE
    for (name, topic_id), by_index in accepted.items():
        offsets = list(by_index.values())
        begin = 0
        while begin < len(offsets):
            some = offsets[begin : begin + room]
            part.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=some))
            begin += len(some)
            room -= len(some)
            if not room:
                await _commit_part(groups, request, call, part, codes)
                part, room = [], PARTITIONS_AT_ONCE
    if part:
        await _commit_part(groups, request, call, part, codes)
    response = OffsetCommitResponse()
    for (name, topic_id), of_topic in codes.items():
        answers = [
            OffsetCommitResponsePartition(partition_index=index, error_code=code)
            async for index, code in call.each(of_topic.items())
        ]
        response.topics.append(
            OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=answers)
        )
    return response


async def _sift_many(
    topics: Topics, request: OffsetCommitRequest, call: Call, codes: dict[_Place, dict[int, int]]
) -> dict[_Place, dict[int, OffsetCommitRequestPartition]]:
    """Return the permitted partitions that exist; add the other partitions' errors to `codes`."""
    denial = 0
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
    except BrokerError as error:
        denial = error.code
    permits = Decisions(call, Operation.READ, ResourceType.TOPIC)
    accepted: dict[_Place, dict[int, OffsetCommitRequestPartition]] = {}
    async for topic in call.each(request.topics):
        found, code = _find(topics, topic, call.version), denial
        try:
            if not denial and (found is not None or call.version < FIRST_WITH_TOPIC_IDS):
                permits.check(topic.name if found is None else found.name)
        except BrokerError as error:
            code = error.code
        place = topic.name, topic.topic_id
        missing = UnknownTopicOrPartition.code
        if found is not None and not code:
            place = found.name, found.topic_id
        elif found is None and call.version >= FIRST_WITH_TOPIC_IDS:
            missing = UnknownTopicId.code
        offsets, refused = accepted.setdefault(place, {}), codes.setdefault(place, {})
        async for one in call.each(topic.partitions):
            index = one.partition_index
            if code or found is None or found.partition(index) is None:
                refused[index] = code or missing
            else:
                offsets[index] = one
    return accepted


async def _commit_part(
    groups: Groups,
    request: OffsetCommitRequest,
    call: Call,
    part: list[OffsetCommitRequestTopic],
    codes: dict[_Place, dict[int, int]],
) -> None:
    request.topics = part
    try:
        response = await groups.write(
            request.group_id,
            lambda shard, instant: shard.commit_offsets(request, call.version, instant),
        )
    except BrokerError as error:
        response = _failed(part, error.code)
    call.counters.offsets_committed += _committed(response)
    for topic in response.topics:
        codes[topic.name, topic.topic_id].update(
            (one.partition_index, one.error_code) for one in topic.partitions
        )
    if call.pace.spend(PARTITIONS_AT_ONCE):
        await call.pace.next()


def _find(topics: Topics, topic: OffsetCommitRequestTopic, version: int) -> Topic | None:
    if version >= FIRST_WITH_TOPIC_IDS:
        return topics.by_id(topic.topic_id)
    return topics.get(topic.name)


def _sift(
    found: Topic | None, asked: OffsetCommitRequestTopic, version: int
) -> tuple[OffsetCommitRequestTopic | None, OffsetCommitResponseTopic | None]:
    """Split a topic into its existing partitions and the response for the other partitions."""
    if found is None:
        unknown = UnknownTopicId if version >= FIRST_WITH_TOPIC_IDS else UnknownTopicOrPartition
        return None, _answer(asked, unknown.code)
    present = [one for one in asked.partitions if found.partition(one.partition_index) is not None]
    absent = [one for one in asked.partitions if found.partition(one.partition_index) is None]
    asked.name, asked.topic_id, asked.partitions = found.name, found.topic_id, absent
    return (
        OffsetCommitRequestTopic(name=found.name, topic_id=found.topic_id, partitions=present)
        if present
        else None,
        _answer(asked, UnknownTopicOrPartition.code) if absent else None,
    )


def _committed(response: OffsetCommitResponse) -> int:
    return sum(not one.error_code for topic in response.topics for one in topic.partitions)


def _failed(topics: list[OffsetCommitRequestTopic], code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_answer(topic, code) for topic in topics])


def _answer(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ],
    )


def _merged(answers: list[OffsetCommitResponseTopic]) -> list[OffsetCommitResponseTopic]:
    """Merge the entries of each topic, because clients put the entries into a map by topic.

    In such a map, a second entry of a topic would replace the first.
    """
    if len(answers) < 2:
        return answers
    by_topic: dict[object, OffsetCommitResponseTopic] = {}
    for answer in answers:
        first = by_topic.setdefault((answer.name, answer.topic_id), answer)
        if first is not answer:
            first.partitions += answer.partitions
    return list(by_topic.values())
