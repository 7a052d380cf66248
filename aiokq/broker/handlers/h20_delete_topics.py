"""DeleteTopics (20), versions 1-6: delete topics and their records.

For a topic given by id, the response has the name only if the client may describe or delete the
topic.

Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (another topic has the same
id), TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST (the request has the topic twice, or an entry has
both a name and an id, or neither), KAFKA_STORAGE_ERROR, TOPIC_DELETION_DISABLED, UNKNOWN_TOPIC_ID,
THROTTLING_QUOTA_EXCEEDED.

v4  flexible   v5  error messages, refused beyond a quota (KIP-599)   v6  topics by id (KIP-516)
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import (
    BrokerError,
    InvalidRequest,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from aiokq.wire.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Changes, Configs, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.controller.decision import Charge
    from aiokq.broker.metadata.publisher.topics import Topic

STRICT_SINCE: Final = 5
"""The first version in which a deletion beyond a client's quota of partitions is refused."""


async def handle(
    topics: Topics, changes: Changes, configs: Configs, request: DeleteTopicsRequest, call: Call
) -> DeleteTopicsResponse:
    """Delete each topic, by name or by id."""
    if call.version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    else:
        asked = request.topics
    quota = call.mutations(strict_since=STRICT_SINCE)
    charge = None if quota is None else quota.charge
    times = Counter(_key(state) for state in asked)
    responses = []
    for state in asked:
        responses.append(
            await _delete(
                topics, changes, configs, call, state, twice=times[_key(state)] > 1, charge=charge
            )
        )
        if call.pace.spend():
            await call.pace.next()
    response = DeleteTopicsResponse(responses=responses)
    if quota is not None:
        response.throttle_time_ms = quota.throttle_ms
    return response


def _key(state: DeleteTopicState) -> object:
    return state.topic_id if state.name is None else state.name


async def _delete(
    topics: Topics,
    changes: Changes,
    configs: Configs,
    call: Call,
    state: DeleteTopicState,
    *,
    twice: bool,
    charge: Charge | None,
) -> DeletableTopicResult:
    name, topic_id = state.name, state.topic_id
    try:
        if twice:
            raise InvalidRequest("the request names this topic twice")
        if state.name is not None and state.topic_id != ZERO_UUID:
            raise InvalidRequest("specify the name or the id of a topic, not both")
        # DELETE on the cluster includes all topics.
        every = call.permits(Operation.DELETE, ResourceType.CLUSTER)
        if state.name is not None and not every:
            call.authorize(Operation.DESCRIBE, ResourceType.TOPIC, state.name)
        topic = _find(topics, state)
        if state.name is None and (
            every or call.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ):
            name = topic.name
        if not every:
            call.authorize(Operation.DELETE, ResourceType.TOPIC, topic.name)
        name, topic_id = topic.name, topic.topic_id
        if not configs.settings.delete_topic_enable:
            raise TopicDeletionDisabled()
        await changes.delete_topic(topic, charge=charge)
    except BrokerError as error:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
        )
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=0)


def _find(topics: Topics, state: DeleteTopicState) -> Topic:
    if state.name is not None:
        topic = topics.get(state.name)
        if topic is None:
            raise UnknownTopicOrPartition()
        return topic
    if state.topic_id == ZERO_UUID:
        raise InvalidRequest("specify the name or the id of a topic")
    topic = topics.by_id(state.topic_id)
    if topic is None:
        raise UnknownTopicId()
    return topic
