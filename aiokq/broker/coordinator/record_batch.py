"""Uncompressed batches of coordinator records, with one timestamp and without record headers.

`records.record` encodes and decodes every kind of batch, but takes three times as long. Each offset
commit writes a batch of this form, and the load of a coordinator reads hundreds of thousands of
such batches.

Tests: ``tests/unit/broker/coordinator/test_record_batch.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiokq.records.header import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Checksum,
    sealed_batch,
)
from aiokq.records.record import iter_records
from aiokq.records.varint import append_varint

__all__ = ["decode_record_batch", "encode_record_batch"]

_NULL: Final = b"\x01"  # the length -1
_TWO_BYTES: Final = 1 << 14  # the smallest unsigned varint of more than two bytes
_SHORT: Final = tuple(bytes((2 * value,)) for value in range(64))


def encode_record_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    *,
    now_ms: int,
    crc32c: Checksum,
    producer: tuple[int, int] | None = None,
) -> tuple[bytes, BatchHeader]:
    """Return a v2 batch with base offset 0, and its header.

    Args:
        pairs: key and value of each record; a value of None is a tombstone.
        now_ms: the timestamp of all records.
        producer: id and epoch of the producer whose transaction contains the records.
    """
    parts = []
    for index, (key, value) in enumerate(pairs):
        # The first two zeros are the attributes and the timestamp delta, the last is the number
        # of headers.
        size = _NULL if value is None else _varint(len(value))
        body = b"\0\0%b%b%b%b%b\0" % (_varint(index), _varint(len(key)), key, size, value or b"")
        parts.append(_varint(len(body)))
        parts.append(body)
    attributes, producer_id, producer_epoch = 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if producer is not None:
        attributes, (producer_id, producer_epoch) = TRANSACTIONAL_MASK, producer
    return sealed_batch(
        b"".join(parts),
        count=len(pairs),
        timestamp_ms=now_ms,
        crc32c=crc32c,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def decode_record_batch(
    data: bytes, position: int, header: BatchHeader
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of each record of a v2 batch.

    `iter_records` decodes batches that do not have the form of `encode_record_batch`.

    Args:
        data: bytes that contain the batch.
        position: where the batch begins in `data`.

    Raises:
        CorruptRecord, RecordTooLarge, UnsupportedCompressionType: see `iter_records`.
    """
    # Hot path: a coordinator with many records calls this function for each batch when it loads.
    found: list[tuple[int, bytes | None, bytes | None]] = []
    at = position + HEADER_SIZE
    offset = header.base_offset
    try:
        while len(found) < header.count and not header.codec:
            size, at = data[at], at + 1
            if size > 0x7F:
                size, at = size & 0x7F | data[at] << 7, at + 1
            end = at + (size >> 1)
            # If a record does not have the usual form, the loop ends, and `iter_records` decodes
            # the whole batch. In the usual form, sizes take at most two bytes, and only the size
            # of a null value is negative. The timestamp delta is 0, the offset delta is the index,
            # there are no headers, and the batch has at most 64 records.
            if size & 1 or size >= _TWO_BYTES or data[at + 1] or data[at + 2] != len(found) << 1:
                break
            size, at = data[at + 3], at + 4
            if size > 0x7F:
                size, at = size & 0x7F | data[at] << 7, at + 1
            if size & 1 or size >= _TWO_BYTES:
                break
            key = data[at : at + (size >> 1)]
            at += size >> 1
            size, at = data[at], at + 1
            if size > 0x7F:
                size, at = size & 0x7F | data[at] << 7, at + 1
            value = None
            if size != 1:
                if size & 1 or size >= _TWO_BYTES:
                    break
                value = data[at : at + (size >> 1)]
                at += size >> 1
            if data[at] or at + 1 != end or len(found) >= len(_SHORT):
                break
            at = end
            found.append((offset + len(found), key, value))
    except IndexError:
        found.clear()
    if found and len(found) == header.count and at == position + header.size:
        return found
    batch = memoryview(data)[position : position + header.size]
    return [(each.offset, each.key, each.value) for each in iter_records(batch, header)]


def _varint(value: int) -> bytes:
    if value < len(_SHORT):
        return _SHORT[value]
    out = bytearray()
    append_varint(out, value)
    return bytes(out)
