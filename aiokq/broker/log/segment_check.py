"""Check of a segment after an unclean shutdown: finds its first bad batch.

The CRC of a batch does not cover its base offset, so offsets are checked by their order: they rise,
with gaps where compaction removed records. A damaged base offset looks like a gap before its batch.
The base offset of the next batch then shows whether the gap is real.

Source: Kafka ``LogSegment.recover``. Tests: ``tests/unit/broker/log/test_recovery.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File
from aiokq.records.header import HEADER_SIZE, BatchHeader, Checksum, read_header, verify_crc

WINDOW: Final = 1024 * 1024
"""Bytes per read; a larger batch is read in one piece."""

_RELATIVE_MAX: Final = 2**31 - 1


class BadBatch(Exception):
    """The first bad batch of a segment.

    Attributes:
        position: position in the file at which the batch begins.
        expected: the lowest base offset that the batch could have.
        reason: description of the error in the batch.
    """

    def __init__(self, position: int, expected: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.expected = expected
        self.reason = reason


def valid_batches(
    file: File,
    end: int,
    base_offset: int,
    expected: int,
    crc32c: Checksum,
    *,
    ends_at: int | None = None,
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each valid batch, from the beginning of the file.

    Args:
        end: size of the file.
        base_offset: base offset of the segment.
        expected: the lowest offset that the first batch may have.
        ends_at: the log end offset in a checkpoint, or None. If there is a gap before the last
            batch, this offset shows whether records are missing there, or whether the base offset
            of the batch is damaged.

    Raises:
        BadBatch: a batch is not valid; the valid batches before it were yielded.
    """
    # If there is a gap before a batch, the batch is held here until the next batch has been read,
    # because the offset of the next batch may show that the gap is not real.
    held: tuple[int, BatchHeader] | None = None
    before = expected
    for position, header, reason in _batches(file, end, crc32c):
        if not reason:
            reason = offset_error(header, expected, base_offset)
        if held is not None:
            at, batch = held
            if reason and header is not None and _contradicts(header.base_offset, batch, before):
                raise _no_gap(at, batch, before)
            yield held
            held = None
        if reason or header is None:
            raise BadBatch(position, expected, reason)
        if header.base_offset > expected and header.magic >= 2:
            held, before = (position, header), expected
        else:
            yield position, header
        expected = header.next_offset
    if held is not None:
        at, batch = held
        if ends_at is not None and _contradicts(ends_at, batch, before):
            raise _no_gap(at, batch, before)
        yield held


def _batches(
    file: File, end: int, crc32c: Checksum
) -> Iterator[tuple[int, BatchHeader | None, str]]:
    """Yield position, header and error of each batch.

    If the header is malformed or the file ends inside the batch, the header is None, and the
    iteration ends.
    """
    window, start, position = memoryview(b""), 0, 0
    while position < end:
        at = position - start
        if len(window) - at < min(HEADER_SIZE, end - position):
            window, start, at = _read(file, position, WINDOW, end), position, 0
        try:
            header = read_header(window, at)
        except CorruptRecord as error:
            yield position, None, error.message
            return
        if header.size > end - position:
            yield position, None, f"batch of {header.size} bytes with {end - position} left"
            return
        if len(window) - at < header.size:
            window, start, at = _read(file, position, max(header.size, WINDOW), end), position, 0
        sound = verify_crc(window[at : at + header.size], header, crc32c)
        yield position, header, "" if sound else "CRC mismatch"
        position += header.size


def _read(file: File, position: int, size: int, end: int) -> memoryview:
    return memoryview(file.pread(min(size, end - position), position))


def offset_error(header: BatchHeader | None, expected: int, base_offset: int) -> str:
    """Return a description of the error in a batch's offsets; "" if there is no error.

    Args:
        expected: the lowest offset that the batch may have.
        base_offset: base offset of the segment.
    """
    if header is None:
        return ""
    if header.base_offset < expected and header.magic >= 2:
        return f"base offset {header.base_offset}, expected {expected}"
    if header.last_offset < expected or header.last_offset - base_offset > _RELATIVE_MAX:
        return f"last offset {header.last_offset}, expected {expected}"
    return ""


def _contradicts(next_offset: int, held: BatchHeader, expected: int) -> bool:
    """Whether ``next_offset`` shows that ``held`` begins at ``expected``, not at its base offset.

    Args:
        next_offset: the offset at which the log continues after ``held``.
        held: a batch whose base offset is higher than ``expected``.
        expected: the offset after the batch before ``held``.
    """
    return next_offset == expected + held.last_offset_delta + 1 != held.next_offset


def _no_gap(position: int, batch: BatchHeader, expected: int) -> BadBatch:
    reason = f"base offset {batch.base_offset}, expected {expected}"
    return BadBatch(position, expected, reason)
