"""Log directories that a node had at an earlier start and does not have at this start.

The node looks for missing directories after the metadata log is read and before the first log is
opened. If a directory is left out of ``log.dirs``, or its disk is not mounted, its partitions are
offline, like those of a directory that cannot be read. If the partitions were recreated in other
directories, their records would seem lost, and would be lost when the directory is added again. If
no partition is missing, the missing directories are forgotten. ``forget_missing`` forgets the
directories that are lost for good.

Source: KIP-858, where the controller knows the directory of each partition. Apache Kafka recreates
the partitions of a directory that is left out of ``log.dirs``, because other nodes have replicas.
Tests: ``tests/unit/broker/metadata/test_missing_directories.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.locked_directories import locked_directories
from aiokq.broker.metadata.metadata_log import METADATA_LOG, MetadataLog
from aiokq.broker.metadata.records import DirectoriesKnown, StartedUnclean
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition
from aiokq.core.utf8 import response_text

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.image import MetadataImage
    from aiokq.core.files import Files

__all__ = ["Forgotten", "forget_missing", "look_for_missing"]

logger = logging.getLogger("aiokq.broker")


def look_for_missing(directories: LogDirectories, metadata: MetadataLog) -> None:
    """Take missing directories offline, and record the current directories of the node.

    Args:
        directories: the opened directories; the directory of each partition must be known.

    Raises:
        KafkaStorage: the metadata log cannot be written.
    """
    known = metadata.image.directories
    present = {one.properties.directory_id or "": one.path for one in directories.all}
    missing = {
        directory_id: path
        for directory_id, path in known.items()
        # An unreadable directory has no known id and is recognised by its path.
        if directory_id not in present and path not in directories.unopened
    }
    unreadable = {
        directory_id: path
        for directory_id, path in known.items()
        if directory_id not in present and path in directories.unopened
    }
    homeless = (
        _homeless(metadata.image, lambda one: directories.directory_of(one) is not None)
        if missing
        else []
    )
    if homeless:
        for directory_id, path in missing.items():
            directories.unopened[_name(path, directory_id, directories)] = KafkaStorage(
                f"log directory {response_text(path)} (directory.id {directory_id}) is missing: "
                "mount its disk and add the directory again, or forget the directory (aiokq log "
                "forget-missing) if it is lost"
            )
        logger.error(
            "log directories of this node are missing: paths=%s partitions offline=%d first=%s "
            "- mount their disks and add the directories again, or forget them if they are "
            "lost: aiokq log forget-missing",
            ",".join(missing.values()),
            len(homeless),
            homeless[0],
        )
    elif missing:
        logger.info(
            "missing log directories forgotten, because no partition is missing with them: %s",
            ",".join(missing.values()),
        )
        missing = {}
    now = missing | unreadable | present
    # A node with one directory loses its metadata log together with that directory, so a record of
    # the directory would be of no use.
    if now != known and (known or len(directories.all) + len(directories.unopened) > 1):
        metadata.append(DirectoriesKnown(now))


class Forgotten(NamedTuple):
    """The directories that `forget_missing` forgets, and the partitions that are lost with them.

    Attributes:
        paths: paths of the forgotten directories.
        partitions: partitions that are in no other directory; the next start recreates them empty.
    """

    paths: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


def forget_missing(files: Files, paths: Sequence[str], *, execute: bool) -> Forgotten:
    """Forget the log directories of a stopped broker that are lost for good.

    The next start recreates their partitions, empty, in the other directories, with leader epochs
    that no consumer has seen.

    Args:
        paths: all remaining log directories of the broker.
        execute: False to return the result without forgetting any directory.

    Raises:
        ConfigError: `paths` are not the log directories of one node, or one has no metadata log.
        KafkaStorage: a directory is in use, or there is an I/O error.
    """
    with locked_directories(files, paths) as ids:
        for path in paths:
            if not files.exists(f"{path}/{METADATA_LOG}"):
                raise ConfigError(
                    f"{path} has no {METADATA_LOG}: it was never a log directory of a broker of "
                    "aiokq"
                )
        metadata = MetadataLog.open(files, *(f"{path}/{METADATA_LOG}" for path in paths))
        try:
            left = {one.directory_id for one in ids}
            known = metadata.image.directories
            missing = {name: path for name, path in known.items() if name not in left}
            if not missing:
                return Forgotten((), ())
            there = {
                file_names.parse_partition_directory(name)
                for path in paths
                for name in files.listdir(path)
            }
            lost = _homeless(metadata.image, there.__contains__)
            if execute:
                kept = {name: path for name, path in known.items() if name in left}
                # Consumers have seen the leader epochs of the lost records. Counting an unclean
                # start makes the next start use higher epochs.
                epochs = StartedUnclean(metadata.image.unclean_starts + 1)
                metadata.append(DirectoriesKnown(kept), epochs)
            return Forgotten(tuple(missing.values()), tuple(lost))
        finally:
            metadata.close()


def _homeless(
    image: MetadataImage, is_there: Callable[[TopicPartition], bool]
) -> list[TopicPartition]:
    """Return the partitions of this node that `is_there` does not find."""
    partitions = (
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index in range(len(topic.partitions))
        if index not in topic.elsewhere
    )
    return [one for one in partitions if not is_there(one)]


def _name(path: str, directory_id: str, directories: LogDirectories) -> str:
    """Return the path, with the directory id if another directory has the same path."""
    taken = any(one.path == path for one in directories.all)
    return f"{path} ({directory_id})" if taken else path
