"""Owns the walk from batch header to batch header through a file, with few, bounded reads.

Knows files and nothing of the log they are part of: what is walked is a range that was asked for
before, so that any thread may do it while the log goes on.

Tests: ``tests/unit/broker/log/test_walk.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File, FileRange
from aiokq.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from aiokq.records.record import RawRecord, iter_records

READ_AHEAD: Final = 8 * 1024
"""Bytes per read: small batches lie several in one read, of a large one only the head is read."""

_LENGTH: Final = struct.Struct(">i")


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from ``position`` up to ``end``.

    The first batch that would reach beyond ``end`` ends the walk; records are never read.

    Raises:
        CorruptRecord: where a batch should begin there is none.
    """
    chunk, start = b"", position
    while position + 17 <= end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = file.pread(min(READ_AHEAD, end - position), position), position, 0
        if at + LOG_OVERHEAD > len(chunk):
            return
        size = _LENGTH.unpack_from(chunk, at + 8)[0] + LOG_OVERHEAD
        if position + size > end and size > LOG_OVERHEAD:
            return
        header = read_header(chunk, at)
        yield position, header
        position += header.size


def read_batch(file: File, position: int, header: BatchHeader) -> bytes:
    """The bytes of one whole batch.

    Raises:
        CorruptRecord: the file ends before.
    """
    data = file.pread(header.size, position)
    if len(data) != header.size:
        raise CorruptRecord(f"{file.path} ends inside the batch at position {position}")
    return data


def read_batches(fragments: Iterable[FileRange]) -> Iterator[tuple[BatchHeader, bytes]]:
    """Header and bytes of each batch in what ``PartitionLog.read`` gave, one in memory at a time.

    Raises:
        CorruptRecord: a range does not hold whole batches.
        OSError: the disk refused.
    """
    for fragment in fragments:
        end = fragment.position + fragment.length
        for position, header in walk_headers(fragment.file, fragment.position, end):
            yield header, read_batch(fragment.file, position, header)


def first_record_since(
    fragment: FileRange, timestamp_ms: int, start_offset: int
) -> RawRecord | None:
    """The first record from ``start_offset`` on that is not earlier than ``timestamp_ms``.

    Raises:
        CorruptRecord, OSError: as ``read_batches``.
    """
    end = fragment.position + fragment.length
    for position, header in walk_headers(fragment.file, fragment.position, end):
        if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
            continue
        for record in batch_records(read_batch(fragment.file, position, header), header):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return record
    return None


def batch_records(data: bytes, header: BatchHeader) -> Iterator[RawRecord]:
    """The records of one batch, whatever its magic."""
    if header.magic >= 2:
        yield from iter_records(data, header)
        return
    from aiokq.records.legacy import decode_message_set

    for message in decode_message_set(data):
        yield RawRecord(*message[:4])
