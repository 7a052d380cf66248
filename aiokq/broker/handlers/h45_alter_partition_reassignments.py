"""AlterPartitionReassignments (45), versions 0-1: assign partitions to other brokers.

With one node a partition can be assigned only to the node that has it already, so a reassignment is
complete immediately.

Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
NO_REASSIGNMENT_IN_PROGRESS.

Errors of the request, repeated for each partition: CLUSTER_AUTHORIZATION_FAILED. KIP-455.

v1  whether the number of replicas may change (KIP-860); with one broker it cannot

Source: Kafka ``ReplicationControlManager.alterPartitionReassignments``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.metadata.controller.topic_layout import check_replicas
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, NoReassignmentInProgress, UnknownTopicOrPartition
from aiokq.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster, Topics
    from aiokq.broker.handlers.call import Call


async def handle(
    topics: Topics, cluster: Cluster, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    """Check the new replicas of each partition; the cluster has one node, so nothing is moved."""
    denial: BrokerError | None = None
    try:
        call.authorize(Operation.ALTER, ResourceType.CLUSTER)
    except BrokerError as error:
        denial = error
    # As in Kafka, a denial is the error of the request and again of each partition.
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0 if denial is None else denial.code,
        error_message=None if denial is None else denial.message,
    )
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        response.responses.append(answer)
        for asked in topic.partitions:
            answer.partitions.append(_alter(topics, cluster, topic.name, asked, denial))
            if call.pace.spend():
                await call.pace.next()
    return response


def _alter(
    topics: Topics,
    cluster: Cluster,
    name: str,
    asked: ReassignablePartition,
    denial: BrokerError | None,
) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=0, error_message=None
    )
    error = denial
    if error is None:
        try:
            _check(topics, cluster, name, asked)
        except BrokerError as refusal:
            error = refusal
    if error is not None:
        response.error_code, response.error_message = error.code, error.message
    return response


def _check(topics: Topics, cluster: Cluster, name: str, asked: ReassignablePartition) -> None:
    """Refuse an assignment that this partition cannot have.

    Raises:
        UnknownTopicOrPartition: the partition does not exist.
        NoReassignmentInProgress: the request cancels a reassignment, and none is in progress.
        InvalidReplicaAssignment: the list of replicas is empty, has this node's id twice, or has
            the id of another node.
    """
    topic = topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {name}.")
    if topic.partition(asked.partition_index) is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {name}:{asked.partition_index}.")
    if asked.replicas is None:
        raise NoReassignmentInProgress()
    check_replicas(asked.replicas, cluster.node_id)
