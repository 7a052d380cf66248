"""The inputs of the reducer: plain values, without wire classes or connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from aiokq.cluster.metadata import BrokerInfo, TopicInfo
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = [
    "ConnectionLostTo",
    "EndpointsLearned",
    "Input",
    "LeaderHint",
    "LeaderVerified",
    "MetadataReceived",
    "NodeReached",
    "PartitionErrored",
    "PartitionServed",
    "TopicsForgotten",
]


@frozen
class LeaderHint:
    """The new leader, as named by the former leader in a Produce or Fetch response (KIP-951).

    ``broker`` is the leader's entry in ``node_endpoints``, if there was one.
    """

    leader: int
    leader_epoch: int
    broker: BrokerInfo | None = None


@frozen
class MetadataReceived:
    """A Metadata response. A topic with an ``error_code`` and no partitions cannot be used."""

    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]
    cluster_id: str | None = None
    controller_id: int = -1
    complete: bool = False
    """Whether all topics were requested, so that a topic not in the response does not exist."""


@frozen
class EndpointsLearned:
    """Addresses of brokers from a response other than Metadata (KIP-951, FindCoordinator)."""

    brokers: tuple[BrokerInfo, ...]


@frozen
class ConnectionLostTo:
    """A connection to a broker was lost, or could not be opened."""

    node_id: int
    reason: str


@frozen
class NodeReached:
    """A connection to a broker was opened, or the broker answered a request."""

    node_id: int


@frozen
class PartitionErrored:
    """A request about one partition failed; the request was sent in ``leader_epoch``."""

    topic_partition: TopicPartition
    error: str
    leader_epoch: int = -1
    hint: LeaderHint | None = None


@frozen
class PartitionServed:
    """A request about one partition succeeded."""

    topic_partition: TopicPartition


@frozen
class LeaderVerified:
    """A broker has confirmed that it leads partitions, in these leader epochs."""

    leader: int
    leader_epochs: Mapping[TopicPartition, int]


@frozen
class TopicsForgotten:
    """Topics that are no longer in use. The reducer emits no event for this input."""

    topics: frozenset[str]


Input: TypeAlias = (
    MetadataReceived
    | EndpointsLearned
    | ConnectionLostTo
    | NodeReached
    | PartitionErrored
    | PartitionServed
    | LeaderVerified
    | TopicsForgotten
)
