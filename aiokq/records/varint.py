"""Kafka's zigzag varints in Python, for code that is not hot.

Source: KIP-98, ``org.apache.kafka.common.utils.ByteUtils``.
"""

from __future__ import annotations

from aiokq.core.errors import CorruptRecord
from aiokq.core.types import Buffer


def read_varint(data: Buffer, position: int, max_bytes: int = 10) -> tuple[int, int]:
    """Return the zigzag varint at ``position``, and the position after it.

    Raises:
        CorruptRecord: the varint exceeds the data or is longer than ``max_bytes``.
    """
    value = shift = 0
    for index in range(position, position + max_bytes):
        if index >= len(data):
            break
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), index + 1
        shift += 7
    raise CorruptRecord(f"malformed varint at byte {position}")


def append_varint(out: bytearray, value: int) -> None:
    """Append ``value`` as a zigzag varint."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
