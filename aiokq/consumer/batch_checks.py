"""Checks the checksums of fetched batches, counts records, and finds the end of readable data."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import CorruptRecord, KafkaError
from aiokq.core.named_tuple import NamedTuple
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.consume import Cursor

__all__ = [
    "RecordOffsets",
    "RemainingRecords",
    "SoundPrefix",
    "corrupt_batch",
    "count_remaining",
    "sound_prefix",
]

# base offset, length, magic, CRC, attributes, last offset delta, ..., record count
_HEADER: Final = struct.Struct(">qi4xbIhi30xi")
_OVERHEAD: Final = 12
_ATTRIBUTES: Final = 21
_CONTROL: Final = 1 << 5


class SoundPrefix(NamedTuple):
    """The undamaged batches at the start of a chunk.

    Attributes:
        size: the size of these batches in bytes; the size of the chunk if no batch is damaged.
        next_offset: the position after the last undamaged batch; used only if a batch is damaged.
        records: the number of records according to the headers; None if a batch has an old format
            or an invalid header, or begins before the start offset.
        checked: whether the checksums were verified.
        beyond: the position after the damaged batch, according to its header; -1 if no batch is
            damaged.
    """

    size: int
    next_offset: int
    records: int | None
    checked: bool
    beyond: int


class RemainingRecords(NamedTuple):
    """The number of a cursor's remaining records.

    Attributes:
        records: the number, up to the first batch that cannot be decoded.
        next_offset: the position after these records.
        error: why the following batch cannot be decoded; None at the end of the data.
    """

    records: int
    next_offset: int
    error: KafkaError | None


def sound_prefix(data: memoryview, start_offset: int, *, check_crcs: bool) -> SoundPrefix:
    """Return the undamaged batches of `data`, with the number of records from `start_offset` on.

    Batches of old formats and batches with invalid headers are not checked here: the Cursor that
    reads them reports their errors.
    """
    # Hot path, once per batch; measured by benchmarks/micro/consumer.py.
    position, end, records, next_offset = 0, len(data), 0, start_offset
    exact = True
    while end - position >= _HEADER.size:
        base, length, magic, crc, attributes, delta, count = _HEADER.unpack_from(data, position)
        behind = position + length + _OVERHEAD
        if magic != 2 or length < _HEADER.size - _OVERHEAD or count < 0:
            return SoundPrefix(end, next_offset, None, False, -1)
        if behind > end:
            break
        if check_crcs and crc32c(data[position + _ATTRIBUTES : behind]) != crc:
            beyond = max(base + delta, base, next_offset) + 1
            return SoundPrefix(position, next_offset, records if exact else None, True, beyond)
        next_offset = max(next_offset, base + delta + 1)
        exact = exact and base >= start_offset
        if not attributes & _CONTROL:
            records += count
        position = behind
    return SoundPrefix(end, next_offset, records if exact else None, check_crcs, -1)


def corrupt_batch(tp: TopicPartition, offset: int, beyond: int) -> CorruptRecord:
    """Return the error for a batch with a wrong checksum."""
    return CorruptRecord(
        f"a wrong CRC-32C, in the batch at or after offset {offset} of {tp}; "
        f"seek(({tp.topic!r}, {tp.partition}), {beyond}) skips this batch",
        topic_partition=tp,
    )


def count_remaining(cursor: Cursor) -> RemainingRecords:
    """Count the remaining records by decoding them, which exhausts the cursor."""
    records = 0
    try:
        while not cursor.exhausted:  # columns() stops before undecodable data
            records += len(cursor.columns(()))
    except KafkaError as error:
        return RemainingRecords(records, cursor.position, error)
    return RemainingRecords(records, cursor.position, None)


class RecordOffsets:
    """The offsets of a cursor's remaining records, up to undecodable data.

    The constructor reads all records, which exhausts the cursor.
    """

    __slots__ = ("_first", "_offsets", "_reached")

    def __init__(self, cursor: Cursor) -> None:
        self._first = cursor.position
        self._offsets = array("q")
        try:
            while not cursor.exhausted:  # columns() stops before undecodable data
                self._offsets.frombytes(cursor.columns(("offset",)).offset or b"")
        except KafkaError:
            pass  # the reader gets this error when it reads that far
        self._reached = cursor.position

    def cover(self, position: int) -> bool:
        """Whether the offsets of all decodable records from `position` on are known."""
        return self._first <= position < self._reached

    def count(self, start: int, end: int) -> int:
        """Return the number of records with `start` <= offset < `end`."""
        return bisect_left(self._offsets, end) - bisect_left(self._offsets, start)
