"""Metadata (3), versions 0-13: describe brokers and topics, and create missing topics.

A request has the names or the ids of topics, or requests all topics. If all topics are requested,
topics that the client may not describe are left out. A named topic that does not exist is created
if the broker's settings, the request and the client's permissions allow it. The same response
describes the new topic with its leaders. Kafka first returns UNKNOWN_TOPIC_OR_PARTITION or
LEADER_NOT_AVAILABLE, and creates the topic later; clients handle either behaviour. The response
lists the brokers that advertise the listener of the connection, with their addresses on that
listener.

Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED,
INVALID_REQUEST, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_ID; if the topic cannot be created, also
INVALID_REPLICATION_FACTOR and POLICY_VIOLATION.

Errors of a partition: LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND.

v0   an empty list means all topics       v8   authorized operations (KIP-430)
v1   null means all, empty none; racks    v9   flexible
v2   cluster id                           v10  topic ids in responses (KIP-516)
v4   the client may forbid auto-creation  v11  cluster operations moved to DescribeCluster
v5   offline replicas                     v12  topics may be requested by id
v7   leader epochs                        v13  an error code for the request
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.image.topic_names import INTERNAL_TOPICS
from aiokq.broker.permissions import (
    OPERATIONS_NOT_REQUESTED,
    Operation,
    ResourceType,
)
from aiokq.broker.replica.partition import NO_LEADER
from aiokq.core.errors import (
    BrokerError,
    InvalidRequest,
    LeaderNotAvailable,
    ListenerNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.broker.handlers.areas import Changes, Cluster, Configs, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.controller.decision import Charge
    from aiokq.broker.metadata.publisher.topics import Topic
    from aiokq.broker.replica.partition import Partition

NEVER_STRICT: Final = 2**15
"""A number above all versions of Metadata, passed to `Call.mutations` as `strict_since`.

So the client's quota of partitions never refuses an automatic creation; it only throttles the
client.
"""


class _View(NamedTuple):
    """The properties of a request on which the description of each topic depends.

    Attributes:
        node_ids: nodes that advertise the listener that the client connected to.
        no_listener: error code of a partition whose leader is not one of `node_ids`.
        operations: returns the bit field of the client's authorized operations on a topic.
        only_reachable: whether replicas that are not in `node_ids` are left out if the leader is
            not in `node_ids`.
    """

    node_ids: frozenset[int]
    no_listener: int
    operations: Callable[[str], int]
    only_reachable: bool


async def handle(
    topics: Topics,
    changes: Changes,
    cluster: Cluster,
    configs: Configs,
    request: MetadataRequest,
    call: Call,
) -> MetadataResponse:
    """Describe the requested topics, or all topics."""
    version, pace = call.version, call.pace
    brokers = cluster.brokers(call.connection.listener)
    tell_operations = version >= 8 and request.include_topic_authorized_operations

    def operations(name: str) -> int:
        if not tell_operations:
            return OPERATIONS_NOT_REQUESTED
        return call.operations(ResourceType.TOPIC, name)

    view = _View(
        frozenset(broker.node_id for broker in brokers),
        ListenerNotFound.code if version >= 6 else LeaderNotAvailable.code,
        operations,
        version == 0,
    )
    throttle_ms = 0
    if request.topics is None or (version == 0 and not request.topics):
        every = topics.sorted()
        names = [topic.name for topic in every]
        permitted = await call.permitted_of_many(Operation.DESCRIBE, ResourceType.TOPIC, names)
        if tell_operations:
            await call.settle_operations(ResourceType.TOPIC, permitted)
        described = []
        for topic in every:
            if topic.name in permitted:
                described.append(_describe(topic, view))
                if pace.spend(1 + len(topic.partitions)):
                    await pace.next()
    else:
        described = []
        quota = call.mutations(strict_since=NEVER_STRICT)
        charge = None if quota is None else quota.charge
        for asked in _distinct(request.topics):
            described.append(
                await _answer(topics, changes, configs, call, asked, request, view, charge)
            )
            if pace.spend(1 + len(described[-1].partitions)):
                await pace.next()
        if quota is not None:
            throttle_ms = quota.throttle_ms
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.node_id,
        topics=described,
        throttle_time_ms=throttle_ms,
    )
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        allowed = call.permits(Operation.DESCRIBE, ResourceType.CLUSTER)
        response.cluster_authorized_operations = (
            call.operations(ResourceType.CLUSTER) if allowed else 0
        )
    return response


def _distinct(asked: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    return list({(topic.name, topic.topic_id): topic for topic in asked}.values())


async def _answer(
    topics: Topics,
    changes: Changes,
    configs: Configs,
    call: Call,
    asked: MetadataRequestTopic,
    request: MetadataRequest,
    view: _View,
    charge: Charge | None,
) -> MetadataResponseTopic:
    version = call.version
    # Java clients send an empty name, not null, along with an id.
    if asked.name is None or (version >= 12 and asked.topic_id != ZERO_UUID):
        if version < 12 or asked.topic_id == ZERO_UUID:
            return _refusal("" if version < 12 else None, asked.topic_id, InvalidRequest.code)
        topic = topics.by_id(asked.topic_id)
        if topic is None:
            return _refusal(None, asked.topic_id, UnknownTopicId.code)
        try:
            call.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        except BrokerError as error:
            return _refusal(None, asked.topic_id, error.code)
        return _describe(topic, view)
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.TOPIC, asked.name)
    except BrokerError as error:
        return _refusal(asked.name, ZERO_UUID, error.code)
    topic = topics.get(asked.name)
    if topic is None:
        is_internal = asked.name in INTERNAL_TOPICS
        allowed = configs.settings.auto_create_topics_enable and (
            version < 4 or request.allow_auto_topic_creation
        )
        try:
            if allowed and not call.permits(Operation.CREATE, ResourceType.CLUSTER):
                call.authorize(Operation.CREATE, ResourceType.TOPIC, asked.name)
        except BrokerError as error:
            return _refusal(asked.name, ZERO_UUID, error.code, is_internal=is_internal)
        operations = view.operations(asked.name)
        try:
            await changes.create_topic_if_allowed(asked.name, allowed=allowed, charge=charge)
        except BrokerError as error:
            return _refusal(asked.name, ZERO_UUID, error.code, operations, is_internal=is_internal)
        topic = topics.get(asked.name)
        if topic is None:
            return _refusal(
                asked.name,
                ZERO_UUID,
                UnknownTopicOrPartition.code,
                operations,
                is_internal=is_internal,
            )
    return _describe(topic, view)


def _refusal(
    name: str | None,
    topic_id: uuid.UUID,
    code: int,
    operations: int = OPERATIONS_NOT_REQUESTED,
    *,
    is_internal: bool = False,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal,
        topic_authorized_operations=operations,
    )


def _describe(topic: Topic, view: _View) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_describe_partition(partition, view) for partition in topic.partitions],
        topic_authorized_operations=view.operations(topic.name),
    )


def _describe_partition(partition: Partition, view: _View) -> MetadataResponsePartition:
    described = MetadataResponsePartition(
        # Kafka also describes a partition without a leader in this way.
        error_code=LeaderNotAvailable.code if partition.leader < 0 else 0,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=list(partition.offline_replicas),
    )
    if partition.is_online and partition.leader not in view.node_ids:
        described.error_code = view.no_listener
        described.leader_id = NO_LEADER
        described.offline_replicas = [n for n in partition.replicas if n not in view.node_ids]
        if view.only_reachable:
            described.replica_nodes = [n for n in partition.replicas if n in view.node_ids]
            described.isr_nodes = [n for n in partition.isr if n in view.node_ids]
    return described
