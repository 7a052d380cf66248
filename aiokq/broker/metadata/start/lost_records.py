"""The records that a start appends if the metadata log may lack acknowledged records.

The logs of partitions may have producer ids and leader epochs from the missing records. If such an
id were given to another producer, the records of this producer could be dropped as duplicates of
earlier records. If such an epoch began again, followers and clients could not distinguish the two
epochs.

Source: none; Apache Kafka's controller continues from what is left of its log.
Tests: ``tests/unit/broker/metadata/start/test_lost_records.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.config import INT_MAX
from aiokq.broker.log.leader_epochs import read_latest_epoch
from aiokq.core.types import TopicPartition
from aiokq.wire.cluster_metadata_records import ProducerIdsRecord

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.core.files import Files
    from aiokq.wire.struct import Message

__all__ = ["records_after_loss"]

SKIPPED_IDS: Final = 1 << 32
"""Number of producer ids that are not used: more than the missing records can have reserved."""


def records_after_loss(
    files: Files, directories: LogDirectories, image: MetadataImage, *, broker_epoch: int
) -> list[Message]:
    """Return records with higher producer ids and leader epochs than those in the logs.

    Args:
        image: the metadata after the other records of the start.
        broker_epoch: the epoch that the start gives to the node's broker.

    Raises:
        OSError: the disk failed.
    """
    node_id = directories.properties.node_id
    records: list[Message] = [
        ProducerIdsRecord(
            broker_id=node_id,
            broker_epoch=broker_epoch,
            next_producer_id=image.next_producer_id + SKIPPED_IDS,
        )
    ]
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            directory = directories.directory_of(name)
            if partition.leader != node_id or directory is None:
                continue
            latest = read_latest_epoch(
                files, f"{directory.path}/{file_names.partition_directory(name)}"
            )
            if partition.leader_epoch <= latest < INT_MAX:
                # A PartitionChangeRecord raises the epoch by one only.
                raised = partition._replace(
                    leader_epoch=latest + 1, partition_epoch=partition.partition_epoch + 1
                )
                records.append(raised.record(topic.topic_id, index))
    return records
