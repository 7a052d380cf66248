"""Damaged segments of the metadata log whose records are in the newest snapshot.

`metadata_reader` does not read segments that end at or before the end of the newest snapshot. The
recovery of the log would cut the log at a bad batch in such a segment, and the records after the
snapshot would be lost. These segments are therefore set aside before the recovery.

Tests: ``tests/unit/broker/metadata/log/test_covered_segments.py``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.corruption import Damage
from aiokq.broker.log.segment_check import BadBatch, valid_batches

if TYPE_CHECKING:
    from aiokq.core.files import Files
    from aiokq.core.types import TopicPartition
    from aiokq.records.header import Checksum

__all__ = ["damaged_segments", "set_damaged_aside"]


def damaged_segments(files: Files, directory: str, end_offset: int, crc32c: Checksum) -> list[int]:
    """Return the base offsets of the segments up to and including the last damaged one.

    Only segments that end at or before the end of the snapshot are examined. The result is empty if
    none of them is damaged.

    Args:
        end_offset: end offset of the newest snapshot.

    Raises:
        OSError: the disk failed.
    """
    found = map(file_names.parse_segment_file, files.listdir(directory))
    bases = sorted(base for base, suffix in filter(None, found) if suffix == file_names.LOG)
    covered = [(base, after) for base, after in pairwise(bases) if after <= end_offset]
    damaged = 0
    for number, (base, after) in enumerate(covered, 1):
        if _end(files, directory, base, crc32c) != after:
            damaged = number
    return [base for base, _ in covered[:damaged]]


def set_damaged_aside(
    files: Files, directory: str, name: TopicPartition, end_offset: int, crc32c: Checksum
) -> None:
    """Set aside the segments that ``damaged_segments`` returns.

    The files are renamed, with ``.corrupt-`` in their names, and a log message names them.

    Raises:
        OSError: the disk failed.
    """
    damaged = damaged_segments(files, directory, end_offset, crc32c)
    Damage(files, directory, name, crc32c).set_segments_aside(damaged)


def _end(files: Files, directory: str, base: int, crc32c: Checksum) -> int:
    """Return the offset after the last record of a segment; -1 if a batch is damaged."""
    file = files.open(file_names.segment_file(directory, base, file_names.LOG), writable=False)
    end = base
    try:
        for _, header in valid_batches(file, file.size(), base, base, crc32c):
            end = header.next_offset
    except BadBatch:
        return -1
    finally:
        file.close()
    return end
