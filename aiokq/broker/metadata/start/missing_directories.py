"""Log directories that hold partitions of this node and are missing at this start.

The metadata log records the directory.id of a partition's directory. The node looks for missing
directories after the metadata log is read and before logs of topics are opened. If a directory is
left out of ``log.dirs``, or its disk is not mounted, its partitions are offline, like those of a
directory that cannot be read. If these partitions were recreated empty in other directories, the
node would find two logs of each partition when the directory is added again. Only one of the two
logs could be kept. A missing directory is ignored if no partition is missing with it.

Source: KIP-858. Apache Kafka recreates the partitions of a directory that is left out of
``log.dirs``, because other nodes have replicas.
Tests: ``tests/unit/broker/metadata/start/test_missing_directories.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from aiokq.broker.log.uuid_text import format_uuid
from aiokq.core.errors import KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.core.utf8 import response_text

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.image.image import MetadataImage

__all__ = ["look_for_missing", "missing_partitions"]

logger = logging.getLogger("aiokq.broker")


def look_for_missing(
    directories: LogDirectories, image: MetadataImage, paths: Mapping[uuid.UUID, str]
) -> list[uuid.UUID]:
    """Find the missing directories, and add them to ``directories.unopened``.

    Args:
        directories: the directories, after their partitions were found (``find``).
        paths: known paths, by directory.id, for messages.

    Returns:
        The missing directories that may have partitions whose directory was not recorded. The node
        stays registered with them, so that the next start looks for them, too.
    """
    missing = missing_partitions(
        image,
        directories.properties.node_id,
        present=directories.ids,
        is_there=lambda partition: directories.directory_of(partition) is not None,
    )
    lost: list[str] = []
    partitions: list[TopicPartition] = []
    for directory_id, homeless in missing.items():
        path = paths.get(directory_id)
        partitions += homeless
        if path is not None and path in directories.unopened:
            continue  # the directory exists and cannot be read
        name = path or f"with directory.id {format_uuid(directory_id)}"
        lost.append(name)
        key = name
        if any(one.path == path for one in directories.all):
            key = f"{name} ({format_uuid(directory_id)})"  # another directory has this path
        directories.unopened[key] = KafkaStorage(
            f"log directory {response_text(name)} (directory.id {format_uuid(directory_id)}) is "
            "missing: mount its disk and add the directory again, or forget the directory (aiokq "
            "log forget-missing) if it is lost"
        )
    if lost:
        logger.error(
            "log directories of this node are missing: paths=%s partitions offline=%d first=%s "
            "- mount their disks and add the directories again, or forget them if they are "
            "lost: aiokq log forget-missing",
            ",".join(lost),
            len(partitions),
            partitions[0],
        )
    node_id = directories.properties.node_id
    return [
        directory_id
        for directory_id, homeless in missing.items()
        if any(
            image.topics[one.topic].partitions[one.partition].directory_of(node_id) is None
            for one in homeless
        )
    ]


def missing_partitions(
    image: MetadataImage,
    node_id: int,
    *,
    present: Collection[uuid.UUID],
    is_there: Callable[[TopicPartition], bool],
) -> dict[uuid.UUID, list[TopicPartition]]:
    """Return the partitions of a node that are in missing directories, by directory.id.

    A partition whose directory was not recorded may be in any missing directory with which the node
    was registered. Such a partition is returned for each of these directories.

    Args:
        present: ids of the directories that exist.
        is_there: returns whether a partition is in one of these directories.
    """
    broker = image.brokers.get(node_id)
    known = [] if broker is None else [one for one in broker.log_dirs if one not in present]
    missing: dict[uuid.UUID, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if node_id not in state.replicas:
                continue
            directory_id = state.directory_of(node_id)
            if directory_id in present:
                continue  # checked before `is_there`, because this is the most frequent case
            name = TopicPartition(topic.name, index)
            if is_there(name):
                continue
            for one in known if directory_id is None else (directory_id,):
                missing.setdefault(one, []).append(name)
    return missing
