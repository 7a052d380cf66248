"""Which log directories a node had, and what becomes of those that it is started without.

Owns the look for them, after the metadata log is read and before the first log is opened. A
directory that was left out of ``log.dirs``, or an empty mount point in place of its disk, has its
partitions offline, as one that cannot be read: made anew elsewhere, their records would seem lost,
and be lost as soon as the directory comes back. One that had no partition is forgotten.

Source: KIP-858, where the controller knows which directory has a partition.
Tests: ``tests/unit/broker/test_missing_directories.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiokq.broker.metadata_records import DirectoriesKnown
from aiokq.core.errors import KafkaStorage
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata_log import MetadataLog
    from aiokq.broker.metadata_records import MetadataImage

__all__ = ["look_for_missing"]

logger = logging.getLogger("aiokq.broker")


def look_for_missing(directories: LogDirectories, metadata: MetadataLog) -> None:
    """Take directories offline that the node had and has no more; write down those that it has.

    Args:
        directories: which of them has which partition is known already.

    Raises:
        KafkaStorage: the metadata log cannot be written.
    """
    known = metadata.image.directories
    present = {one.properties.directory_id or "": one.path for one in directories.all}
    missing = {
        directory_id: path
        for directory_id, path in known.items()
        # one that cannot be read has an id that nobody knows
        if directory_id not in present and path not in directories.unopened
    }
    unreadable = {
        directory_id: path
        for directory_id, path in known.items()
        if directory_id not in present and path in directories.unopened
    }
    homeless = _homeless(metadata.image, directories) if missing else []
    if homeless:
        for directory_id, path in missing.items():
            directories.unopened[_name(path, directory_id, directories)] = KafkaStorage(
                f"log directory {path} (directory.id {directory_id}) is not there: give it again,"
                " with its disk mounted, or delete the topics that had partitions in it"
            )
        logger.error(
            "log directories are missing that the node had: paths=%s partitions offline=%d first=%s"
            " - give them again, with their disks mounted, or delete the topics",
            ",".join(missing.values()),
            len(homeless),
            homeless[0],
        )
    elif missing:
        logger.info(
            "log directories forgotten, nothing was in them: %s", ",".join(missing.values())
        )
        missing = {}
    now = missing | unreadable | present
    # The only directory a node ever had takes the metadata log along when it goes.
    if now != known and (known or len(directories.all) + len(directories.unopened) > 1):
        metadata.append(DirectoriesKnown(now))


def _homeless(image: MetadataImage, directories: LogDirectories) -> list[TopicPartition]:
    """The partitions that are in none of the directories."""
    partitions = (
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index in range(topic.partitions)
        if index not in topic.elsewhere
    )
    return [one for one in partitions if directories.directory_of(one) is None]


def _name(path: str, directory_id: str, directories: LogDirectories) -> str:
    """What it is called where another one may have its path now."""
    taken = any(one.path == path for one in directories.all)
    return f"{path} ({directory_id})" if taken else path
