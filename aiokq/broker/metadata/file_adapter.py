"""Translation between metadata records and the records of the metadata file, here called lines.

A line contains everything about a topic or a group. Several metadata records of one append about
the same topic therefore become one line, and replaying a line changes only what differs from the
image. The partitions of a topic are replayed without a record per partition, because these would be
thousands of records at a start.

Tests: ``tests/unit/broker/metadata/test_file_adapter.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping

from aiokq.broker.metadata.file_records import (
    FileRecord,
    GroupLine,
    ProducerIdsLine,
    SettingLine,
    TopicDeletedLine,
    TopicLine,
)
from aiokq.broker.metadata.image import MetadataImage
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
from aiokq.broker.metadata.topic_image import PartitionImage, TopicImage
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

__all__ = ["file_records", "file_records_of_image", "replay_line"]


def file_records(records: Iterable[MetadataRecord], image: MetadataImage) -> list[FileRecord]:
    """Return the records of the file that are equivalent to the metadata records of one append.

    Args:
        image: the image before the append.

    Raises:
        ValueError: the file cannot represent one of the records, or two topics have the same id.
    """
    lines = _Lines(image)
    for record in records:
        lines.add(record)
    return lines.complete()


class _Lines:
    """The records of the file for one append.

    Attributes:
        found: the records, by resource, in the order in which resources first occur.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.found: dict[object, FileRecord] = {}
        self._image = image
        self._created: dict[str, uuid.UUID] = {}
        self._counts: dict[uuid.UUID, int] = {}

    def complete(self) -> list[FileRecord]:
        """Return the records, with the new number of partitions in the record of each topic."""
        return [
            line._replace(partitions=max(line.partitions, self._counts.get(line.topic_id, 0)))
            if isinstance(line, TopicLine)
            else line
            for line in self.found.values()
        ]

    def add(self, record: MetadataRecord) -> None:
        """Add a metadata record."""
        match record:
            case TopicRecord(name=name, topic_id=topic_id):
                self._check_new(name, topic_id)
                self._created[name] = topic_id
                self.found[topic_id] = TopicLine(name, topic_id, 0)
            case PartitionRecord(topic_id=topic_id, partition_id=index):
                if len(record.replicas) != 1:
                    raise ValueError(
                        "the metadata file cannot represent a partition with several replicas"
                    )
                if topic_id not in self.found:
                    self.found[topic_id] = self._topic(topic_id)
                self._counts[topic_id] = max(self._counts.get(topic_id, 0), index + 1)
            case RemoveTopicRecord(topic_id=topic_id):
                topic = self._topic(topic_id)
                self.found["deleted", topic_id] = TopicDeletedLine(topic.name, topic_id)
                if self._created.pop(topic.name, None) is None:
                    self.found.pop(topic_id, None)
            case TopicTakenOver(topic_id, elsewhere, kafka_epochs):
                self.found[topic_id] = self._topic(topic_id)._replace(
                    elsewhere=elsewhere, kafka_epochs=kafka_epochs
                )
            case ConfigRecord():
                self._add_config(record)
            case ProducerIdsRecord(next_producer_id=next_producer_id):
                self._append(ProducerIdsLine(next_producer_id))
            case StartedUnclean() | KafkaTakenOver() | DirectoriesKnown() | AppendsCounted():
                self._append(record)
            case _:
                raise ValueError(f"the metadata file cannot represent {type(record).__name__}")

    def _check_new(self, name: str, topic_id: uuid.UUID) -> None:
        """Check that no other topic has the id, because the file identifies topics by their ids.

        Raises ValueError otherwise.
        """
        known = self.found.get(topic_id) or self.found.get(("deleted", topic_id))
        other = known or self._image.topics_by_id.get(topic_id)
        if isinstance(other, TopicLine | TopicDeletedLine | TopicImage):
            raise ValueError(
                f"topic {name!r} cannot be written: its id {topic_id} is also the id of topic "
                f"{other.name!r}"
            )

    def _append(self, record: FileRecord) -> None:
        self.found[len(self.found), type(record)] = record

    def _add_config(self, record: ConfigRecord) -> None:
        kind, name = record.resource_type, record.resource_name
        if kind == TOPIC_CONFIG:
            topic = self._topic(self._created.get(name) or self._image.topics[name].topic_id)
            configs = dict(topic.configs)
            _set(configs, record)
            self.found[topic.topic_id] = topic._replace(configs=configs)
        elif kind == GROUP_CONFIG:
            group = self.found.get(("group", name))
            present = (
                group.configs
                if isinstance(group, GroupLine)
                else self._image.configs.get((kind, name), {})
            )
            configs = dict(present)
            _set(configs, record)
            self.found["group", name] = GroupLine(name, configs)
        elif kind == BROKER_CONFIG and not name:
            self._append(SettingLine(record.name, record.value))
        else:
            raise ValueError(
                f"the metadata file cannot represent settings of resources of type {kind}"
            )

    def _topic(self, topic_id: uuid.UUID) -> TopicLine:
        known = self.found.get(topic_id)
        if isinstance(known, TopicLine):
            return known
        return _topic_line(self._image.topics_by_id[topic_id], self._image)


def _set(configs: dict[str, str], record: ConfigRecord) -> None:
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value


def _topic_line(topic: TopicImage, image: MetadataImage) -> TopicLine:
    return TopicLine(
        topic.name,
        topic.topic_id,
        len(topic.partitions),
        image.topic_configs(topic.name),
        topic.elsewhere,
        topic.kafka_epochs,
    )


def file_records_of_image(image: MetadataImage) -> Iterator[FileRecord]:
    """Yield the smallest sequence of file records that represents an image."""
    if image.next_producer_id:
        yield ProducerIdsLine(image.next_producer_id)
    if image.unclean_starts:
        yield StartedUnclean(image.unclean_starts)
    if image.kafka is not None:
        yield image.kafka
    if image.directories:
        yield DirectoriesKnown(image.directories)
    for name, value in image.cluster_configs().items():
        yield SettingLine(name, value)
    for group_id, configs in image.group_configs().items():
        yield GroupLine(group_id, configs)
    for topic in image.topics.values():
        yield _topic_line(topic, image)
    yield AppendsCounted(image.appends)  # last, because replaying a line counts an append


def replay_line(line: FileRecord, image: MetadataImage, node_id: int) -> None:
    """Apply a line of the file to an image.

    Args:
        image: the image after all previous lines.
        node_id: id of the node that has the file and the only replica of each partition.
    """
    match line:
        case TopicLine():
            _replay_topic(line, image, node_id)
        case TopicDeletedLine(_, topic_id):
            # A newer topic of the same name may have replaced this topic already.
            if topic_id in image.topics_by_id:
                image.replay(RemoveTopicRecord(topic_id=topic_id))
        case ProducerIdsLine(next_producer_id):
            image.replay(ProducerIdsRecord(broker_id=node_id, next_producer_id=next_producer_id))
        case SettingLine(name, value):
            text = None if value is None else str(value)
            image.replay(
                ConfigRecord(resource_type=BROKER_CONFIG, resource_name="", name=name, value=text)
            )
        case GroupLine(group_id, configs):
            _replay_configs(GROUP_CONFIG, group_id, configs, image)
        case _:
            image.replay(line)


def _replay_topic(line: TopicLine, image: MetadataImage, node_id: int) -> None:
    known = image.topics.get(line.name)
    if known is not None and known.topic_id != line.topic_id:
        image.replay(RemoveTopicRecord(topic_id=known.topic_id))
        known = None
    if known is None:
        image.replay(TopicRecord(name=line.name, topic_id=line.topic_id))
    topic = image.topics[line.name]
    added = line.partitions - len(topic.partitions)
    if added > 0:
        here = (node_id,)
        topic.partitions += [PartitionImage(here, here, node_id, 0)] * added
    _replay_configs(TOPIC_CONFIG, line.name, line.configs, image)
    topic.elsewhere, topic.kafka_epochs = line.elsewhere, line.kafka_epochs


def _replay_configs(kind: int, name: str, configs: Mapping[str, str], image: MetadataImage) -> None:
    for record in list(config_records(kind, name, image.configs.get((kind, name), {}), configs)):
        image.replay(record)
