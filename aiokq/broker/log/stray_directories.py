"""Partition directories that the broker does not serve: setting aside, finding, restoring.

Such directories are never deleted, because a user may have copied them to the log directory.

Source: Kafka ``LogManager.addStrayLog``, ``UnifiedLog.logStrayDirName``.
Tests: ``tests/unit/broker/log/test_directory.py``,
``tests/unit/broker/metadata/earlier/test_migration.py``.
"""

from __future__ import annotations

import logging
import uuid
from random import Random

from aiokq.broker.log import file_names
from aiokq.broker.log.partition_metadata import is_damaged_id, read_partition_metadata
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.types import TopicPartition

__all__ = ["StrayDirectories"]

logger = logging.getLogger("aiokq.broker.log")


class StrayDirectories:
    """The stray directories of one log directory. Every method may raise OSError."""

    __slots__ = ("_files", "_path", "_random")

    def __init__(self, files: Files, path: str, random: Random) -> None:
        self._files = files
        self._path = path
        self._random = random

    def set_aside(self, partition: TopicPartition) -> str:
        """Rename a partition's directory as Kafka renames stray directories; return the new path.

        The new name is durable on return.
        """
        renamed = self.rename(partition, file_names.STRAY_DIRECTORY)
        self._files.sync_dir(self._path)
        return renamed

    def rename(self, partition: TopicPartition, suffix: str) -> str:
        """Rename a partition's directory to a unique name, not durably; return the new path."""
        directory = f"{self._path}/{file_names.partition_directory(partition)}"
        unique = uuid.UUID(int=self._random.getrandbits(128)).hex
        renamed = f"{self._path}/{file_names.renamed_directory(partition, unique, suffix)}"
        self._files.rename(directory, renamed)
        return renamed

    def set_aside_other(self, partition: TopicPartition, topic_id: uuid.UUID) -> bool:
        """Set a partition's directory aside if the directory belongs to a topic with another id.

        The records of the other topic must not be served as records of this topic. If the stored id
        is a damaged copy of this topic's id, the directory is not set aside.

        Returns:
            Whether the directory exists and has this topic's id.
        """
        try:
            stored = read_partition_metadata(
                self._files, f"{self._path}/{file_names.partition_directory(partition)}"
            )
        except CorruptRecord:
            return False  # no proof of another topic: a power cut may damage the unsynced file
        if stored == topic_id:
            return True
        if stored is None:
            return False
        if is_damaged_id(stored, topic_id):
            logger.warning("topic id damaged partition=%s path=%s", partition, self._path)
        else:
            renamed = self.set_aside(partition)
            logger.warning(
                "directory of another topic set aside partition=%s topic_id=%s kept=%s",
                partition,
                format_uuid(stored),
                renamed,
            )
        return False

    def find(self) -> dict[tuple[uuid.UUID, int], str]:
        """Return the directories that were set aside, by topic id and partition number.

        Directories without a valid topic id are left out.
        """
        found: dict[tuple[uuid.UUID, int], str] = {}
        for name in self._files.listdir(self._path):
            number = file_names.parse_stray_directory(name)
            if number is None:
                continue
            try:
                topic_id = read_partition_metadata(self._files, f"{self._path}/{name}")
            except CorruptRecord:
                continue
            if topic_id is not None:
                found[topic_id, number] = f"{self._path}/{name}"
        return found

    def take_back(self, partition: TopicPartition, path: str) -> None:
        """Rename a stray directory to the name of its partition, durably."""
        self._files.rename(path, f"{self._path}/{file_names.partition_directory(partition)}")
        self._files.sync_dir(self._path)
