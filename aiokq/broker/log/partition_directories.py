"""The directories of partitions in one log directory, as they are on the disk.

Whether a partition should exist is recorded in the metadata, which this module does not read.

Tests: ``tests/unit/broker/log/test_directory.py``, ``tests/unit/broker/log/test_directories.py``.
"""

from __future__ import annotations

import logging
import uuid

from aiokq.broker.log import file_names
from aiokq.broker.log.partition_metadata import read_partition_metadata
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.types import TopicPartition
from aiokq.records.header import LOG_OVERHEAD

__all__ = ["PartitionDirectories"]

logger = logging.getLogger("aiokq.broker.log")


class PartitionDirectories:
    """Finds the partitions in a log directory. Every method reads the disk, and may raise OSError.

    Args:
        path: path of the log directory.
    """

    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def partitions(self) -> dict[TopicPartition, uuid.UUID | None]:
        """Return the partitions that have a directory, each with its stored topic id.

        The topic id is None if ``partition.metadata`` is missing or damaged.
        """
        found: dict[TopicPartition, uuid.UUID | None] = {}
        for partition in self.names():
            directory = f"{self._path}/{file_names.partition_directory(partition)}"
            try:
                topic_id = read_partition_metadata(self._files, directory)
            except CorruptRecord as error:
                logger.warning("topic id unknown partition=%s %s", partition, error.message)
                topic_id = None
            if topic_id is not None or self._files.is_dir(directory):
                found[partition] = topic_id
        return found

    def names(self) -> list[TopicPartition]:
        """Return each partition whose directory name occurs in this log directory.

        The entry with this name may be a file.
        """
        parsed = map(file_names.parse_partition_directory, self._files.listdir(self._path))
        return [partition for partition in parsed if partition is not None]

    def has_segments(self, partition: TopicPartition) -> bool:
        """Whether the directory of a partition contains a log.

        Raises:
            OSError: the disk failed.
        """
        found = self._files.listdir(f"{self._path}/{file_names.partition_directory(partition)}")
        return any(name.endswith(file_names.LOG) for name in found)

    def was_written(self, partition: TopicPartition) -> bool:
        """Whether the log of a partition has, or ever had, a batch.

        The ``.log`` of a log without batches may be empty, or a preallocated file of zeros.

        Raises:
            OSError: the disk failed.
        """
        directory = f"{self._path}/{file_names.partition_directory(partition)}"
        for name in self._files.listdir(directory):
            match file_names.parse_segment_file(name):
                case (base_offset, file_names.LOG):
                    if base_offset > 0 or self._has_batch(f"{directory}/{name}"):
                        return True
        return False

    def _has_batch(self, path: str) -> bool:
        file = self._files.open(path, writable=False)
        try:
            return any(file.pread(LOG_OVERHEAD, 0))  # a batch begins with its offset and its size
        finally:
            file.close()
