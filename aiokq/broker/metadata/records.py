"""The records of the cluster's metadata: Kafka's record classes, and a few of aiokq's own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.cluster_metadata_records import ConfigRecord, PartitionRecord
from aiokq.wire.struct import Message

__all__ = [
    "BROKER_CONFIG",
    "GROUP_CONFIG",
    "METADATA_VERSION",
    "TOPIC_CONFIG",
    "AppendsCounted",
    "DirectoriesKnown",
    "KafkaTakenOver",
    "MetadataRecord",
    "StartedUnclean",
    "TopicTakenOver",
    "config_records",
    "partition_record",
]

TOPIC_CONFIG: Final = 2
BROKER_CONFIG: Final = 4
GROUP_CONFIG: Final = 32
"""The types of resources in a `ConfigRecord`."""

METADATA_VERSION: Final = "metadata.version"
"""The feature whose level decides which records, and which fields of them, a log may have."""


class TopicTakenOver(NamedTuple):
    """What Apache Kafka's metadata contained about a topic's partitions when it was taken over.

    Attributes:
        elsewhere: partitions that are on other nodes or in other directories of Apache Kafka.
        kafka_epochs: for each partition, the leader epoch that Apache Kafka will use next, which is
            also used here. Clients would reject a lower epoch as outdated. A higher epoch would
            look like lost records when Kafka uses the directory again. -1 for a partition without
            an epoch of Kafka, for example because Kafka's metadata was removed; empty for a topic
            that was created here.
    """

    topic_id: uuid.UUID
    elsewhere: tuple[int, ...] = ()
    kafka_epochs: tuple[int, ...] = ()


class StartedUnclean(NamedTuple):
    """The number of starts of the node after an unclean shutdown or without a lost directory.

    After a start of this kind, leader epochs are not lower than this number, because a power cut or
    a lost disk may have removed epochs that readers know.
    """

    unclean_starts: int


class KafkaTakenOver(NamedTuple):
    """The point up to which Apache Kafka's metadata in this directory was taken over.

    Attributes:
        topic_ids: the topics in that metadata. If one of them is missing when Kafka's metadata is
            read again, Kafka has deleted it.
    """

    end_offset: int
    epoch: int
    topic_ids: tuple[str, ...]


class DirectoriesKnown(NamedTuple):
    """The paths of the node's log directories, by directory.id.

    Written when the node first has a second directory, and whenever the directories change.
    """

    directories: Mapping[str, str]


class AppendsCounted(NamedTuple):
    """The number of appends so far, recorded because compaction removes lines of appends."""

    appends: int


MetadataRecord: TypeAlias = (
    Message | TopicTakenOver | StartedUnclean | KafkaTakenOver | DirectoriesKnown | AppendsCounted
)


def partition_record(topic_id: uuid.UUID, index: int, node_id: int) -> PartitionRecord:
    """Return the record of a new partition whose only replica and leader is ``node_id``."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[node_id],
        isr=[node_id],
        leader=node_id,
        leader_epoch=0,
        partition_epoch=0,
    )


def config_records(
    resource_type: int, name: str, present: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[ConfigRecord]:
    """Yield the records that change a resource's settings from ``present`` to ``wanted``.

    Records that set values come first, then records without a value, which remove settings.
    """
    for key, value in wanted.items():
        if present.get(key) != value:
            yield _config(resource_type, name, key, value)
    for key in present:
        if key not in wanted:
            yield _config(resource_type, name, key, None)


def _config(resource_type: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
