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

__all__ = ["is_damaged_id", "read_partition_metadata", "write_partition_metadata"]


def write_partition_metadata(files: Files, directory: str, topic_id: uuid.UUID) -> None:
    """Write the topic id of a partition's directory."""
    path = f"{directory}/{file_names.PARTITION_METADATA}"
    replace_text(files, path, ["version: 0", f"topic_id: {format_uuid(topic_id)}"])


def read_partition_metadata(files: Files, directory: str) -> uuid.UUID | None:
    """Return the topic id of a partition's directory; None if there is no file.

    Only the exact format that Kafka and ``write_partition_metadata`` write is accepted. Kafka
    refuses a log directory with a malformed file, so a caller that knows the topic id writes the
    file again.

    Raises:
        CorruptRecord: the file is malformed.
    """
    path = f"{directory}/{file_names.PARTITION_METADATA}"
    try:
        data = files.read_bytes(path)
    except OSError:
        if not files.exists(path):
            return None
        raise
    text = data.decode("utf-8", "replace")
    first, _, second = text.removesuffix("\n").partition("\n")
    version, name = first.removeprefix("version: "), second.removeprefix("topic_id: ")
    try:
        if (version, second) != ("0", f"topic_id: {name}") or first == version:
            raise ValueError("not the two lines of version 0")
        topic_id = parse_uuid(name)
        if format_uuid(topic_id) != name:
            raise ValueError(f"{name!r} is no topic id")
    except ValueError as error:
        raise CorruptRecord(f"{path} is malformed: {error}") from error
    return topic_id


def is_damaged_id(stored: uuid.UUID, topic_id: uuid.UUID) -> bool:
    """Whether a stored id differs from a topic's id in exactly one character.

    Topic ids are random, so the ids of two topics differ in more characters.
    """
    pairs = zip(format_uuid(stored), format_uuid(topic_id), strict=True)
    return sum(one != other for one, other in pairs) == 1
