"""Encoder of a batch of coordinator records: one timestamp, uncompressed, no headers.

`records.record.encode_batch` encodes any records but takes three times as long, and every offset
commit is such a batch.

Tests: ``tests/unit/broker/coordinator/test_record_batch.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiokq.records.header import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Checksum,
    pack_header,
)
from aiokq.records.varint import append_varint

__all__ = ["encode_record_batch"]

_MAGIC: Final = 2
_NULL: Final = b"\x01"  # the length -1
_SHORT: Final = tuple(bytes((2 * value,)) for value in range(64))


def encode_record_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    *,
    now_ms: int,
    crc32c: Checksum,
    producer: tuple[int, int] | None = None,
) -> tuple[bytearray, BatchHeader]:
    """Return a v2 batch with base offset 0, and its header.

    Args:
        pairs: key and value of each record; a value of None is a tombstone.
        now_ms: the timestamp of all records.
        producer: id and epoch of the producer whose transaction contains the records.
    """
    parts = []
    for index, (key, value) in enumerate(pairs):
        body = b"".join(
            (
                b"\0\0",  # attributes, and the timestamp delta
                _varint(index),
                _varint(len(key)),
                key,
                _NULL if value is None else _varint(len(value)),
                value or b"",
                b"\0",  # no headers
            )
        )
        parts.append(_varint(len(body)))
        parts.append(body)
    content = b"".join(parts)
    count = len(pairs)
    length = HEADER_SIZE - LOG_OVERHEAD + len(content)
    attributes, producer_id, producer_epoch = 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if producer is not None:
        attributes, (producer_id, producer_epoch) = TRANSACTIONAL_MASK, producer
    after_crc = (
        attributes,
        count - 1,
        now_ms,
        now_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    before_crc = (0, length, NO_LEADER_EPOCH, _MAGIC)
    data = bytearray(pack_header(BatchHeader._make((*before_crc, 0, *after_crc))))
    data += content
    with memoryview(data) as view:
        crc = crc32c(view[ATTRIBUTES_OFFSET:])
    data[ATTRIBUTES_OFFSET - 4 : ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return data, BatchHeader._make((*before_crc, crc, *after_crc))


def _varint(value: int) -> bytes:
    if value < len(_SHORT):
        return _SHORT[value]
    out = bytearray()
    append_varint(out, value)
    return bytes(out)
