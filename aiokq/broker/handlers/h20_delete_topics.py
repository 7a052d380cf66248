"""DeleteTopics (20), versions 1-6: topics and their records go.

v4  flexible   v5  error messages   v6  topics by id
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

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
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.topics import Topic
    from aiokq.broker.node import BrokerNode


async def handle(
    node: BrokerNode, request: DeleteTopicsRequest, call: Call
) -> DeleteTopicsResponse:
    """Delete each topic, by name or by id; one that is named twice is refused with 42."""
    if call.version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    else:
        asked = request.topics
    times = Counter(_key(state) for state in asked)
    responses = [await _delete(node, state, twice=times[_key(state)] > 1) for state in asked]
    return DeleteTopicsResponse(responses=responses)


def _key(state: DeleteTopicState) -> object:
    return state.topic_id if state.name is None else state.name


async def _delete(
    node: BrokerNode, state: DeleteTopicState, *, twice: bool
) -> DeletableTopicResult:
    name, topic_id = state.name, state.topic_id
    try:
        if twice:
            raise InvalidRequest("the request names this topic twice")
        topic = _find(node, state)
        name, topic_id = topic.name, topic.topic_id
        if not node.settings.delete_topic_enable:
            raise TopicDeletionDisabled()
        await node.metadata.delete_topic(topic)
    except BrokerError as error:
        node.counters.errors[error.name] += 1
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
        )
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=0)


def _find(node: BrokerNode, state: DeleteTopicState) -> Topic:
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise InvalidRequest("give a topic's name or its id, not both")
    if state.name is not None:
        topic = node.topics.get(state.name)
        if topic is None:
            raise UnknownTopicOrPartition()
        return topic
    if state.topic_id == ZERO_UUID:
        raise InvalidRequest("give a topic's name or its id")
    topic = node.topics.by_id(state.topic_id)
    if topic is None:
        raise UnknownTopicId()
    return topic
