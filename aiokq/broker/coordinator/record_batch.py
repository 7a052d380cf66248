"""A batch of coordinator records: keys and values of one time, uncompressed. Owns only its bytes.

What `records.record.encode_batch` does for any records, in a third of the time: every commit is
such a batch.

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
    BatchHeader,
    Checksum,
    pack_header,
)
from aiokq.records.varint import append_varint

__all__ = ["encode_shard_batch"]

_MAGIC: Final = 2
_NULL: Final = b"\x01"  # the length -1
_SHORT: Final = tuple(bytes((2 * value,)) for value in range(64))


def encode_shard_batch(
    pairs: Sequence[tuple[bytes, bytes | None]], *, now_ms: int, crc32c: Checksum
) -> tuple[bytearray, BatchHeader]:
    """One v2 batch from offset 0 on, and its header; None as a value is a tombstone.

    Args:
        now_ms: the time of all records.
    """
    parts = []
    for index, (key, value) in enumerate(pairs):
        body = b"".join(
            (
                b"\0\0",  # attributes, and the distance to the batch's time
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
    no_producer = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    behind_crc = (0, count - 1, now_ms, now_ms, *no_producer, count)
    in_front = (0, length, NO_LEADER_EPOCH, _MAGIC)
    data = bytearray(pack_header(BatchHeader._make((*in_front, 0, *behind_crc))))
    data += content
    with memoryview(data) as view:
        crc = crc32c(view[ATTRIBUTES_OFFSET:])
    data[ATTRIBUTES_OFFSET - 4 : ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return data, BatchHeader._make((*in_front, crc, *behind_crc))


def _varint(value: int) -> bytes:
    if value < len(_SHORT):
        return _SHORT[value]
    out = bytearray()
    append_varint(out, value)
    return bytes(out)
