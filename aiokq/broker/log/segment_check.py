"""Owns the check of a segment after an unclean stop: which batches are sound, and where that ends.

A batch's CRC leaves out its base offset, so offsets are checked by their order: they rise, with
gaps where compaction removed records. A gap that the batch behind it contradicts is a damaged
base offset.

Source: Kafka ``LogSegment.recover``. Tests: ``tests/unit/broker/log/test_recovery.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File
from aiokq.records.header import HEADER_SIZE, BatchHeader, Checksum, read_header, verify_crc

WINDOW: Final = 1024 * 1024
"""Bytes read at a time; a larger batch is read by itself."""

_RELATIVE_MAX: Final = 2**31 - 1


class BadBatch(Exception):
    """Sound batches end here.

    Attributes:
        position: where the bad one begins.
        expected: the least offset it could have had.
        reason: what is wrong with it.
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
    """Position and header of each batch from the file's first byte on.

    Args:
        end: size of the file.
        base_offset: of the segment.
        expected: the least offset the first batch may have.
        ends_at: the log's end offset, where somebody wrote it down: it tells, as a batch behind it
            would, of a gap before the last one that there is none.

    Raises:
        BadBatch: at the first one that is not sound; those before were given.
    """
    held: tuple[int, BatchHeader] | None = None  # a batch behind a gap, until the next agrees
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
    """Each batch, and what is wrong with its bytes: after the first wrong one no more."""
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
    """Why a batch cannot follow, by its offsets; "" if it can.

    Args:
        expected: the least offset that it may have.
        base_offset: of the segment.
    """
    if header is None:
        return ""
    if header.base_offset < expected and header.magic >= 2:
        return f"base offset {header.base_offset} where {expected} was due"
    if header.last_offset < expected or header.last_offset - base_offset > _RELATIVE_MAX:
        return f"last offset {header.last_offset} where {expected} was due"
    return ""


def _contradicts(next_offset: int, held: BatchHeader, expected: int) -> bool:
    """Whether the log goes on as if the batch had no gap in front."""
    return next_offset == expected + held.last_offset_delta + 1 != held.next_offset


def _no_gap(position: int, batch: BatchHeader, expected: int) -> BadBatch:
    reason = f"base offset {batch.base_offset} where {expected} was due"
    return BadBatch(position, expected, reason)
