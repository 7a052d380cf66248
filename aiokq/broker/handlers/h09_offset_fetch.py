"""OffsetFetch (9), versions 1-10: return the committed offsets of groups.

If a request is for all topics of a group, topics that the client may not describe are left out.

Errors of a group, which do not affect the other groups of a request: COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, GROUP_AUTHORIZATION_FAILED,
STALE_MEMBER_EPOCH.

Errors of a partition: TOPIC_AUTHORIZATION_FAILED, UNSTABLE_OFFSET_COMMIT (an open transaction may
change the offset, and the client requires stable offsets, KIP-447), UNKNOWN_TOPIC_ID.

v2  null for all topics, an error of the group   v7  require_stable     v9   member epochs
v3  throttle time                                v8  several groups     v10  topic ids
v5  leader epochs      v6  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownTopicId,
)
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiokq.broker.handlers.areas import Groups, Topics
    from aiokq.broker.handlers.call import Call

FIRST_WITH_GROUP_ERROR: Final = 2
FIRST_WITH_GROUPS: Final = 8
FIRST_WITH_TOPIC_IDS: Final = 10
NO_OFFSET: Final = -1

TOPICS_AT_ONCE: Final = 256
"""Number of topics whose offsets are read before other tasks run, if a request names the topics.

If a request asks for all topics of a group, all offsets are read in one step.
"""

PARTITIONS_AT_ONCE: Final = 512
"""Number of partitions of a topic whose offsets are read before other tasks run."""


async def handle(
    topics: Topics, groups: Groups, request: OffsetFetchRequest, call: Call
) -> OffsetFetchResponse:
    """Return the offsets of each group, or its error."""
    if call.version < FIRST_WITH_GROUPS:
        group = await _fetch(topics, groups, call, _as_group(request), request)
        return await _as_single(group, call)
    response = OffsetFetchResponse()
    for asked in request.groups:
        response.groups.append(await _fetch(topics, groups, call, asked, request))
        if call.pace.spend():
            await call.pace.next()
    return response


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Return the group of a request before version 8, in the form of version 8."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


async def _as_single(group: OffsetFetchResponseGroup, call: Call) -> OffsetFetchResponse:
    """Return the response for one group, in the form of the versions before 8."""
    code = group.error_code if call.version < FIRST_WITH_GROUP_ERROR else 0
    response = OffsetFetchResponse(error_code=group.error_code)
    for topic in group.topics:
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=one.partition_index,
                committed_offset=one.committed_offset,
                committed_leader_epoch=one.committed_leader_epoch,
                metadata=one.metadata,
                error_code=one.error_code or code,
            )
            async for one in call.each(topic.partitions)
        ]
        response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response


async def _fetch(
    topics: Topics,
    groups: Groups,
    call: Call,
    group: OffsetFetchRequestGroup,
    request: OffsetFetchRequest,
) -> OffsetFetchResponseGroup:
    version = call.version
    by_id = version >= FIRST_WITH_TOPIC_IDS
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
    except BrokerError as error:
        return _failed(group, error.code, version)
    asked_all = group.topics is None
    is_divided = _divide(group)
    refused = await _name_topics(topics, call, group, by_id=by_id)
    try:
        if asked_all or (not is_divided and len(group.topics or ()) <= TOPICS_AT_ONCE):
            answer = groups.read(
                group.group_id,
                lambda shard: shard.fetch_offsets(group, require_stable=request.require_stable),
            )
        else:
            answer = await _read(groups, call, group, require_stable=request.require_stable)
    except BrokerError as error:
        return _failed(group, _for_fetch(error).code, version)
    if by_id:  # leave out deleted topics, whose ids are unknown
        answer.topics = [topic for topic in answer.topics if topic.topic_id != ZERO_UUID]
    if asked_all:
        names = [topic.name for topic in answer.topics]
        permitted = await call.permitted_of_many(Operation.DESCRIBE, ResourceType.TOPIC, names)
        answer.topics = [topic for topic in answer.topics if topic.name in permitted]
    answer.topics += refused
    return _joined(answer) if is_divided else answer


def _divide(group: OffsetFetchRequestGroup) -> bool:
    """Divide each topic with very many partitions; return whether there was such a topic."""
    asked = group.topics or ()
    if all(len(topic.partition_indexes) <= PARTITIONS_AT_ONCE for topic in asked):
        return False
    group.topics = [
        OffsetFetchRequestTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_indexes=topic.partition_indexes[start : start + PARTITIONS_AT_ONCE],
        )
        for topic in asked
        for start in range(0, len(topic.partition_indexes) or 1, PARTITIONS_AT_ONCE)
    ]
    return True


def _joined(answer: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
    """Join the parts of each divided topic, because clients expect each topic once."""
    joined: dict[object, OffsetFetchResponseTopics] = {}
    for topic in answer.topics:
        first = joined.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partitions += topic.partitions
    answer.topics = list(joined.values())
    return answer


async def _read(
    groups: Groups, call: Call, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Read the offsets of a group; read many topics in several parts.

    Raises:
        BrokerError: see `CoordinatorRuntime.read` and `GroupShard.fetch_offsets`.
    """
    answer: OffsetFetchResponseGroup | None = None
    for part in _parts(group.topics or []):
        group.topics = part
        found = groups.read(
            group.group_id,
            lambda shard: shard.fetch_offsets(group, require_stable=require_stable),
        )
        if answer is None:
            answer = found
        else:
            answer.topics += found.topics
        if call.pace.spend(sum(1 + len(topic.partitions) for topic in found.topics)):
            await call.pace.next()
    assert answer is not None
    return answer


def _parts(topics: list[OffsetFetchRequestTopics]) -> Iterator[list[OffsetFetchRequestTopics]]:
    """Yield the topics in parts.

    A part ends at `TOPICS_AT_ONCE` topics, or when it has `PARTITIONS_AT_ONCE` partitions.
    """
    part: list[OffsetFetchRequestTopics] = []
    partitions = 0
    for topic in topics:
        part.append(topic)
        partitions += len(topic.partition_indexes)
        if len(part) == TOPICS_AT_ONCE or partitions >= PARTITIONS_AT_ONCE:
            yield part
            part, partitions = [], 0
    if part or not topics:
        yield part


async def _name_topics(
    topics: Topics, call: Call, group: OffsetFetchRequestGroup, *, by_id: bool
) -> list[OffsetFetchResponseTopics]:
    """Complete the names and ids of a group's topics; remove topics that get an error.

    A topic that is requested by name stays even if it does not exist, because its committed
    offsets may still exist.

    Returns:
        The responses for the removed topics.
    """
    if group.topics is None:
        return []
    known, refused = [], []
    for topic in group.topics:
        if call.pace.spend(1 + len(topic.partition_indexes)):
            await call.pace.next()
        found = topics.by_id(topic.topic_id) if by_id else topics.get(topic.name)
        if found is None and by_id:
            refused.append(_refused(topic, UnknownTopicId.code))
            continue
        name = topic.name if found is None else found.name
        try:
            call.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)
        except BrokerError as error:
            refused.append(_refused(topic, error.code))
            continue
        if found is not None:
            topic.name, topic.topic_id = found.name, found.topic_id
        known.append(topic)
    group.topics = known
    return refused


def _for_fetch(error: BrokerError) -> BrokerError:
    """Replace COORDINATOR_NOT_AVAILABLE with NOT_COORDINATOR.

    Kafka's consumers before 3.9 do not expect COORDINATOR_NOT_AVAILABLE in this response.
    """
    return NotCoordinator(str(error)) if isinstance(error, CoordinatorNotAvailable) else error


def _failed(group: OffsetFetchRequestGroup, code: int, version: int) -> OffsetFetchResponseGroup:
    topics = []
    if version < FIRST_WITH_GROUP_ERROR:
        topics = [_refused(topic, code) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=code)


def _refused(topic: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )
