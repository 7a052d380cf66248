"""Reads the metadata log at a start, before `metadata_start` opens it.

Tests: ``tests/unit/broker/test_storage.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.disk_trouble import unusable
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.core.files import Files

__all__ = ["metadata_bytes", "read_metadata"]


def metadata_bytes(files: Files, home: LogDirectory) -> int:
    """Return the size of the metadata log in a directory; 0 if there is none.

    Raises:
        KafkaStorage: the disk failed; the message says what to do.
    """
    try:
        return _reader(files, home).size_bytes()
    except OSError as error:
        raise unusable(home.path, error) from error


def read_metadata(files: Files, home: LogDirectory) -> MetadataState | None:
    """Return the content of the metadata log in a directory; None if there is none.

    Nothing is changed.

    Raises:
        KafkaStorage: the log is damaged, was written by a newer Kafka, or the disk failed; the
            message says what to do.
    """
    reader = _reader(files, home)
    try:
        return reader.read() if reader.exists() else None
    except OSError as error:
        raise unusable(home.path, error) from error


def _reader(files: Files, home: LogDirectory) -> MetadataReader:
    return MetadataReader(files, f"{home.path}/{file_names.CLUSTER_METADATA}", crc32c)
