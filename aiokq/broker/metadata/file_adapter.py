"""Translates between metadata records and the records of the metadata file.

A record of the file says all of a topic or of a group. So what several records of one append say
of the same one becomes one record of the file, and the other way round only what differs from the
image becomes records.

Tests: ``tests/unit/broker/metadata/test_file_adapter.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from aiokq.broker.metadata.file_records import (
    FileRecord,
    GroupLine,
    ProducerIdsLine,
    SettingLine,
    TopicDeletedLine,
    TopicLine,
)
from aiokq.broker.metadata.image import MetadataImage, TopicImage
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
    partition_record,
)
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

__all__ = ["file_records", "file_records_of_image", "metadata_records"]


def file_records(records: Iterable[MetadataRecord], image: MetadataImage) -> list[FileRecord]:
    """The records of the file that say the same as the records of one append.

    Args:
        image: before the append.

    Raises:
        ValueError: the file has no record for one of them.
    """
    lines = _Lines(image)
    for record in records:
        lines.add(record)
    return list(lines.found.values())


class _Lines:
    """The records of the file for one append.

    Attributes:
        found: in the order of the first record that each has something of.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.found: dict[object, FileRecord] = {}
        self._image = image
        self._created: dict[str, uuid.UUID] = {}

    def add(self, record: MetadataRecord) -> None:
        """Take over one record."""
        match record:
            case TopicRecord(name=name, topic_id=topic_id):
                self._created[name] = topic_id
                self.found[topic_id] = TopicLine(name, topic_id, 0)
            case PartitionRecord(topic_id=topic_id, partition_id=index):
                topic = self._topic(topic_id)
                count = max(topic.partitions, index + 1)
                self.found[topic_id] = topic._replace(partitions=count)
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
                raise ValueError(f"the metadata file has no record for {type(record).__name__}")

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
            raise ValueError(f"the metadata file has no settings of resources of type {kind}")

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
    """The fewest records of the file that give an image."""
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
    yield AppendsCounted(image.appends)  # the last: each line counts


def metadata_records(
    record: FileRecord, image: MetadataImage, node_id: int
) -> list[MetadataRecord]:
    """The records by which an image becomes what a record of the file says.

    Args:
        image: after all records before it.
        node_id: of the node that has the file: it has all partitions.
    """
    match record:
        case TopicLine():
            return list(_of_topic(record, image, node_id))
        case TopicDeletedLine(_, topic_id):
            # An older topic of the name may be deleted late.
            known = topic_id in image.topics_by_id
            return [RemoveTopicRecord(topic_id=topic_id)] if known else []
        case ProducerIdsLine(next_producer_id):
            return [ProducerIdsRecord(broker_id=node_id, next_producer_id=next_producer_id)]
        case SettingLine(name, value):
            text = None if value is None else str(value)
            return [
                ConfigRecord(resource_type=BROKER_CONFIG, resource_name="", name=name, value=text)
            ]
        case GroupLine(group_id, configs):
            present = image.configs.get((GROUP_CONFIG, group_id), {})
            return list(config_records(GROUP_CONFIG, group_id, present, configs))
        case _:
            return [record]


def _of_topic(line: TopicLine, image: MetadataImage, node_id: int) -> Iterator[MetadataRecord]:
    known = image.topics.get(line.name)
    if known is not None and known.topic_id != line.topic_id:
        yield RemoveTopicRecord(topic_id=known.topic_id)
        known = None
    if known is None:
        yield TopicRecord(name=line.name, topic_id=line.topic_id)
    present = 0 if known is None else len(known.partitions)
    for index in range(present, line.partitions):
        yield partition_record(line.topic_id, index, node_id)
    configs = {} if known is None else image.topic_configs(line.name)
    yield from config_records(TOPIC_CONFIG, line.name, configs, line.configs)
    before = ((), ()) if known is None else (known.elsewhere, known.kafka_epochs)
    if before != (line.elsewhere, line.kafka_epochs):
        yield TopicTakenOver(line.topic_id, line.elsewhere, line.kafka_epochs)
