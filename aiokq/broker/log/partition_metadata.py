"""``partition.metadata``: the file with the topic id of a partition's directory.

Source: Kafka ``PartitionMetadataFile.java``.
Tests: ``tests/unit/broker/log/test_partition_metadata.py``.
"""

from __future__ import annotations

import uuid

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import replace_text
from aiokq.broker.log.uuid_text import format_uuid, parse_uuid
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files

__all__ = ["read_partition_metadata", "write_partition_metadata"]


def write_partition_metadata(files: Files, directory: str, topic_id: uuid.UUID) -> None:
    """Write the topic id of a partition's directory."""
    path = f"{directory}/{file_names.PARTITION_METADATA}"
    replace_text(files, path, ["version: 0", f"topic_id: {format_uuid(topic_id)}"])


def read_partition_metadata(files: Files, directory: str) -> uuid.UUID | None:
    """Return the topic id of a partition's directory; None if there is no file.

    Raises:
        CorruptRecord: the file is malformed.
    """
    path = f"{directory}/{file_names.PARTITION_METADATA}"
    if not files.exists(path):
        return None
    values: dict[str, str] = {}
    for line in files.read_bytes(path).decode("utf-8", "replace").split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            values[name.strip()] = value.strip()
    try:
        if values["version"] != "0":
            raise ValueError(f"unknown version {values['version']!r}")
        return parse_uuid(values["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptRecord(f"{path} is malformed: {error}") from error
