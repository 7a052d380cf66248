"""The content of the golden batches, and a CRC-32C independent of the one under test."""

from __future__ import annotations

from pathlib import Path

from aiokq.core.types import Buffer
from aiokq.records.record import RawRecord

GOLDEN = Path(__file__).parents[2] / "golden" / "records"

APPEND_TIME_MS = 1_700_000_009_000
LARGE = bytes(i // 50 % 251 for i in range(40_000))
HEADERS = [("h", b"v"), ("größe", None)]

RECORDS = [
    RawRecord(100, 1_700_000_000_000, b"key", b"value", []),
    RawRecord(101, 1_700_000_000_500, None, b"keyless", HEADERS),
    RawRecord(102, 1_700_000_000_200, b"tombstone", None, []),
    RawRecord(105, 1_700_000_000_900, b"", b"", HEADERS),
    RawRecord(106, 1_700_000_000_100, b"large", LARGE, []),
]
"""The records that GenerateRecords.java writes; 103 and 104 are missing as after compaction."""


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C, computed one byte at a time."""
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
