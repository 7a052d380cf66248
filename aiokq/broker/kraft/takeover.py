"""The takeover of log directories that Apache Kafka wrote, before the first log is opened.

If Kafka's metadata exists and has changed since the last takeover, Kafka was the last to use the
directory: its topics, ids and settings are written to this broker's metadata log. If there is no
metadata of Kafka, and this broker's metadata log is empty, the partitions that are found are
served. None of their records is deleted or compacted, because their ``cleanup.policy`` is empty
until the user sets it.

Kafka's metadata is not changed, so that Kafka can continue with the directory.

Tests: ``tests/unit/broker/kraft/test_takeover.py``, ``tests/interop/apache/test_directories.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.log.disk_trouble import unusable
from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.records import (
    GROUP_CONFIG,
    TOPIC_CONFIG,
    KafkaTakenOver,
    MetadataRecord,
    TopicTakenOver,
    config_records,
    partition_record,
)
from aiokq.broker.metadata.topic_names import check_topic_name
from aiokq.core.errors import InvalidConfiguration, InvalidTopic, KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import ProducerIdsRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from aiokq.broker.kraft.metadata_files import MetadataFiles
    from aiokq.broker.kraft.metadata_image import KafkaMetadata, KafkaPartition
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.metadata.image import MetadataImage
    from aiokq.broker.metadata.metadata_log import MetadataLog
    from aiokq.core.files import Files

__all__ = ["take_over"]

logger = logging.getLogger("aiokq.broker")

KEPT: Final = {"cleanup.policy": ""}
"""Settings given to a topic whose settings are unknown: neither ``delete`` nor ``compact``."""

PRODUCER_ID_BITS: Final = 48
"""Producer ids issued here start at a multiple of two to this power, above all ids of Kafka.

Kafka later continues with its own ids. If two producers had the same id, records of the second
producer could be treated as duplicates.
"""

NO_EPOCH: Final = -1
"""Leader epoch of partitions for which no metadata of Kafka has an epoch."""

MOST_PARTITIONS: Final = 100_000
"""Limit of partition numbers; a directory with a higher number was not created by a broker."""


def take_over(
    files: Files, directories: LogDirectories, metadata: MetadataLog, *, random: Random
) -> None:
    """Update the metadata log from the metadata and partitions that Apache Kafka left.

    Raises:
        KafkaStorage: Kafka's metadata is unreadable, or the disk failed; the message says
            what to do.
    """
    path = directories.all[0].path
    try:
        if any(files.is_dir(f"{one.path}/{CLUSTER_METADATA}") for one in directories.online):
            from aiokq.broker.kraft.metadata_files import MetadataFiles

            paths = [directory.path for directory in directories.online]
            found = MetadataFiles.find(files, paths, crc32c)
            if found is not None:
                _follow(found, directories, metadata)
                _find_again(directories, metadata)
                return
        topics = metadata.image.topics.values()
        bound = any(max(topic.kafka_epochs, default=NO_EPOCH) > NO_EPOCH for topic in topics)
        if bound and _all_present(directories, metadata):
            _forget(metadata)
        elif not metadata.image.appends:
            _serve_as_found(directories, metadata, random)
        _find_again(directories, metadata)
    except OSError as error:
        raise unusable(path, error) from error


# --- with Kafka's metadata


def _follow(found: MetadataFiles, directories: LogDirectories, metadata: MetadataLog) -> None:
    end = found.end()
    known = metadata.image.kafka
    if known is not None and (known.end_offset, known.epoch) == end:
        return
    kafka = found.read()
    node_id = directories.properties.node_id
    records = list(_records(kafka, metadata.image, directories))
    topic_ids = tuple(sorted(format_uuid(topic.topic_id) for topic in kafka.topics.values()))
    reserved = ((kafka.next_producer_id >> PRODUCER_ID_BITS) + 1) << PRODUCER_ID_BITS
    # The records are written in one append, so that a takeover interrupted by a kill is repeated.
    metadata.append(
        *records,
        ProducerIdsRecord(broker_id=node_id, next_producer_id=reserved),
        KafkaTakenOver(end.offset, end.epoch, topic_ids),
    )
    _take_back_strays(directories, metadata.image)
    logger.warning(
        "metadata of Apache Kafka taken over: cluster=%s node=%d topics=%d partitions=%d "
        "from=%s; Kafka's files are not changed%s",
        directories.properties.cluster_id,
        node_id,
        len(kafka.topics),
        sum(len(topic.partitions) for topic in kafka.topics.values()),
        found.directory,
        _left_out(kafka),
    )


def _all_present(directories: LogDirectories, metadata: MetadataLog) -> bool:
    """Whether all log directories are online; a missing directory could have Kafka's metadata."""
    present = {directory.properties.directory_id for directory in directories.all}
    return not directories.offline and present.issuperset(metadata.image.directories)


def _forget(metadata: MetadataLog) -> None:
    """Remove the leader epochs of Kafka from the topics, because Kafka's metadata was removed."""
    topics = [
        TopicTakenOver(topic.topic_id, topic.elsewhere, (NO_EPOCH,) * len(topic.kafka_epochs))
        for topic in metadata.image.topics.values()
    ]
    metadata.append(*topics, KafkaTakenOver(0, 0, ()))


def _left_out(kafka: KafkaMetadata) -> str:
    said = [f"{count} {what}" for what, count in kafka.left_out.items() if count > 0]
    return f"; NOT enforced here: {', '.join(said)}" if said else ""


def _records(
    kafka: KafkaMetadata, image: MetadataImage, directories: LogDirectories
) -> Iterator[MetadataRecord]:
    """Yield the records that give the image the current state of Kafka's topics.

    Topics that Kafka never had were created here, so they are kept, unless Kafka now has another
    topic of the same name.
    """
    from aiokq.broker.metadata.group_configs import GROUP_CONFIGS

    groups = kafka.group_configs()
    present_groups = image.group_configs()
    for group_id in {**present_groups, **groups}:
        given = groups.get(group_id, {})
        known = {name: value for name, value in given.items() if name in GROUP_CONFIGS}
        yield from config_records(GROUP_CONFIG, group_id, present_groups.get(group_id, {}), known)
    before = set() if image.kafka is None else set(image.kafka.topic_ids)
    ids = {topic.topic_id for topic in kafka.topics.values()}
    for ours in image.topics.values():
        was_kafkas = format_uuid(ours.topic_id) in before
        if ours.topic_id not in ids and (was_kafkas or ours.name in kafka.topics):
            yield RemoveTopicRecord(topic_id=ours.topic_id)
    brokers = kafka.broker_configs(directories.properties.node_id)
    for topic in kafka.topics.values():
        present = image.topics.get(topic.name)
        if present is not None and present.topic_id != topic.topic_id:
            present = None
        count = max(topic.partitions, default=-1) + 1
        if present is None:
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        # Partitions that this broker has added to a topic of Kafka are kept.
        for index in range(0 if present is None else len(present.partitions), count):
            yield partition_record(topic.topic_id, index, directories.properties.node_id)
        yield from config_records(
            TOPIC_CONFIG,
            topic.name,
            {} if present is None else image.topic_configs(topic.name),
            _configs(topic.name, kafka.topic_configs(topic.name), brokers),
        )
        yield TopicTakenOver(
            topic.topic_id,
            tuple(
                number
                for number, partition in sorted(topic.partitions.items())
                if _is_elsewhere(partition, directories)
            ),
            tuple(
                topic.partitions[number].next_epoch if number in topic.partitions else 0
                for number in range(count)
            ),
        )


def _is_elsewhere(partition: KafkaPartition, directories: LogDirectories) -> bool:
    """Whether Kafka has a partition only on other nodes, or in a directory that is not opened."""
    node_id = directories.properties.node_id
    directory = partition.directory_of(node_id)
    ours = {one.properties.directory_id for one in directories.all}
    return node_id not in partition.replicas or (
        directory is not None and format_uuid(directory) not in ours
    )


def _find_again(directories: LogDirectories, metadata: MetadataLog) -> None:
    """Note partitions that were elsewhere and are found now; log those that are still missing."""
    missing = [topic for topic in metadata.image.topics.values() if topic.elsewhere]
    if not missing:
        return
    present = {
        partition for directory in directories.online for partition in directory.partitions()
    }
    records = []
    for topic in missing:
        left = tuple(n for n in topic.elsewhere if TopicPartition(topic.name, n) not in present)
        if left != topic.elsewhere:
            records.append(TopicTakenOver(topic.topic_id, left, topic.kafka_epochs))
        if left:
            logger.warning(
                "partitions are offline, because no log directory has them topic=%s partitions=%s",
                topic.name,
                ",".join(map(str, left)),
            )
    if records:
        metadata.append(*records)


def _configs(name: str, given: Mapping[str, str], brokers: Mapping[str, str]) -> dict[str, str]:
    """Return the valid settings of a topic of Kafka: its own, and Kafka's dynamic broker defaults.

    This broker has no dynamic defaults, so they become settings of the topic.
    """
    from aiokq.broker.metadata.topic_configs import TOPIC_CONFIGS, check_topic_configs, server_text

    configs = dict(given)
    for row in TOPIC_CONFIGS.values():
        for server in row.server:
            if server in brokers and row.name not in given:
                text = server_text(server, brokers[server])
                if text != str(row.default):
                    configs[row.name] = text
                break
    checked: dict[str, str] = {}
    for setting, text in configs.items():
        try:
            checked |= check_topic_configs({setting: text})
        except InvalidConfiguration as error:
            logger.warning("invalid setting ignored topic=%s error=%s", name, error.message)
    return checked


def _take_back_strays(directories: LogDirectories, image: MetadataImage) -> None:
    """Give the logs of topics created here their names back, if Kafka has set them aside."""
    ours = {topic.topic_id: topic for topic in image.topics.values()}
    for directory in directories.online:
        present = directory.partitions()
        for (topic_id, number), path in directory.strays.find().items():
            topic = ours.get(topic_id)
            if topic is None or number >= len(topic.partitions):
                continue
            partition = TopicPartition(topic.name, number)
            if partition not in present:
                directory.strays.take_back(partition, path)
                logger.warning("log that was set aside is served again partition=%s", partition)


# --- without any metadata


def _serve_as_found(directories: LogDirectories, metadata: MetadataLog, random: Random) -> None:
    """Create topics for the partitions that are found in the directories."""
    topics: dict[str, dict[int, tuple[uuid.UUID | None, LogDirectory]]] = {}
    for directory in directories.online:
        for partition, topic_id in directory.partitions().items():
            if _may_be_served(partition) and directory.has_segments(partition):
                found = topics.setdefault(partition.topic, {})
                found.setdefault(partition.partition, (topic_id, directory))
    if not topics:
        return
    records: list[MetadataRecord] = []
    topic_ids = _topic_ids(topics, random)
    for name, found in sorted(topics.items()):
        topic_id = topic_ids[name]
        records += [
            TopicRecord(name=name, topic_id=topic_id),
            *config_records(TOPIC_CONFIG, name, {}, KEPT),
            *(
                partition_record(topic_id, number, directories.properties.node_id)
                for number in range(max(found) + 1)
            ),
            TopicTakenOver(
                topic_id,
                tuple(number for number in range(max(found)) if number not in found),
                (NO_EPOCH,) * (max(found) + 1),
            ),
        ]
    metadata.append(*records)
    logger.warning(
        "no metadata in %s: topics=%d partitions=%d are served as found, and none of their "
        "records are deleted or compacted until their cleanup.policy is set",
        ", ".join(directory.path for directory in directories.online),
        len(topics),
        sum(map(len, topics.values())),
    )


def _topic_ids(
    topics: Mapping[str, Mapping[int, tuple[uuid.UUID | None, LogDirectory]]], random: Random
) -> dict[str, uuid.UUID]:
    """Return the id of each topic: the id in its directories, or a new id.

    Raises:
        KafkaStorage: two topics have the same id, or a topic has several ids.
    """
    names: dict[uuid.UUID, str] = {}
    unnamed = []
    for name, found in sorted(topics.items()):
        topic_id = _topic_id(name, found)
        if topic_id is None:
            unnamed.append(name)
            continue
        other = names.setdefault(topic_id, name)
        if other != name:
            paths = []
            for topic in (other, name):
                number = min(n for n, (said, _) in topics[topic].items() if said is not None)
                paths.append(f"{topics[topic][number][1].path}/{topic}-{number}")
            raise KafkaStorage(
                f"{paths[0]} and {paths[1]} have the same topic id in partition.metadata: move "
                "the partitions of one topic away, or remove partition.metadata from the "
                "copies, and start the broker again"
            )
    for name in unnamed:
        topic_id = random_id(random)
        while topic_id in names:
            topic_id = random_id(random)
        names[topic_id] = name
    return {name: topic_id for topic_id, name in names.items()}


def _may_be_served(partition: TopicPartition) -> bool:
    """Whether the topic name and the partition number are valid."""
    try:
        check_topic_name(partition.topic)
    except InvalidTopic:
        return False
    return partition.partition < MOST_PARTITIONS


def _topic_id(
    name: str, found: Mapping[int, tuple[uuid.UUID | None, LogDirectory]]
) -> uuid.UUID | None:
    """Return the topic id in the ``partition.metadata`` of a topic's partitions; None without one.

    Raises:
        KafkaStorage: the partitions have several topic ids; the user has to choose.
    """
    by_id = {topic_id: number for number, (topic_id, _) in found.items() if topic_id is not None}
    if len(by_id) > 1:
        one, other = sorted(by_id.values())[:2]
        paths = [f"{found[number][1].path}/{name}-{number}" for number in (one, other)]
        raise KafkaStorage(
            f"{paths[0]} and {paths[1]} have different topic ids in partition.metadata: move the "
            "partitions of one of the two topics away, and start the broker again"
        )
    return next(iter(by_id), None)
