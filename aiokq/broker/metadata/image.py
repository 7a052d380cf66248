"""The metadata image: the state after all metadata records, and the changes of one append.

Replaying a record changes only the image; `publisher` applies the change to the node.

Source: Kafka ``MetadataImage.java``, ``MetadataDelta.java``.
Tests: ``tests/unit/broker/metadata/test_image.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from aiokq.broker.metadata.records import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    TOPIC_CONFIG,
    AppendsCounted,
    DirectoriesKnown,
    KafkaTakenOver,
    MetadataRecord,
    StartedUnclean,
    TopicTakenOver,
    config_records,
)
from aiokq.core.errors import CorruptRecord
from aiokq.core.frozen import frozen
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

__all__ = ["MetadataDelta", "MetadataImage", "PartitionImage", "TopicImage", "TopicState"]

NO_BROKER: Final = -1
NO_LEADER_CHANGE: Final = -2

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class PartitionImage(NamedTuple):
    """The replicas, leader and leader epoch of a partition.

    Attributes:
        replicas: node ids, in order of preference.
        isr: node ids of the in-sync replicas.
        leader: node id of the leader, or -1.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


class TopicImage:
    """A topic, without its settings, which are in ``MetadataImage.configs``.

    Attributes:
        partitions: the partitions, in the order of their numbers.
        elsewhere, kafka_epochs: see `TopicTakenOver`.
    """

    __slots__ = ("elsewhere", "kafka_epochs", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[PartitionImage] = []
        self.elsewhere: tuple[int, ...] = ()
        self.kafka_epochs: tuple[int, ...] = ()


class MetadataImage:
    """The metadata of the cluster after the records that were replayed.

    Attributes:
        topics: topics by name.
        topics_by_id: the same topics by topic id.
        configs: settings by type and name of their resource; the name "" stands for the default of
            all resources of the type. Resources without settings are left out.
        next_producer_id: the first id that was never reserved.
        unclean_starts: see `StartedUnclean`.
        kafka: the metadata of Apache Kafka that was taken over; None if there was none.
        directories: the path of each log directory of the node, by directory.id; empty if the node
            never had more than one.
        appends: number of appends since the log was created.
    """

    __slots__ = (
        "appends",
        "configs",
        "directories",
        "kafka",
        "next_producer_id",
        "topics",
        "topics_by_id",
        "unclean_starts",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[uuid.UUID, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.next_producer_id = 0
        self.unclean_starts = 0
        self.kafka: KafkaTakenOver | None = None
        self.directories: Mapping[str, str] = {}
        self.appends = 0

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the settings of a topic."""
        return self.configs.get((TOPIC_CONFIG, name), _NONE)

    def group_configs(self) -> dict[str, Mapping[str, str]]:
        """Return the settings of the groups that have any, by group id."""
        return {name: given for (kind, name), given in self.configs.items() if kind == GROUP_CONFIG}

    def cluster_configs(self) -> Mapping[str, str]:
        """Return the settings that apply to all brokers."""
        return self.configs.get((BROKER_CONFIG, ""), _NONE)

    def copy(self) -> MetadataImage:
        """Return an independent copy of the image."""
        image = MetadataImage()
        for record in self.records():
            image.replay(record)
        return image

    def replay_append(self, records: Iterable[MetadataRecord]) -> None:
        """Replay the records of one append."""
        self.appends += 1
        for record in records:
            self.replay(record)

    def replay(self, record: MetadataRecord) -> None:
        """Replay one record.

        Raises:
            CorruptRecord: the record contradicts earlier records, or its type is not supported.
        """
        match record:
            case PartitionRecord():
                self._replay_partition(record)
            case PartitionChangeRecord():
                self._replay_partition_change(record)
            case TopicRecord():
                topic = TopicImage(record.name, record.topic_id)
                self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
            case RemoveTopicRecord():
                topic = self._topic(record.topic_id)
                del self.topics[topic.name], self.topics_by_id[topic.topic_id]
                self.configs.pop((TOPIC_CONFIG, topic.name), None)
                if len(self.topics) > len(self.topics_by_id):  # two topics have one id
                    self.topics_by_id = {each.topic_id: each for each in self.topics.values()}
            case ConfigRecord():
                self._replay_config(record)
            case ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case TopicTakenOver(topic_id, elsewhere, kafka_epochs):
                topic = self._topic(topic_id)
                topic.elsewhere, topic.kafka_epochs = elsewhere, kafka_epochs
            case StartedUnclean(unclean_starts):
                self.unclean_starts = max(self.unclean_starts, unclean_starts)
            case KafkaTakenOver():
                self.kafka = record
            case DirectoriesKnown(directories):
                self.directories = directories
            case AppendsCounted(appends):
                self.appends = appends
            case _:
                raise CorruptRecord(f"unexpected {type(record).__name__}")

    def _replay_partition(self, record: PartitionRecord) -> None:
        partitions = self._topic(record.topic_id).partitions
        partition = PartitionImage(
            tuple(record.replicas), tuple(record.isr), record.leader, record.leader_epoch
        )
        if record.partition_id == len(partitions):
            # Most partitions of a topic have equal images. Sharing one object among them saves work
            # for the garbage collector.
            alike = partitions and partitions[-1] == partition
            partitions.append(partitions[-1] if alike else partition)
        elif 0 <= record.partition_id < len(partitions):
            partitions[record.partition_id] = partition
        else:
            raise CorruptRecord(
                f"record of partition {record.partition_id}, but the topic has only "
                f"{len(partitions)} partitions"
            )

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Apply the fields that the record sets.

        Source: Kafka's `PartitionRegistration.merge`.
        """
        partitions = self._topic(record.topic_id).partitions
        if not 0 <= record.partition_id < len(partitions):
            raise CorruptRecord(f"change of partition {record.partition_id}, which does not exist")
        known = partitions[record.partition_id]
        changes = record.leader != NO_LEADER_CHANGE
        partitions[record.partition_id] = PartitionImage(
            known.replicas if record.replicas is None else tuple(record.replicas),
            known.isr if record.isr is None else tuple(record.isr),
            record.leader if changes else known.leader,
            known.leader_epoch + changes,
        )

    def _replay_config(self, record: ConfigRecord) -> None:
        resource = record.resource_type, record.resource_name
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        configs = self.configs.get(resource, {})
        configs.pop(record.name, None)
        if not configs:
            self.configs.pop(resource, None)

    def _topic(self, topic_id: uuid.UUID) -> TopicImage:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise CorruptRecord(f"record of topic {topic_id}, which does not exist")
        return topic

    def records(self) -> Iterator[MetadataRecord]:
        """Yield the smallest sequence of records whose replay gives this image."""
        if self.next_producer_id:
            yield ProducerIdsRecord(broker_id=NO_BROKER, next_producer_id=self.next_producer_id)
        if self.unclean_starts:
            yield StartedUnclean(self.unclean_starts)
        if self.kafka is not None:
            yield self.kafka
        if self.directories:
            yield DirectoriesKnown(self.directories)
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, partition in enumerate(topic.partitions):
                yield PartitionRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    replicas=list(partition.replicas),
                    isr=list(partition.isr),
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=0,
                )
            if topic.elsewhere or topic.kafka_epochs:
                yield TopicTakenOver(topic.topic_id, topic.elsewhere, topic.kafka_epochs)
        for (kind, name), configs in self.configs.items():
            yield from config_records(kind, name, {}, configs)
        yield AppendsCounted(self.appends)


@frozen
class TopicState:
    """An immutable copy of a topic after an append."""

    name: str
    topic_id: uuid.UUID
    partitions: Sequence[PartitionImage]
    configs: Mapping[str, str]
    elsewhere: tuple[int, ...]
    kafka_epochs: tuple[int, ...]

    @classmethod
    def of(cls, topic: TopicImage, image: MetadataImage) -> TopicState:
        """Return the current state of a topic of ``image``."""
        return cls(
            topic.name,
            topic.topic_id,
            tuple(topic.partitions),
            dict(image.topic_configs(topic.name)),
            topic.elsewhere,
            topic.kafka_epochs,
        )


class MetadataDelta(NamedTuple):
    """The changes made by the records of one append.

    Attributes:
        deleted: ids of deleted topics.
        topics: new and changed topics, in their state after the append.
        groups: all settings of each group whose settings changed, by group id.
    """

    deleted: Sequence[uuid.UUID]
    topics: Sequence[TopicState]
    groups: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, records: Iterable[MetadataRecord], image: MetadataImage) -> MetadataDelta:
        """Return the changes made by ``records``; ``image`` is the image after their replay."""
        deleted: list[uuid.UUID] = []
        changed: dict[uuid.UUID, None] = {}
        groups: dict[str, Mapping[str, str]] = {}
        for record in records:
            match record:
                case PartitionRecord() | PartitionChangeRecord() | TopicRecord() | TopicTakenOver():
                    changed[record.topic_id] = None
                case RemoveTopicRecord():
                    deleted.append(record.topic_id)
                case ConfigRecord(resource_type=kind, resource_name=name):
                    if kind == TOPIC_CONFIG and name in image.topics:
                        changed[image.topics[name].topic_id] = None
                    elif kind == GROUP_CONFIG:
                        groups[name] = dict(image.configs.get((kind, name), _NONE))
        return cls(
            deleted,
            [
                TopicState.of(image.topics_by_id[topic_id], image)
                for topic_id in changed
                if topic_id in image.topics_by_id
            ],
            groups,
        )

    @property
    def is_empty(self) -> bool:
        """Whether the publisher has nothing to do."""
        return not (self.deleted or self.topics or self.groups)
