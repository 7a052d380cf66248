"""Description of the metadata quorum: leader, voters and observers of Kafka's metadata log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from aiokq.admin.retrying import repeated
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata import frozen_map
from aiokq.cluster.targets import ANY
from aiokq.core.errors import ProtocolError, raise_for
from aiokq.core.frozen import frozen
from aiokq.wire.describe_quorum import (
    DescribeQuorumPartitionData,
    DescribeQuorumReplicaState,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumTopicData,
)

__all__ = [
    "QuorumInfo",
    "QuorumNode",
    "QuorumReplicaState",
    "RaftVoterEndpoint",
    "describe_metadata_quorum",
]

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0

_NO_DIRECTORY: Final = UUID(int=0)


@frozen
class RaftVoterEndpoint:
    """A controller listener of a voter, with the address at which other nodes reach the voter."""

    listener: str
    host: str
    port: int


@frozen
class QuorumNode:
    """A controller and its endpoints."""

    node_id: int
    endpoints: tuple[RaftVoterEndpoint, ...]


@frozen
class QuorumReplicaState:
    """The state of a replica of the metadata log, as reported by the leader of the quorum.

    Attributes:
        replica_directory_id: id of the directory with the replica's log; None if unknown, as with
            `kraft.version` 0, or if the broker is older than 3.9.
        log_end_offset: end of the replica's log; -1 if unknown.
        last_fetch_timestamp_ms: time by the leader's clock when the replica last fetched, in
            milliseconds since 1970; for the leader the current time; None if unknown.
        last_caught_up_timestamp_ms: latest time at which the replica had all records of the leader,
            in milliseconds since 1970; for the leader the current time; None if unknown.
    """

    replica_id: int
    replica_directory_id: UUID | None
    log_end_offset: int
    last_fetch_timestamp_ms: int | None = None
    last_caught_up_timestamp_ms: int | None = None


@frozen
class QuorumInfo:
    """The quorum of controllers, which replicates Kafka's metadata log.

    Attributes:
        leader_id: the active controller; -1 if the quorum has no leader.
        high_watermark: the offset below which all records are committed.
        voters: controllers that elect the leader.
        observers: brokers that replicate the log, and controllers that are not voters.
        nodes: endpoints of the voters by node id; empty if the broker is older than 3.9.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]
    nodes: Mapping[int, QuorumNode]


async def describe_metadata_quorum(engine: ClusterEngine, *, timeout: float | None) -> QuorumInfo:
    """Implement `Admin.describe_metadata_quorum`."""
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[DescribeQuorumPartitionData(partition_index=METADATA_PARTITION)],
            )
        ]
    )

    async def ask(remaining: float) -> QuorumInfo:
        response = await engine.request(request, node=ANY, timeout=remaining)
        raise_for(response.error_code, response.error_message, api="DescribeQuorum")
        partition = _partition(response)
        raise_for(partition.error_code, partition.error_message, api="DescribeQuorum")
        return QuorumInfo(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            _replicas(partition.current_voters),
            _replicas(partition.observers),
            frozen_map(
                (
                    node.node_id,
                    QuorumNode(
                        node.node_id,
                        tuple(RaftVoterEndpoint(e.name, e.host, e.port) for e in node.listeners),
                    ),
                )
                for node in sorted(response.nodes, key=lambda node: node.node_id)
            ),
        )

    return await repeated(engine, ask, api="DescribeQuorum", timeout=timeout)


def _partition(response: DescribeQuorumResponse) -> DescribeQuorumResponsePartitionData:
    for topic in response.topics:
        for partition in topic.partitions:
            if (topic.topic_name, partition.partition_index) == (
                METADATA_TOPIC,
                METADATA_PARTITION,
            ):
                return partition
    raise ProtocolError("the response does not have the metadata log", api="DescribeQuorum")


def _replicas(states: Iterable[DescribeQuorumReplicaState]) -> tuple[QuorumReplicaState, ...]:
    return tuple(
        QuorumReplicaState(
            state.replica_id,
            None if state.replica_directory_id == _NO_DIRECTORY else state.replica_directory_id,
            state.log_end_offset,
            _time(state.last_fetch_timestamp),
            _time(state.last_caught_up_timestamp),
        )
        for state in sorted(states, key=lambda state: state.replica_id)
    )


def _time(timestamp_ms: int) -> int | None:
    return None if timestamp_ms < 0 else timestamp_ms
