"""DescribeTopicPartitions (75), version 0: describe partitions of topics, page by page.

Topics are sorted by name, except that named topics that the client may not describe come last. A
request without names is for all topics; its response leaves out topics that the client may not
describe. Java's Admin client tries this API before Metadata. Version 4.0 of that client fails if a
list of eligible leader replicas is null, so these lists are empty.

Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED,
INVALID_REQUEST (every named topic gets it if the cursor's topic is not one of them, or the cursor's
partition is negative).

Errors of a partition: LEADER_NOT_AVAILABLE. KIP-966.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from aiokq.broker.metadata.image.topic_names import check_topic_name
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.replica.partition import NO_LEADER
from aiokq.core.errors import (
    BrokerError,
    InvalidRequest,
    LeaderNotAvailable,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster, Configs, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.publisher.topics import Topic
    from aiokq.broker.replica.partition import Partition


async def handle(
    topics: Topics,
    cluster: Cluster,
    configs: Configs,
    request: DescribeTopicPartitionsRequest,
    call: Call,
) -> DescribeTopicPartitionsResponse:
    """Describe topics from the cursor on, up to the maximum number of partitions."""
    asked_all = not request.topics
    if not _is_valid(request):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=InvalidRequest.code, name=topic.name
                )
                for topic in request.topics
            ]
        )
    names = (
        [topic.name for topic in topics.sorted()]
        if asked_all
        else sorted({topic.name for topic in request.topics})
    )
    first_partition = 0
    if request.cursor is not None:
        start = request.cursor.topic_name
        names = [name for name in names if name >= start]
    ceiling = configs.settings.max_request_partition_size_limit
    left = max(min(request.response_partition_limit, ceiling), 1)
    reachable = {broker.node_id for broker in cluster.brokers(call.connection.listener)}
    response = DescribeTopicPartitionsResponse()
    permitted = await call.permitted_of_many(Operation.DESCRIBE, ResourceType.TOPIC, names)
    denied = [] if asked_all else [name for name in names if name not in permitted]
    async for name in call.each(denied):
        call.denied(Operation.DESCRIBE, ResourceType.TOPIC, name)
    names = [name for name in names if name in permitted]
    if request.cursor is not None and names and names[0] == request.cursor.topic_name:
        first_partition = request.cursor.partition_index
    await call.settle_operations(ResourceType.TOPIC, names)
    for name in names:
        if call.pace.spend():
            await call.pace.next()
        topic = topics.get(name)
        if topic is None:
            response.topics.append(_refusal(name, call.operations(ResourceType.TOPIC, name)))
            continue
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        stop = min(first_partition + left, len(topic.partitions))
        operations = call.operations(ResourceType.TOPIC, name)
        response.topics.append(_describe(topic, first_partition, stop, reachable, operations))
        if stop < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=stop)
            break
        left -= max(stop - first_partition, 0)
        call.pace.steps += stop - first_partition
        first_partition = 0
    code = TopicAuthorization.code
    async for name in call.each(denied):
        response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
    return response


def _is_valid(request: DescribeTopicPartitionsRequest) -> bool:
    """Return whether the cursor, if any, is valid.

    Its partition must not be negative. If the request lists topics, its topic must be one of them.
    """
    cursor = request.cursor
    if cursor is None:
        return True
    return cursor.partition_index >= 0 and (
        not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    )


def _refusal(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    code = UnknownTopicOrPartition.code
    try:
        check_topic_name(name)
    except BrokerError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=operations
    )


def _describe(
    topic: Topic, first: int, stop: int, reachable: Set[int], operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _describe_partition(partition, reachable) for partition in topic.partitions[first:stop]
        ],
        topic_authorized_operations=operations,
    )


def _describe_partition(
    partition: Partition, reachable: Set[int]
) -> DescribeTopicPartitionsResponsePartition:
    """Describe a partition to a client that can reach only the nodes in `reachable`.

    A leader that does not advertise the client's listener is not an error here, unlike in Metadata.
    """
    described = DescribeTopicPartitionsResponsePartition(
        error_code=LeaderNotAvailable.code if partition.leader < 0 else 0,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(partition.offline_replicas),
    )
    if partition.is_online and partition.leader not in reachable:
        described.leader_id = NO_LEADER
        described.offline_replicas = [n for n in partition.replicas if n not in reachable]
    return described
