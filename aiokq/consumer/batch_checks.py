"""Owns how much of a chunk can be handed over as a whole: up to what cannot be read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.core.errors import CorruptRecord, KafkaError
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.consume import Cursor

__all__ = ["RemainingRecords", "SoundPrefix", "corrupt_batch", "count_remaining", "sound_prefix"]

# base offset, length, magic, CRC, attributes, last offset delta, ..., count
_HEADER: Final = struct.Struct(">qi4xbIhi30xi")
_OVERHEAD: Final = 12
_ATTRIBUTES: Final = 21
_CONTROL: Final = 1 << 5


class SoundPrefix(NamedTuple):
    """The good part at the start of a chunk.

    Attributes:
        size: its bytes; all of the chunk if nothing is wrong with it.
        next_offset: the position behind it, where it ends early.
        records: how many it has by its headers; None if they do not tell, or not of those wanted.
        checked: its checksums were verified.
        beyond: the position behind the corrupt batch that follows it, by that one's header; -1 if
            none does.
    """

    size: int
    next_offset: int
    records: int | None
    checked: bool
    beyond: int


class RemainingRecords(NamedTuple):
    """How many records a cursor has left.

    Attributes:
        records: how many, up to what cannot be decoded.
        next_offset: the position behind them.
        error: what is raised behind them; None if the end is.
    """

    records: int
    next_offset: int
    error: KafkaError | None


def sound_prefix(data: memoryview, start_offset: int, *, check_crcs: bool) -> SoundPrefix:
    """How much of the batches in `data` is good, and how many records from `start_offset` on.

    Old formats and headers that make no sense are left for the Cursor to judge.

    # hot: once per batch, benchmarks/micro/consumer.py
    """
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
    """The error about a batch whose checksum is wrong."""
    return CorruptRecord(
        f"a wrong CRC-32C, in the batch at or after offset {offset} of {tp}; "
        f"seek(({tp.topic!r}, {tp.partition}), {beyond}) goes on behind it",
        topic_partition=tp,
    )


def count_remaining(cursor: Cursor) -> RemainingRecords:
    """Decodes all that is left, where the headers do not tell; the cursor is used up by that."""
    records = 0
    try:
        while not cursor.exhausted:  # columns end before what the next call raises
            records += len(cursor.columns(()))
    except KafkaError as error:
        return RemainingRecords(records, cursor.position, error)
    return RemainingRecords(records, cursor.position, None)
