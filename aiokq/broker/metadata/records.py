"""The records of which the cluster's metadata consists: Kafka's, and those it has none for.

Owns the shape of the latter, and how some of Kafka's are made; what they add up to is `image`'s.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from aiokq.wire.cluster_metadata_records import ConfigRecord, PartitionRecord
from aiokq.wire.struct import Message

__all__ = [
    "BROKER_CONFIG",
    "GROUP_CONFIG",
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
"""Types of resources in a `ConfigRecord`."""


class TopicTakenOver(NamedTuple):
    """What Apache Kafka's metadata said of a topic's partitions when it was taken over.

    Attributes:
        elsewhere: partitions that other nodes or other directories of Apache Kafka have.
        kafka_epochs: the leader epoch that Apache Kafka will give each partition next. They have
            it here, too: to clients an older one is out of date, and a newer one, when Kafka has
            the directory again, means records that were lost. -1 where Kafka gives none any more;
            empty for a topic that was created here.
    """

    topic_id: uuid.UUID
    elsewhere: tuple[int, ...] = ()
    kafka_epochs: tuple[int, ...] = ()


class StartedUnclean(NamedTuple):
    """The node started so many times after an unclean stop, or without a lost directory.

    No leader epoch after such a start is below this number: a power cut or a lost disk may have
    taken the epochs that readers know.
    """

    unclean_starts: int


class KafkaTakenOver(NamedTuple):
    """The metadata of Apache Kafka in this directory was taken over, up to this end of it.

    Attributes:
        topic_ids: of the topics that it had: one that is missing later was deleted there.
    """

    end_offset: int
    epoch: int
    topic_ids: tuple[str, ...]


class DirectoriesKnown(NamedTuple):
    """The node has these log directories, by directory.id, each with its path.

    Written when there is a second one for the first time, and whenever they change.
    """

    directories: Mapping[str, str]


class AppendsCounted(NamedTuple):
    """So many appends were made until here: a compacted log has fewer lines."""

    appends: int


MetadataRecord: TypeAlias = (
    Message | TopicTakenOver | StartedUnclean | KafkaTakenOver | DirectoriesKnown | AppendsCounted
)


def partition_record(topic_id: uuid.UUID, index: int, node_id: int) -> PartitionRecord:
    """A new partition whose only replica is on a node, which leads it."""
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
    """The records that change a resource's settings from ``present`` to ``wanted``.

    One for each setting whose value changes, then one without a value for each that is removed.
    """
    for key, value in wanted.items():
        if present.get(key) != value:
            yield _config(resource_type, name, key, value)
    for key in present:
        if key not in wanted:
            yield _config(resource_type, name, key, None)


def _config(resource_type: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
