"""The hand-over of log directories to Apache Kafka, by a ``bootstrap.checkpoint`` file.

A Kafka controller whose metadata log is empty starts with the records of this file. The file that
``kafka-storage format`` writes contains features and users. The file that is written here contains
features, and the topics with their ids, settings and partitions, so that Kafka finds the existing
logs.

Source: Kafka ``BootstrapDirectory.java``, ``ActivationRecordsGenerator.java``, KIP-630, KIP-858.
Tests: ``tests/unit/broker/kraft/test_bootstrap.py``, ``tests/interop/apache/test_directories.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from aiokq.broker.log import file_names
from aiokq.broker.log.leader_epochs import LeaderEpochs
from aiokq.broker.log.locked_directories import locked_directories
from aiokq.broker.log.meta_properties import MetaProperties
from aiokq.broker.log.uuid_text import parse_uuid
from aiokq.broker.metadata.bootstrap_checkpoint import write_bootstrap_checkpoint
from aiokq.broker.metadata.image import MetadataImage
from aiokq.broker.metadata.metadata_log import METADATA_LOG, MetadataLog
from aiokq.broker.metadata.records import GROUP_CONFIG, TOPIC_CONFIG
from aiokq.broker.metadata.topic_image import TopicImage
from aiokq.core.errors import ConfigError, CorruptRecord
from aiokq.core.files import Files
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.wire import cluster_metadata_records as kafka
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.struct import Message

__all__ = ["HandedOver", "hand_over"]

FEATURES: Final = {"metadata.version": 25, "group.version": 1, "transaction.version": 2}
"""Feature levels of Kafka 4.0 (``4.0-IV3``); ``kafka-features`` upgrades them in later versions."""


class HandedOver(NamedTuple):
    """The result of a hand-over.

    Attributes:
        node_id: the ``node.id`` that Kafka must have.
        paths: the written files, one per directory.
    """

    cluster_id: str
    node_id: int
    topics: int
    partitions: int
    paths: tuple[str, ...]


def hand_over(files: Files, paths: Sequence[str], timestamp_ms: int) -> HandedOver:
    """Write the metadata for Kafka into the log directories of a stopped broker.

    Args:
        paths: all directories of the node, in the order of Kafka's ``log.dirs``.
        timestamp_ms: timestamp of the records.

    Raises:
        ConfigError: these are not all the directories of one node, or they cannot be handed over;
            the message says what to do.
        KafkaStorage: a directory is in use, its metadata log cannot be read, or the disk failed.
    """
    with locked_directories(files, paths) as ids:
        return _hand_over(files, paths, ids, timestamp_ms)


def _hand_over(
    files: Files, paths: Sequence[str], ids: Sequence[MetaProperties], timestamp_ms: int
) -> HandedOver:
    for path in paths:
        if files.is_dir(f"{path}/{file_names.CLUSTER_METADATA}"):
            raise ConfigError(
                f"Apache Kafka has its own metadata in {path}/{file_names.CLUSTER_METADATA} and "
                "would continue with it; to hand over topics that are not in this metadata, "
                "start and stop aiokq broker once more, then move the directory away; users, "
                "ACLs and quotas in it are lost"
            )
    image = _image(files, paths)
    places = _places(files, paths, ids)
    records = [
        *(kafka.FeatureLevelRecord(name=name, feature_level=n) for name, n in FEATURES.items()),
        *_topics(files, image, places, ids[0].node_id),
        *(
            kafka.ConfigRecord(
                resource_type=GROUP_CONFIG, resource_name=group_id, name=name, value=value
            )
            for group_id, configs in image.group_configs().items()
            for name, value in configs.items()
        ),
    ]
    if image.next_producer_id:
        records.append(
            kafka.ProducerIdsRecord(
                broker_id=ids[0].node_id, next_producer_id=image.next_producer_id
            )
        )
    written = tuple(
        write_bootstrap_checkpoint(files, path, records, timestamp_ms=timestamp_ms, crc32c=crc32c)
        for path in paths
    )
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    return HandedOver(ids[0].cluster_id, ids[0].node_id, len(image.topics), partitions, written)


def _image(files: Files, paths: Sequence[str]) -> MetadataImage:
    logs = [f"{path}/{METADATA_LOG}" for path in paths]
    missing = [log for log in logs if not files.exists(log)]
    if missing:
        raise ConfigError(f"{missing[0]} is missing: start aiokq broker on the directory once")
    metadata = MetadataLog.open(files, *logs)
    metadata.close()
    return metadata.image


class _Place(NamedTuple):
    path: str
    directory_id: uuid.UUID


def _places(
    files: Files, paths: Sequence[str], ids: Sequence[MetaProperties]
) -> dict[TopicPartition, _Place]:
    """Return the directory of each partition."""
    found: dict[TopicPartition, _Place] = {}
    for path, own in zip(paths, ids, strict=True):
        directory_id = ZERO_UUID if own.directory_id is None else parse_uuid(own.directory_id)
        for name in files.listdir(path):
            partition = file_names.parse_partition_directory(name)
            if partition is not None:
                found[partition] = _Place(f"{path}/{name}", directory_id)
    return found


def _topics(
    files: Files, image: MetadataImage, places: dict[TopicPartition, _Place], node_id: int
) -> Iterator[Message]:
    for topic in image.topics.values():
        if topic.elsewhere:
            raise ConfigError(
                f"partition {topic.name}-{topic.elsewhere[0]} is on another node, and only whole "
                "topics can be handed over: delete the topic, or copy the partition here"
            )
        yield kafka.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for name, value in image.topic_configs(topic.name).items():
            yield kafka.ConfigRecord(
                resource_type=TOPIC_CONFIG, resource_name=topic.name, name=name, value=value
            )
        for number in range(len(topic.partitions)):
            yield _partition(files, topic, number, places, node_id)


def _partition(
    files: Files,
    topic: TopicImage,
    number: int,
    places: dict[TopicPartition, _Place],
    node_id: int,
) -> kafka.PartitionRecord:
    place = places.get(TopicPartition(topic.name, number))
    if place is None:
        raise ConfigError(
            f"{topic.name}-{number} is in none of the given directories: name all log "
            "directories of the node"
        )
    epochs = LeaderEpochs(files, f"{place.path}/{file_names.LEADER_EPOCHS}")
    try:
        epochs.load()
    except (FileNotFoundError, CorruptRecord):
        pass  # Kafka rebuilds the file from the log
    return kafka.PartitionRecord(
        partition_id=number,
        topic_id=topic.topic_id,
        replicas=[node_id],
        isr=[node_id],
        # The node becomes the leader when Kafka starts, in the next epoch.
        leader=-1,
        leader_epoch=max(epochs.latest_epoch, 0),
        partition_epoch=0,
        directories=[place.directory_id],
    )
