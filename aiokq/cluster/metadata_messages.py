"""Builds Metadata requests, and converts Metadata responses to inputs of the reducer."""

from __future__ import annotations

from aiokq.cluster.metadata import BrokerInfo, PartitionInfo, TopicInfo, frozen_map
from aiokq.cluster.reducer_inputs import MetadataReceived
from aiokq.core.errors import raise_for
from aiokq.wire.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

__all__ = ["metadata_received", "metadata_request"]


def metadata_request(
    topics: frozenset[str] | None, *, create: bool, version: int
) -> MetadataRequest:
    """Return the request for topics, or for all topics if `topics` is None.

    A request below version 4 cannot forbid the creation of topics.
    """
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(
        topics=named, allow_auto_topic_creation=(create and bool(topics)) or version < 4
    )


def metadata_received(response: MetadataResponse, *, complete: bool = False) -> MetadataReceived:
    """Return the response as an input of the reducer.

    Args:
        complete: whether all topics of the cluster were requested.

    Raises:
        BrokerError: the broker refused the whole request (from version 13 on).
    """
    raise_for(response.error_code, api="Metadata")
    return MetadataReceived(
        brokers=tuple(BrokerInfo(b.node_id, b.host, b.port, b.rack) for b in response.brokers),
        topics=tuple(_topic(topic, topic.name) for topic in response.topics if topic.name),
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        complete=complete,
    )


def _topic(topic: MetadataResponseTopic, name: str) -> TopicInfo:
    # Errors of partitions need not be kept: with LEADER_NOT_AVAILABLE and LISTENER_NOT_FOUND the
    # leader is -1, and REPLICA_NOT_AVAILABLE, which old brokers send, does not matter to a client.
    return TopicInfo(
        name=name,
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=frozen_map(
            (
                p.partition_index,
                PartitionInfo(
                    partition=p.partition_index,
                    leader=p.leader_id,
                    leader_epoch=p.leader_epoch,
                    replicas=tuple(p.replica_nodes),
                    isr=tuple(p.isr_nodes),
                    offline=tuple(p.offline_replicas),
                ),
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        ),
        error_code=topic.error_code,
    )
