"""The image of Apache Kafka's cluster metadata: topics, settings, producer ids.

Records are replayed in order; ``metadata_files`` reads them, ``takeover`` uses the image. Records
of other types are ignored. Ignored SCRAM credentials, quotas, ACLs and delegation tokens are
counted, because this broker does not enforce them.

Source: Kafka ``MetadataDelta.java``, ``MetadataBatchLoader.java``.
Tests: ``tests/unit/broker/kraft/test_metadata_image.py``.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiokq.broker.metadata.record_codec import UnknownMetadataRecord, decode_metadata_record
from aiokq.broker.metadata.records import BROKER_CONFIG, GROUP_CONFIG, TOPIC_CONFIG
from aiokq.core.errors import CorruptRecord
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import Buffer
from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from aiokq.wire.struct import Message

__all__ = ["KafkaMetadata", "KafkaPartition", "KafkaTopic"]

RESERVED_IDS: Final = 100

NO_LEADER: Final = -1
NO_CHANGE: Final = -2
"""The leader in a ``PartitionChangeRecord`` that leaves the leader unchanged."""

_APPLIED: Final = frozenset(
    kind.RECORD_TYPE
    for kind in (
        AbortTransactionRecord,
        BeginTransactionRecord,
        ConfigRecord,
        EndTransactionRecord,
        FeatureLevelRecord,
        PartitionChangeRecord,
        PartitionRecord,
        ProducerIdsRecord,
        RemoveTopicRecord,
        TopicRecord,
    )
)
"""Types of records that the image is made of."""

_LEFT_OUT: Final = {10: "delegation tokens", 11: "SCRAM credentials", 14: "quotas", 18: "ACLs"}
"""Types of ignored records whose content this broker does not enforce."""

_TAKEN_BACK: Final = {19: "ACLs", 22: "SCRAM credentials", 26: "delegation tokens"}

Unknown: TypeAlias = int
"""The type of a record that a newer Kafka wrote and that is ignored."""


class KafkaPartition(NamedTuple):
    """A partition of a topic.

    Attributes:
        replicas: node ids, in order of preference.
        leader: node id; -1 without a leader.
        leader_epoch: grows with each change of the leader, including a change to no leader.
        directories: id of the log directory of each replica; empty before Kafka 3.7.
    """

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[uuid.UUID, ...] = ()

    def directory_of(self, node_id: int) -> uuid.UUID | None:
        """Return the id of the directory that has a node's replica; None if unknown.

        Source: Kafka's ``DirectoryId``; ids below 100 are reserved, and stand for states.
        """
        if len(self.directories) != len(self.replicas) or node_id not in self.replicas:
            return None
        found = self.directories[self.replicas.index(node_id)]
        return found if found.int >= RESERVED_IDS else None

    @property
    def next_epoch(self) -> int:
        """The leader epoch in which the node will lead the partition again.

        A node that was killed is still the leader in the metadata, and keeps its epoch.
        """
        return self.leader_epoch + (self.leader == NO_LEADER)


@dataclass(slots=True)
class KafkaTopic:
    """A topic with its partitions, by number."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)


class KafkaMetadata:
    """The metadata of a cluster after the records that were replayed so far.

    Attributes:
        topics: topics by name.
        configs: settings by type and name of their resource; the name "" stands for the default of
            all resources of the type.
        features: feature levels by name.
        next_producer_id: the first id of the next block.
        left_out: number of ignored records that this broker does not enforce, less the ignored
            records that remove such a record, by kind.
        end_offset: the offset after the last record.
        epoch: epoch of the controller that wrote the last record.
    """

    def __init__(self) -> None:
        self.topics: dict[str, KafkaTopic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.left_out: Counter[str] = Counter()
        self.end_offset = 0
        self.epoch = 0
        self._by_id: dict[uuid.UUID, KafkaTopic] = {}
        self._transaction: list[Message | Unknown] | None = None

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the settings of a topic."""
        return self.configs.get((TOPIC_CONFIG, name), {})

    def broker_configs(self, node_id: int) -> Mapping[str, str]:
        """Return the dynamic settings of a node: the cluster-wide ones, overridden by its own."""
        everywhere = self.configs.get((BROKER_CONFIG, ""), {})
        return {**everywhere, **self.configs.get((BROKER_CONFIG, str(node_id)), {})}

    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of groups, by group id."""
        return {name: given for (kind, name), given in self.configs.items() if kind == GROUP_CONFIG}

    def replay(self, value: Buffer | None) -> None:
        """Replay one record. The records of a transaction are applied together when it ends.

        Raises:
            CorruptRecord: the value is not a metadata record, or contradicts earlier records.
            UnknownMetadataRecord: the version of a record that is not ignored is unknown.
        """
        record: Message | Unknown
        try:
            record = decode_metadata_record(value)
        except UnknownMetadataRecord as error:
            if error.record_type in _APPLIED:
                raise
            record = error.record_type
        match record:
            case BeginTransactionRecord():
                self._transaction = []
            case AbortTransactionRecord():
                self._transaction = None
            case EndTransactionRecord():
                pending, self._transaction = self._transaction or [], None
                for one in pending:
                    self._apply(one)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)

    def _apply(self, record: Message | Unknown) -> None:
        match record:
            case TopicRecord():
                topic = KafkaTopic(record.name, record.topic_id)
                self.topics[record.name] = self._by_id[record.topic_id] = topic
            case RemoveTopicRecord():
                topic = self._topic(record.topic_id)
                del self.topics[topic.name], self._by_id[record.topic_id]
                self.configs.pop((TOPIC_CONFIG, topic.name), None)
            case PartitionRecord():
                partitions = self._topic(record.topic_id).partitions
                replicas = tuple(record.replicas)
                partitions[record.partition_id] = KafkaPartition(
                    replicas, record.leader, record.leader_epoch, tuple(record.directories)
                )
            case PartitionChangeRecord():
                self._change(record)
            case ConfigRecord():
                resource = (record.resource_type, record.resource_name)
                if record.value is None:
                    self.configs.get(resource, {}).pop(record.name, None)
                else:
                    self.configs.setdefault(resource, {})[record.name] = record.value
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case _:
                kind = record if isinstance(record, int) else record.RECORD_TYPE
                if kind in _LEFT_OUT:
                    self.left_out[_LEFT_OUT[kind]] += 1
                elif kind in _TAKEN_BACK:
                    self.left_out[_TAKEN_BACK[kind]] -= 1

    def _change(self, record: PartitionChangeRecord) -> None:
        partitions = self._topic(record.topic_id).partitions
        known = partitions.get(record.partition_id)
        if known is None:
            raise CorruptRecord(
                f"change of partition {record.partition_id}, which was never created"
            )
        if record.replicas is not None:
            known = known._replace(replicas=tuple(record.replicas))
        if record.directories is not None:
            known = known._replace(directories=tuple(record.directories))
        if record.leader != NO_CHANGE:
            known = known._replace(leader=record.leader, leader_epoch=known.leader_epoch + 1)
        partitions[record.partition_id] = known

    def _topic(self, topic_id: uuid.UUID) -> KafkaTopic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise CorruptRecord(f"record of topic {topic_id}, which was never created")
        return topic
