"""Reading of batch headers and batches from files.

The functions use only the files that the caller passes. Any thread may call the functions, also
while the log is appended to.

Tests: ``tests/unit/broker/log/test_batch_reading.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File, FileRange
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from aiokq.records.record import RawRecord, iter_records

READ_AHEAD: Final = 8 * 1024
"""Bytes per read: enough for several small batches, or for the beginning of a large batch."""

_LENGTH: Final = struct.Struct(">i")


class NotCached(Exception):
    """A header is not in the page cache and would have to be read from the disk."""


class FoundBatch(NamedTuple):
    """The header of a batch and its position in a file."""

    position: int
    header: BatchHeader


def walk_headers(
    file: File, position: int, end: int, *, cached: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch from ``position`` up to ``end``.

    The iteration ends before a batch that would extend beyond ``end``. Records are not decoded.

    Args:
        cached: whether to read from the page cache only.

    Raises:
        CorruptRecord: there is no batch at a position where a batch should begin.
        NotCached: with ``cached``, a header has to be read from the disk.
    """
    chunk: bytes | bytearray = b""
    start = position
    while position + 17 <= end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            start, at = position, 0
            wanted = min(READ_AHEAD, end - position)
            if cached:
                there = file.pread_cached(wanted, position)
                if len(there) < min(wanted, HEADER_SIZE):
                    raise NotCached
                chunk = there
            else:
                chunk = file.pread(wanted, position)
        if at + LOG_OVERHEAD > len(chunk):
            return
        size = _LENGTH.unpack_from(chunk, at + 8)[0] + LOG_OVERHEAD
        if position + size > end and size > LOG_OVERHEAD:
            return
        header = read_header(chunk, at)
        yield position, header
        position += header.size


def first_batch(
    file: File, begin: int, end: int, *, offset: int, reach: int, cached: bool = False
) -> FoundBatch | None:
    """Return the first batch whose last offset is at least ``offset``; None if there is none.

    Batches are read from position ``begin`` up to ``end``. The search also ends at a batch that
    ends at position ``reach`` or later; that batch is returned.

    Raises:
        CorruptRecord: there is no batch at a position where a batch should begin.
        NotCached: with ``cached``, a header has to be read from the disk.
    """
    for position, header in walk_headers(file, begin, end, cached=cached):
        if header.last_offset >= offset or position + header.size >= reach:
            return FoundBatch(position, header)
    return None


def read_batch(file: File, position: int, header: BatchHeader) -> bytes:
    """Return the bytes of one whole batch.

    Raises:
        CorruptRecord: the file ends inside the batch.
        OSError: the disk failed.
    """
    data = file.pread(header.size, position)
    if len(data) != header.size:
        raise CorruptRecord(f"{file.path} ends inside the batch at position {position}")
    return data


def read_batches(fragments: Iterable[FileRange]) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield header and bytes of each batch in the ranges that ``PartitionLog.read`` returned.

    Only one batch at a time is in memory.

    Raises:
        CorruptRecord: a batch is malformed, or a file ends inside a batch.
        OSError: the disk failed.
    """
    for fragment in fragments:
        end = fragment.position + fragment.length
        for position, header in walk_headers(fragment.file, fragment.position, end):
            yield header, read_batch(fragment.file, position, header)


def first_record_since(
    fragment: FileRange, timestamp_ms: int, start_offset: int
) -> RawRecord | None:
    """Return the first record with at least this timestamp and at least this offset.

    Returns None if the range has no such record.

    Raises:
        CorruptRecord: a batch is malformed, or the file ends inside a batch.
        UnsupportedCompressionType: a batch has an unknown codec.
        RecordTooLarge: a batch decompresses to too many bytes.
        OSError: the disk failed.
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
    """Yield the records of one batch of magic 0, 1 or 2."""
    if header.magic >= 2:
        yield from iter_records(data, header)
        return
    from aiokq.records.legacy import decode_message_set

    for message in decode_message_set(data):
        yield RawRecord(*message[:4])
