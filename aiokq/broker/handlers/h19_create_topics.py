"""CreateTopics (19), versions 2-7: create topics with partitions, replicas and settings.

With `validate_only` the topics are checked and not created, but count against the client's quota.
If the client may not describe the settings of a new topic, the response has neither the settings of
the topic nor its numbers of partitions and replicas.

Errors of a topic: INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, TOPIC_ALREADY_EXISTS,
INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG,
INVALID_REQUEST (also for a name that is given twice), POLICY_VIOLATION, KAFKA_STORAGE_ERROR,
THROTTLING_QUOTA_EXCEEDED.

v4  -1 takes the broker's defaults      v5  flexible; the topic's settings in the response
v6  refused beyond a quota (KIP-599)    v7  topic id in the response
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.configs.config_sources import topic_config_entries
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidReplicaAssignment, InvalidRequest
from aiokq.wire.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Changes, Configs
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.controller.decision import Charge

STRICT_SINCE: Final = 6
"""The first version in which a topic beyond a client's quota of partitions is refused."""


async def handle(
    changes: Changes, configs: Configs, request: CreateTopicsRequest, call: Call
) -> CreateTopicsResponse:
    """Create each topic; with `validate_only`, only check it."""
    quota = call.mutations(strict_since=STRICT_SINCE)
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    for asked in request.topics:
        if asked.name not in results:
            results[asked.name] = await _create(
                changes,
                configs,
                call,
                asked,
                times[asked.name],
                charge=None if quota is None else quota.charge,
                validate_only=request.validate_only,
            )
        if call.pace.spend():
            await call.pace.next()
    response = CreateTopicsResponse(topics=list(results.values()))
    if quota is not None:
        response.throttle_time_ms = quota.throttle_ms
    return response


async def _create(
    changes: Changes,
    configs: Configs,
    call: Call,
    asked: CreatableTopic,
    times: int,
    *,
    charge: Charge | None,
    validate_only: bool,
) -> CreatableTopicResult:
    try:
        if times > 1:
            raise InvalidRequest(f"the request names topic {asked.name!r} {times} times")
        if not call.permits(Operation.CREATE, ResourceType.CLUSTER):
            call.authorize(Operation.CREATE, ResourceType.TOPIC, asked.name)
        created = await changes.create_topic(
            _spec(asked), validate_only=validate_only, charge=charge
        )
    except BrokerError as error:
        return CreatableTopicResult(
            name=asked.name, error_code=error.code, error_message=error.message, configs=[]
        )
    if not call.permits(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, asked.name):
        refusal = call.refusal(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
        return CreatableTopicResult(
            name=asked.name,
            topic_id=created.topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=refusal.code,
            configs=[],
        )
    return CreatableTopicResult(
        name=asked.name,
        topic_id=created.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=created.partition_count,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in topic_config_entries(created.configs, configs.dynamic_settings)
        ],
    )


def _spec(asked: CreatableTopic) -> TopicSpec:
    configs: dict[str, str | None] = {}
    for config in asked.configs:
        if config.name in configs:
            raise InvalidRequest(f"the request sets {config.name} twice")
        configs[config.name] = config.value
    assignments: dict[int, list[int]] | None = None
    if asked.assignments:
        assignments = {a.partition_index: a.broker_ids for a in asked.assignments}
        if len(assignments) != len(asked.assignments):
            raise InvalidReplicaAssignment("the request assigns a partition twice")
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise InvalidRequest(
                "num_partitions and replication_factor must be -1 if replicas are assigned"
            )
    return TopicSpec(
        name=asked.name,
        partitions=None if asked.num_partitions == -1 else asked.num_partitions,
        replication_factor=None if asked.replication_factor == -1 else asked.replication_factor,
        assignments=assignments,
        configs=configs,
    )
