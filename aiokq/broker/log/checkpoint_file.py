"""Offset checkpoints: text files of a log directory with one row per partition.

Source: Kafka ``CheckpointFile.java``. Tests: ``tests/unit/broker/log/test_checkpoint_file.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiokq.broker.log import file_names
from aiokq.broker.log.config import INT_MAX, LONG_MAX
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.numbers import parse_number
from aiokq.core.types import TopicPartition

_VERSION: Final = "0"


def replace_text(files: Files, path: str, lines: Iterable[str], *, durable: bool = False) -> None:
    """Replace the content of a file; a killed process leaves either the old or the new content.

    Args:
        durable: whether to sync the file, so that a power cut also leaves the old or new content.
    """
    data = "".join(f"{line}\n" for line in lines).encode()
    if durable:
        files.write_atomic(path, data)
    else:
        replace_file(files, path, data)


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Replace the content of a file without a sync.

    Used for files that the caller syncs later, or that the next start can rebuild.
    """
    temporary = path + file_names.TEMPORARY
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwritev([data], 0)
    finally:
        file.close()
    files.rename(temporary, path)


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a checkpoint with an offset per partition; the file is durable on return."""
    rows = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    replace_text(files, path, [_VERSION, str(len(rows)), *rows], durable=True)


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Read a checkpoint; a missing or empty file is an empty checkpoint.

    Raises:
        CorruptRecord: the file is malformed.
    """
    if not files.exists(path):
        return {}
    data = files.read_bytes(path)
    if not data:
        return {}  # Kafka creates the file before there are offsets to write
    lines = data.decode("utf-8", "replace").split("\n")
    offsets: dict[TopicPartition, int] = {}
    try:
        if lines[0] != _VERSION:
            raise ValueError(f"unknown version {lines[0]!r}")
        count = parse_number(lines[1], INT_MAX)
        for line in lines[2 : 2 + count]:
            topic, partition, offset = line.split()
            at = TopicPartition(topic, parse_number(partition, INT_MAX))
            offsets[at] = parse_number(offset, LONG_MAX)
        if len(offsets) != count:
            raise ValueError(f"{len(offsets)} entries, but the count is {count}")
    except (ValueError, IndexError) as error:
        raise CorruptRecord(f"{path} is malformed: {error}") from error
    return offsets
