"""``aiokq log forget-missing``: forgets the lost log directories of a stopped broker.

Tests: ``tests/unit/broker/metadata/stopped_broker/test_forgetting.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.locked_directories import locked_directories
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.image.records import UNASSIGNED
from aiokq.broker.metadata.start.missing_directories import missing_partitions
from aiokq.broker.metadata.start.node_file import read_node_file
from aiokq.broker.metadata.stopped_broker.stopped_log import open_stopped_log, read_stopped_log
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition
from aiokq.wire.cluster_metadata_records import PartitionChangeRecord
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.registration_records import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.core.files import Files
    from aiokq.wire.struct import Message

__all__ = ["Forgotten", "forget_missing"]


class Forgotten(NamedTuple):
    """The directories that `forget_missing` forgets, and the partitions that are lost with them.

    Attributes:
        paths: paths of the forgotten directories, or their ids where the path is unknown.
        partitions: partitions that are in no other directory; the next start recreates them empty.
    """

    paths: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


def forget_missing(files: Files, paths: Sequence[str], *, execute: bool, now_ms: int) -> Forgotten:
    """Forget the lost log directories of a stopped broker.

    The next start recreates their partitions, empty, in the other directories, with leader epochs
    that no consumer has seen.

    Args:
        paths: all remaining log directories of the broker.
        execute: False to return the result without forgetting any directory.
        now_ms: the present time.

    Raises:
        ConfigError: `paths` are not the log directories of one node, or none has a metadata log.
        KafkaStorage: a directory is in use, the metadata log is damaged or has other voters, or
            the disk failed.
    """
    with locked_directories(files, paths) as ids:
        stopped = read_stopped_log(files, paths, ids)
        node_id = stopped.node_id
        found = {
            file_names.parse_partition_directory(name)
            for path in paths
            for name in files.listdir(path)
        }
        present = {one.directory_uuid or ZERO_UUID for one in ids}
        missing = missing_partitions(
            stopped.state.image, node_id, present=present, is_there=found.__contains__
        )
        known = read_node_file(files, stopped.log_directory)
        partitions = tuple(dict.fromkeys(one for some in missing.values() for one in some))
        if missing and execute:
            with open_stopped_log(files, stopped, now_ms=now_ms) as log:
                log.lead(_changes(stopped.state.image, node_id, partitions, present))
        names = (known.get(one) or format_uuid(one) for one in missing)
        return Forgotten(tuple(names), partitions)


def _changes(
    image: MetadataImage,
    node_id: int,
    partitions: Sequence[TopicPartition],
    present: Collection[uuid.UUID],
) -> list[Message]:
    """Return the records that make the next start create the partitions again.

    The record of each partition names a leader. The leader epoch therefore rises, so that consumers
    which have read lost records notice the change. Another record removes the lost directories from
    the registration of the node. If the lost directories stayed registered, the next start would
    assume that partitions without a recorded directory are in a lost directory.

    Args:
        present: ids of the remaining directories.
    """
    records: list[Message] = []
    broker = image.brokers.get(node_id)
    if broker is not None and broker.log_dirs:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=node_id,
                broker_epoch=broker.broker_epoch,
                log_dirs=sorted(present),
            )
        )
    for partition in partitions:
        topic = image.topics[partition.topic]
        state = topic.partitions[partition.partition]
        places: list[uuid.UUID] | None = [
            UNASSIGNED if replica == node_id else place
            for replica, place in zip(state.replicas, state.directories, strict=False)
        ]
        if not state.directories:  # created when the metadata.version had no directories
            places = None
        records.append(
            PartitionChangeRecord(
                partition_id=partition.partition,
                topic_id=topic.topic_id,
                leader=node_id,
                directories=places,
            )
        )
    return records
