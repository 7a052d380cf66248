"""The permissions that each handler will need, as questions that are asked before it runs.

An authorizer that calls a coroutine function of the user cannot answer at once. If a request names
several resources, the dispatcher therefore asks the questions about them before the handler runs,
many at the same time. The handler then finds all answers, and need not run again after it has
changed something. This module is used only with such an authorizer.

The handler of any other request asks before its first change, and runs again after each answer. A
handler itself asks about resources that the request does not name, such as the topics of a fetch
session (`Call.settle`, `Call.permitted_of_many`).

Tests: ``tests/unit/broker/security/test_caller_authorizer.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.broker.metadata.configs.config_sources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from aiokq.broker.permissions import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.handlers.areas import Topics
    from aiokq.broker.handlers.call import Call, Question
    from aiokq.wire.add_partitions_to_txn import AddPartitionsToTxnRequest
    from aiokq.wire.consumer_group_describe import ConsumerGroupDescribeRequest
    from aiokq.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from aiokq.wire.create_partitions import CreatePartitionsRequest
    from aiokq.wire.create_topics import CreateTopicsRequest
    from aiokq.wire.delete_groups import DeleteGroupsRequest
    from aiokq.wire.delete_records import DeleteRecordsRequest
    from aiokq.wire.delete_topics import DeleteTopicsRequest
    from aiokq.wire.describe_groups import DescribeGroupsRequest
    from aiokq.wire.describe_producers import DescribeProducersRequest
    from aiokq.wire.describe_topic_partitions import DescribeTopicPartitionsRequest
    from aiokq.wire.describe_transactions import DescribeTransactionsRequest
    from aiokq.wire.find_coordinator import FindCoordinatorRequest
    from aiokq.wire.list_offsets import ListOffsetsRequest
    from aiokq.wire.metadata import MetadataRequest
    from aiokq.wire.offset_commit import OffsetCommitRequest
    from aiokq.wire.offset_delete import OffsetDeleteRequest
    from aiokq.wire.offset_fetch import OffsetFetchRequest
    from aiokq.wire.offset_for_leader_epoch import OffsetForLeaderEpochRequest
    from aiokq.wire.produce import ProduceRequest
    from aiokq.wire.struct import Request, Response
    from aiokq.wire.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["ask_in_advance"]

_O: Final = Operation
_TOPIC: Final = ResourceType.TOPIC
_GROUP: Final = ResourceType.GROUP
_CLUSTER: Final = ResourceType.CLUSTER
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

FIRST_PRODUCE_WITH_IDS: Final = 13
FIRST_METADATA_WITH_OPERATIONS: Final = 8
FIRST_METADATA_WITH_IDS: Final = 12
FIRST_COMMIT_WITH_IDS: Final = 10
FIRST_OFFSETS_WITH_GROUPS: Final = 8
FIRST_OFFSETS_WITH_IDS: Final = 10
FIRST_WITH_KEYS: Final = 4
FIRST_DELETE_WITH_IDS: Final = 6
FIRST_BETWEEN_BROKERS: Final = 4


async def ask_in_advance(topics: Topics, request: Request[Response], call: Call) -> None:
    """Ask the questions that the handler of a request will ask, and await the answers.

    Does nothing for an API that is not in `_QUESTIONS`.
    """
    of_request = _QUESTIONS.get(call.api_key)
    if of_request is None:
        return
    for operation, resource_type, names in of_request(topics, request, call):
        await call.permitted_of_many(operation, resource_type, names)
    of_operations = _OPERATIONS.get(call.api_key)
    if of_operations is not None:
        resource_type, names = of_operations(topics, request, call)
        await call.settle_operations(resource_type, names)


class _Identified(Protocol):
    @property
    def topic_id(self) -> uuid.UUID: ...


def _of_ids(topics: Topics, asked: Iterable[_Identified]) -> Iterator[str]:
    """Yield the names of topics that are given by id; the handler refuses unknown ids."""
    for each in asked:
        topic = topics.by_id(each.topic_id)
        if topic is not None:
            yield topic.name


# Each function yields the questions of one API in the handler's order. A question is answered
# before the function continues, so the function can omit questions that depend on the answer.


def _produce(topics: Topics, request: ProduceRequest, call: Call) -> Iterator[Question]:
    if request.transactional_id is not None:
        yield _O.WRITE, _TRANSACTIONAL_ID, (request.transactional_id,)
    if call.version >= FIRST_PRODUCE_WITH_IDS:
        yield _O.WRITE, _TOPIC, _of_ids(topics, request.topic_data)
    else:
        yield _O.WRITE, _TOPIC, (topic.name for topic in request.topic_data)


def _list_offsets(topics: Topics, request: ListOffsetsRequest, call: Call) -> Iterator[Question]:
    yield _O.DESCRIBE, _TOPIC, (topic.name for topic in request.topics)


def _metadata(topics: Topics, request: MetadataRequest, call: Call) -> Iterator[Question]:
    names = _metadata_names(topics, request, call)
    yield _O.DESCRIBE, _TOPIC, names
    missing = [
        name
        for name in dict.fromkeys(names)
        if topics.get(name) is None and call.permits(_O.DESCRIBE, _TOPIC, name)
    ]
    if missing:
        yield _O.CREATE, _CLUSTER, (CLUSTER_NAME,)
        if not call.permits(_O.CREATE, _CLUSTER):
            yield _O.CREATE, _TOPIC, missing


def _metadata_names(topics: Topics, request: MetadataRequest, call: Call) -> list[str]:
    asked = request.topics or ()
    names = [topic.name for topic in asked if topic.name]
    if call.version >= FIRST_METADATA_WITH_IDS:
        names += _of_ids(topics, asked)
    return names


def _metadata_operations(
    topics: Topics, request: MetadataRequest, call: Call
) -> tuple[ResourceType, Iterable[str]]:
    if (
        call.version < FIRST_METADATA_WITH_OPERATIONS
        or not request.include_topic_authorized_operations
    ):
        return _TOPIC, ()
    names = _metadata_names(topics, request, call)
    return _TOPIC, (name for name in names if call.permits(_O.DESCRIBE, _TOPIC, name))


def _offset_commit(topics: Topics, request: OffsetCommitRequest, call: Call) -> Iterator[Question]:
    yield _O.READ, _GROUP, (request.group_id,)
    if call.permits(_O.READ, _GROUP, request.group_id):
        if call.version >= FIRST_COMMIT_WITH_IDS:
            yield _O.READ, _TOPIC, _of_ids(topics, request.topics)
        else:
            yield _O.READ, _TOPIC, (topic.name for topic in request.topics)


def _offset_fetch(topics: Topics, request: OffsetFetchRequest, call: Call) -> Iterator[Question]:
    if call.version < FIRST_OFFSETS_WITH_GROUPS:
        yield _O.DESCRIBE, _GROUP, (request.group_id,)
        if call.permits(_O.DESCRIBE, _GROUP, request.group_id):
            yield _O.DESCRIBE, _TOPIC, (topic.name for topic in request.topics or ())
        return
    yield _O.DESCRIBE, _GROUP, (group.group_id for group in request.groups)
    asked = [
        topic
        for group in request.groups
        if call.permits(_O.DESCRIBE, _GROUP, group.group_id)
        for topic in group.topics or ()
    ]
    if call.version >= FIRST_OFFSETS_WITH_IDS:
        yield _O.DESCRIBE, _TOPIC, _of_ids(topics, asked)
    else:
        yield _O.DESCRIBE, _TOPIC, (topic.name for topic in asked)


def _find_coordinator(
    topics: Topics, request: FindCoordinatorRequest, call: Call
) -> Iterator[Question]:
    keys = request.coordinator_keys if call.version >= FIRST_WITH_KEYS else [request.key]
    if request.key_type in _KEY_TYPES:
        yield _O.DESCRIBE, _KEY_TYPES[request.key_type], keys


_KEY_TYPES: Final = {0: _GROUP, 1: _TRANSACTIONAL_ID}


def _describe_groups(
    topics: Topics, request: DescribeGroupsRequest, call: Call
) -> Iterator[Question]:
    yield _O.DESCRIBE, _GROUP, request.groups


def _describe_groups_operations(
    topics: Topics, request: DescribeGroupsRequest, call: Call
) -> tuple[ResourceType, Iterable[str]]:
    asked = request.groups if request.include_authorized_operations else ()
    return _GROUP, (name for name in asked if call.permits(_O.DESCRIBE, _GROUP, name))


def _create_topics(topics: Topics, request: CreateTopicsRequest, call: Call) -> Iterator[Question]:
    names = [topic.name for topic in request.topics]
    yield _O.CREATE, _CLUSTER, (CLUSTER_NAME,)
    if not call.permits(_O.CREATE, _CLUSTER):
        yield _O.CREATE, _TOPIC, names
        names = [name for name in names if call.permits(_O.CREATE, _TOPIC, name)]
    yield _O.DESCRIBE_CONFIGS, _TOPIC, names


def _delete_topics(topics: Topics, request: DeleteTopicsRequest, call: Call) -> Iterator[Question]:
    if call.version < FIRST_DELETE_WITH_IDS:
        names = list(request.topic_names)
    else:
        names = [state.name for state in request.topics if state.name is not None]
        names += _of_ids(topics, (state for state in request.topics if state.name is None))
    yield _O.DELETE, _CLUSTER, (CLUSTER_NAME,)
    if not call.permits(_O.DELETE, _CLUSTER):
        yield _O.DESCRIBE, _TOPIC, names
        yield _O.DELETE, _TOPIC, names


def _delete_records(
    topics: Topics, request: DeleteRecordsRequest, call: Call
) -> Iterator[Question]:
    yield _O.DELETE, _TOPIC, (topic.name for topic in request.topics)


def _offset_for_leader_epoch(
    topics: Topics, request: OffsetForLeaderEpochRequest, call: Call
) -> Iterator[Question]:
    yield _O.CLUSTER_ACTION, _CLUSTER, (CLUSTER_NAME,)
    if not call.permits(_O.CLUSTER_ACTION, _CLUSTER):
        yield _O.DESCRIBE, _TOPIC, (topic.topic for topic in request.topics)


def _add_partitions_to_txn(
    topics: Topics, request: AddPartitionsToTxnRequest, call: Call
) -> Iterator[Question]:
    if call.version >= FIRST_BETWEEN_BROKERS:
        yield _O.CLUSTER_ACTION, _CLUSTER, (CLUSTER_NAME,)
        return
    transactional_id = request.v3_and_below_transactional_id
    yield _O.WRITE, _TRANSACTIONAL_ID, (transactional_id,)
    if call.permits(_O.WRITE, _TRANSACTIONAL_ID, transactional_id):
        yield _O.WRITE, _TOPIC, (topic.name for topic in request.v3_and_below_topics)


def _txn_offset_commit(
    topics: Topics, request: TxnOffsetCommitRequest, call: Call
) -> Iterator[Question]:
    yield _O.WRITE, _TRANSACTIONAL_ID, (request.transactional_id,)
    if call.permits(_O.WRITE, _TRANSACTIONAL_ID, request.transactional_id):
        yield _O.READ, _GROUP, (request.group_id,)
        if call.permits(_O.READ, _GROUP, request.group_id):
            yield _O.READ, _TOPIC, (topic.name for topic in request.topics)


class _Resource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


class _OfResources(Protocol):
    @property
    def resources(self) -> Sequence[_Resource]: ...


def _configs(operation: Operation) -> Callable[[Topics, _OfResources, Call], Iterator[Question]]:
    def questions(topics: Topics, request: _OfResources, call: Call) -> Iterator[Question]:
        asked = [(each.resource_type, each.resource_name) for each in request.resources]
        if any(kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS) for kind, _ in asked):
            yield operation, _CLUSTER, (CLUSTER_NAME,)
        yield operation, _TOPIC, (name for kind, name in asked if kind == TOPIC)
        yield operation, _GROUP, (name for kind, name in asked if kind == GROUP)

    return questions


def _create_partitions(
    topics: Topics, request: CreatePartitionsRequest, call: Call
) -> Iterator[Question]:
    yield _O.ALTER, _TOPIC, (topic.name for topic in request.topics)


def _delete_groups(topics: Topics, request: DeleteGroupsRequest, call: Call) -> Iterator[Question]:
    yield _O.DELETE, _GROUP, request.groups_names


def _offset_delete(topics: Topics, request: OffsetDeleteRequest, call: Call) -> Iterator[Question]:
    yield _O.DELETE, _GROUP, (request.group_id,)
    if call.permits(_O.DELETE, _GROUP, request.group_id):
        yield _O.READ, _TOPIC, (topic.name for topic in request.topics)


def _describe_producers(
    topics: Topics, request: DescribeProducersRequest, call: Call
) -> Iterator[Question]:
    yield _O.READ, _TOPIC, (topic.name for topic in request.topics)


def _describe_transactions(
    topics: Topics, request: DescribeTransactionsRequest, call: Call
) -> Iterator[Question]:
    yield _O.DESCRIBE, _TRANSACTIONAL_ID, request.transactional_ids


def _consumer_group_heartbeat(
    topics: Topics, request: ConsumerGroupHeartbeatRequest, call: Call
) -> Iterator[Question]:
    yield _O.READ, _GROUP, (request.group_id,)
    if call.permits(_O.READ, _GROUP, request.group_id):
        yield _O.DESCRIBE, _TOPIC, request.subscribed_topic_names or ()


def _consumer_group_describe(
    topics: Topics, request: ConsumerGroupDescribeRequest, call: Call
) -> Iterator[Question]:
    yield _O.DESCRIBE, _GROUP, request.group_ids


def _consumer_group_describe_operations(
    topics: Topics, request: ConsumerGroupDescribeRequest, call: Call
) -> tuple[ResourceType, Iterable[str]]:
    asked = request.group_ids if request.include_authorized_operations else ()
    return _GROUP, (name for name in asked if call.permits(_O.DESCRIBE, _GROUP, name))


def _describe_topic_partitions(
    topics: Topics, request: DescribeTopicPartitionsRequest, call: Call
) -> Iterator[Question]:
    yield _O.DESCRIBE, _TOPIC, (topic.name for topic in request.topics)


_QUESTIONS: Final[dict[int, Callable[..., Iterator[Question]]]] = {
    0: _produce,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    15: _describe_groups,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    23: _offset_for_leader_epoch,
    24: _add_partitions_to_txn,
    28: _txn_offset_commit,
    32: _configs(Operation.DESCRIBE_CONFIGS),
    33: _configs(Operation.ALTER_CONFIGS),
    37: _create_partitions,
    42: _delete_groups,
    44: _configs(Operation.ALTER_CONFIGS),
    47: _offset_delete,
    61: _describe_producers,
    65: _describe_transactions,
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
    75: _describe_topic_partitions,
}
"""For each API whose requests name several resources, the function that yields the questions."""

_OPERATIONS: Final[dict[int, Callable[..., tuple[ResourceType, Iterable[str]]]]] = {
    3: _metadata_operations,
    15: _describe_groups_operations,
    69: _consumer_group_describe_operations,
}
"""For each API whose response has authorized operations, the function that returns the resources.

The function returns the type and the names of the resources of one request.
"""
