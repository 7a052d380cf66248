"""DescribeQuorum (55), versions 0-2: describe the quorum of the metadata log.

The node is the only voter, and there are no observers. The response has the current time as the
time of the node's last fetch, because the node is the leader. Kafka does the same.

Errors: CLUSTER_AUTHORIZATION_FAILED. Error of a partition: UNKNOWN_TOPIC_OR_PARTITION (the request
names another partition, or several). KIP-595, KIP-836, KIP-853.

v1  times of the last fetch   v2  directory ids, listeners, and error messages

Source: Kafka ``KafkaRaftClient.handleDescribeQuorumRequest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, UnknownTopicOrPartition
from aiokq.wire.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumReplicaState,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Host, Quorum
    from aiokq.broker.handlers.call import Call

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0
FIRST_WITH_DIRECTORIES: Final = 2


async def handle(
    quorum: Quorum, host: Host, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    """Return leader, epoch and voters of the metadata log."""
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
    except BrokerError as error:
        return DescribeQuorumResponse(
            error_code=error.code, error_message=error.message, topics=[], nodes=[]
        )
    if not _names_the_metadata_log(request):
        return _unknown(request)
    found = quorum.describe()
    voter = DescribeQuorumReplicaState(
        replica_id=found.node_id,
        log_end_offset=found.end_offset,
        last_fetch_timestamp=host.clock.timestamp_ms(),
        last_caught_up_timestamp=host.clock.timestamp_ms(),
    )
    response = DescribeQuorumResponse(
        error_code=0,
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        partition_index=METADATA_PARTITION,
                        error_code=0,
                        leader_id=found.node_id,
                        leader_epoch=found.epoch,
                        high_watermark=found.high_watermark,
                        current_voters=[voter],
                        observers=[],
                    )
                ],
            )
        ],
        nodes=[],
    )
    if call.version >= FIRST_WITH_DIRECTORIES:
        voter.replica_directory_id = found.directory_id
        response.nodes = [
            DescribeQuorumNode(
                node_id=found.node_id,
                listeners=[
                    DescribeQuorumListener(name=one.name, host=one.host, port=one.port)
                    for one in found.listeners
                ],
            )
        ]
    return response


def _names_the_metadata_log(request: DescribeQuorumRequest) -> bool:
    """Whether a request names the only partition of the metadata log, and nothing else."""
    named = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return len(request.topics) == 1 and named == [(METADATA_TOPIC, METADATA_PARTITION)]


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Return UNKNOWN_TOPIC_OR_PARTITION for each partition of a request."""
    code = UnknownTopicOrPartition.code
    return DescribeQuorumResponse(
        error_code=0,
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=UnknownTopicOrPartition().message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[],
    )
