"""Creates topics for the partitions that a node without metadata finds in its log directories.

No record of these topics is deleted or compacted, because their ``cleanup.policy`` is empty until
the user sets it.

Tests: ``tests/unit/broker/metadata/start/test_found_partitions.py``,
``tests/interop/apache/test_directories.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.leader_epochs import read_latest_epoch
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.metadata.image.records import (
    TOPIC_CONFIG,
    config_records,
    partition_elsewhere,
    partition_record,
)
from aiokq.broker.metadata.image.topic_names import check_topic_name
from aiokq.core.errors import InvalidTopic, KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.wire.cluster_metadata_records import ProducerIdsRecord, TopicRecord

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.core.files import Files
    from aiokq.wire.struct import Message

__all__ = ["found_partition_records"]

logger = logging.getLogger("aiokq.broker")

KEPT: Final = {"cleanup.policy": ""}
"""Settings of a topic whose settings are unknown: no record is deleted or compacted."""

PRODUCER_ID_BITS: Final = 48
"""Producer ids of the node begin at a random multiple of two to this power."""

MOST_PARTITIONS: Final = 100_000
"""The limit of partition numbers: directories with this number or a higher one are ignored."""


def found_partition_records(
    files: Files, directories: LogDirectories, random: Random
) -> list[Message]:
    """Return the metadata records that create topics for the partitions found in the directories.

    Another record sets the next producer id. If no partition is found, there are no records.

    Raises:
        KafkaStorage: topic ids contradict each other; the user has to choose.
        OSError: the disk failed.
    """
    topics: dict[str, dict[int, tuple[uuid.UUID | None, LogDirectory]]] = {}
    for directory in directories.online:
        for partition, topic_id in directory.on_disk.partitions().items():
            if _may_be_served(partition) and directory.on_disk.has_segments(partition):
                found = topics.setdefault(partition.topic, {})
                found.setdefault(partition.partition, (topic_id, directory))
    records: list[Message] = []
    if not topics:
        return records
    topic_ids = _topic_ids(topics, random)
    node_id = directories.properties.node_id
    for name, found in sorted(topics.items()):
        topic_id = topic_ids[name]
        records += [
            TopicRecord(name=name, topic_id=topic_id),
            *config_records(TOPIC_CONFIG, name, {}, KEPT),
        ]
        for number in range(max(found) + 1):
            if number not in found:
                records.append(partition_elsewhere(topic_id, number))
                continue
            _, directory = found[number]
            place = (
                f"{directory.path}/{file_names.partition_directory(TopicPartition(name, number))}"
            )
            records.append(
                partition_record(
                    topic_id,
                    number,
                    node_id,
                    directory=directory.directory_id,
                    leader_epoch=max(read_latest_epoch(files, place), 0),
                )
            )
    # The logs contain producer ids that were issued before. If one of these ids were issued again,
    # records of the new producer could be taken for duplicates.
    first_id = random.randrange(1, 2**15) << PRODUCER_ID_BITS
    records.append(ProducerIdsRecord(broker_id=node_id, next_producer_id=first_id))
    logger.warning(
        "no metadata in %s: topics=%d partitions=%d are served as found, and none of their "
        "records are deleted or compacted until their cleanup.policy is set",
        ", ".join(directory.path for directory in directories.online),
        len(topics),
        sum(map(len, topics.values())),
    )
    return records


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
    """Return the topic id in a topic's ``partition.metadata`` files; None if there is no file.

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
