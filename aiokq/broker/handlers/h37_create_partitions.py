"""CreatePartitions (37), versions 0-3: add partitions to topics.

The requested count is the new number of partitions. A topic that is named several times is refused.
With `validate_only` the new partitions are not added, but count against the client's quota.

Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (another topic has the same
id), TOPIC_AUTHORIZATION_FAILED, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST,
POLICY_VIOLATION, KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED. KIP-195.

v2  flexible   v3  refused beyond a quota (KIP-599)
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidRequest, UnknownTopicOrPartition
from aiokq.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Changes, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.controller.decision import Charge

STRICT_SINCE: Final = 3
"""The first version in which partitions beyond a client's quota are refused."""


async def handle(
    topics: Topics, changes: Changes, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    """Grow each topic to the requested count; with `validate_only`, only check the request."""
    quota = call.mutations(strict_since=STRICT_SINCE)
    charge = None if quota is None else quota.charge
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for asked in request.topics:
        if asked.name not in results:
            results[asked.name] = await _grow(
                topics,
                changes,
                call,
                asked,
                times[asked.name],
                charge=charge,
                validate_only=request.validate_only,
            )
        if call.pace.spend():
            await call.pace.next()
    response = CreatePartitionsResponse(results=list(results.values()))
    if quota is not None:
        response.throttle_time_ms = quota.throttle_ms
    return response


async def _grow(
    topics: Topics,
    changes: Changes,
    call: Call,
    asked: CreatePartitionsTopic,
    times: int,
    *,
    charge: Charge | None,
    validate_only: bool,
) -> CreatePartitionsTopicResult:
    try:
        if times > 1:
            raise InvalidRequest(f"the request names topic {asked.name!r} {times} times")
        call.authorize(Operation.ALTER, ResourceType.TOPIC, asked.name)
        topic = topics.get(asked.name)
        if topic is None:
            raise UnknownTopicOrPartition()
        assignments = None
        if asked.assignments is not None:
            assignments = [assignment.broker_ids for assignment in asked.assignments]
        await changes.create_partitions(
            topic, asked.count, assignments, validate_only=validate_only, charge=charge
        )
    except BrokerError as error:
        return CreatePartitionsTopicResult(
            name=asked.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=asked.name, error_code=0)
