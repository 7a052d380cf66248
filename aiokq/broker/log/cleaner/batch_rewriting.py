"""Reading and encoding of the batches that the cleaner processes in Python.

These are compressed, transactional, control and legacy batches; ``fastpath`` processes all others.

Source: Kafka ``MemoryRecords.filterTo``, ``AbstractLegacyRecordBatch.java``.
Tests: ``tests/unit/broker/log/test_cleaner.py``.
"""

from __future__ import annotations

from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.types import Buffer
from aiokq.fastpath import crc32c
from aiokq.records import compression
from aiokq.records.control import read_control_type
from aiokq.records.header import (
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    computed_crc,
    pack_header,
    read_header,
)
from aiokq.records.record import iter_records

__all__ = ["checked", "closing", "compressed", "control_type", "emptied", "uncompressed"]

MAX_CONTENT: Final = 256 * 1024 * 1024
"""The maximum decompressed size of a batch in bytes; appends have the same limit."""


def checked(data: memoryview, at: int, where: str) -> tuple[BatchHeader, memoryview]:
    """Return the header and the bytes of the whole batch at position ``at``.

    Raises:
        CorruptRecord: there is no batch at this position, or its CRC is wrong.
    """
    header = read_header(data, at)
    batch = data[at : at + header.size]
    if computed_crc(batch, header, crc32c) != header.crc:
        raise CorruptRecord(f"the batch at offset {header.base_offset} has a wrong CRC in {where}")
    return header, batch


def control_type(batch: memoryview, header: BatchHeader) -> int | None:
    """Return the control type of a control batch; None if the batch is empty."""
    for record in iter_records(batch, header):
        return read_control_type(record.key)
    return None


def uncompressed(batch: Buffer, header: BatchHeader) -> Buffer:
    """Return a v2 batch with its records uncompressed; its CRC is not computed again."""
    if not header.codec:
        return batch
    content = compression.decompress(
        header.codec, memoryview(batch)[HEADER_SIZE : header.size], MAX_CONTENT
    )
    plain = header._replace(
        length=HEADER_SIZE - LOG_OVERHEAD + len(content),
        attributes=header.attributes & ~CODEC_MASK,
    )
    return pack_header(plain) + content


def compressed(batch: Buffer, header: BatchHeader, codec: int) -> bytes:
    """Compress a batch of uncompressed records with ``codec``, at the codec's default level."""
    content = compression.compress(codec, memoryview(batch)[HEADER_SIZE : header.size])
    return _sealed(
        header._replace(
            length=HEADER_SIZE - LOG_OVERHEAD + len(content),
            attributes=header.attributes | codec,
        ),
        content,
    )


def emptied(header: BatchHeader) -> bytes:
    """Return an empty batch with the offsets, producer and sequence numbers of ``header``."""
    return _sealed(
        header._replace(
            length=HEADER_SIZE - LOG_OVERHEAD,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK),
            base_timestamp_ms=NO_TIMESTAMP,
            count=0,
        ),
        b"",
    )


def closing(header: BatchHeader) -> bytes:
    """Return an empty v2 batch that replaces the removed last record of a legacy batch."""
    return emptied(
        header._replace(
            base_offset=header.last_offset,
            magic=2,
            attributes=header.attributes & TIMESTAMP_TYPE_MASK,
            last_offset_delta=0,
        )
    )


def _sealed(header: BatchHeader, content: bytes) -> bytes:
    crc = computed_crc(pack_header(header) + content, header, crc32c)
    return pack_header(header._replace(crc=crc)) + content
