"""Immutable metadata snapshots (brokers, topics, partitions), which the reducer creates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from aiokq.core.errors import BrokerError, error_for
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["NO_LEADER", "BrokerInfo", "ClusterMetadata", "PartitionInfo", "TopicInfo"]

NO_LEADER = -1
"""The ``leader`` of a partition without a leader."""

ZERO_ID = UUID(int=0)
"""The topic id if the broker has no topic ids (KIP-516, Metadata below version 10)."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def frozen_map(values: Mapping[_K, _V] | Iterable[tuple[_K, _V]] = ()) -> Mapping[_K, _V]:
    """Return a read-only mapping over a copy of ``values``."""
    return MappingProxyType(dict(values))


def thawed(values: Mapping[_K, _V]) -> dict[_K, _V]:
    """Return a mutable copy of a mapping, faster than `dict()` for read-only mappings."""
    return values.copy() if isinstance(values, MappingProxyType) else dict(values)


@frozen
class BrokerInfo:
    """One broker as the cluster advertises it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """``host:port``, with an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@frozen
class PartitionInfo:
    """One partition: its leader and replicas, as node ids."""

    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = -1
    """Increases with each election; -1 if the broker does not report it (before Metadata 7)."""
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@frozen
class TopicInfo:
    """One topic and its partitions, by partition number."""

    name: str
    topic_id: UUID = ZERO_ID
    """All zeros if the broker has no topic ids."""
    internal: bool = False
    partitions: Mapping[int, PartitionInfo] = field(default_factory=frozen_map)
    error_code: int = 0
    """The error code of the topic in the latest response, 0 if none."""

    @property
    def error(self) -> BrokerError | None:
        """The error of the topic in the latest response, or None."""
        if not self.error_code:
            return None
        return error_for(self.error_code, topic_partition=self.name, api="Metadata")

    @property
    def leaderless(self) -> tuple[int, ...]:
        """The partitions without a leader."""
        return tuple(p.partition for p in self.partitions.values() if p.leader < 0)


@frozen
class ClusterMetadata:
    """An immutable snapshot of the cluster's metadata.

    ``topics`` has only topics that were requested and exist; the cluster may have more topics.
    """

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = field(default_factory=frozen_map)
    topics: Mapping[str, TopicInfo] = field(default_factory=frozen_map)
    topic_errors: Mapping[str, int] = field(default_factory=frozen_map)
    """The error code of the latest response for each requested topic that cannot be used."""
    topic_names: Mapping[UUID, str] = field(default_factory=frozen_map)
    """Topic names by id, for the topics in ``topics`` that have an id."""

    def topic(self, name: str) -> TopicInfo | None:
        """Return the topic with this name, or None if it is not known."""
        return self.topics.get(name)

    def topic_id(self, name: str) -> UUID:
        """Return the id of the topic with this name; zeros if the topic or its id is not known."""
        topic = self.topics.get(name)
        return ZERO_ID if topic is None else topic.topic_id

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        """Return the topic with this id, or None if it is not known."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return the partition, or None if it is not known."""
        topic = self.topics.get(tp[0])
        return None if topic is None else topic.partitions.get(tp[1])

    def leader(self, tp: TopicPartition) -> int:
        """Return the node id of the partition's leader; -1 if no leader is known."""
        info = self.partition(tp)
        return NO_LEADER if info is None else info.leader

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the partition's leader epoch; -1 if it is not known."""
        info = self.partition(tp)
        return -1 if info is None else info.leader_epoch
