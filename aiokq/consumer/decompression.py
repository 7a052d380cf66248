"""Owns the decompression of batches too large for the loop, in the executor, before they are read.

What it leaves alone the Cursor opens when its turn comes. An inflated batch is the same batch
without compression, with a checksum of its own.
"""

from __future__ import annotations

import struct
from typing import Final

from aiokq.core.error_base import KafkaError
from aiokq.core.offload import FAST_CODEC_THRESHOLD, GZIP_THRESHOLD
from aiokq.fastpath import crc32c
from aiokq.records.compression import GZIP, decompress
from aiokq.records.header import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    computed_crc,
    iter_headers,
    pack_header,
    verify_crc,
)
from aiokq.records.record import DEFAULT_LIMIT

__all__ = ["MOST_BYTES", "decompress_batches", "needs_decompression"]

MOST_BYTES: Final = 64 * 1024 * 1024
"""Once so much has come out of a response, the rest of it waits for its turn: a row of batches that
become a thousand times larger must not be opened all at once."""

_LENGTH: Final = struct.Struct(">i").unpack_from
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22


def needs_decompression(data: memoryview) -> bool:
    """Whether some batch would hold up the loop for long.

    The first batch speaks for the others' codec: producers rarely mix them.
    """
    if len(data) < GZIP_THRESHOLD or data[_MAGIC] != 2:
        return False
    codec = data[_ATTRIBUTES] & CODEC_MASK
    if not codec:
        return False
    least = GZIP_THRESHOLD if codec == GZIP else FAST_CODEC_THRESHOLD
    position, end = 0, len(data)
    while end - position >= HEADER_SIZE:
        size = LOG_OVERHEAD + _LENGTH(data, position + 8)[0]
        if size < HEADER_SIZE or position + size > end:
            return False
        if size >= least:
            return True
        position += size
    return False


def decompress_batches(data: memoryview, most_bytes: int, *, check_crcs: bool) -> memoryview:
    """The batches, as many as can be, without compression; the rest as it came.

    Context: any thread.

    Args:
        most_bytes: once there are so many, the rest stays as it came.
        check_crcs: a batch whose checksum is wrong is left for the reader to find.
    """
    out = bytearray()
    position = 0
    try:
        for header in iter_headers(data):
            batch = data[position : position + header.size]
            position += header.size
            if header.magic != 2 or not header.codec or len(out) > most_bytes:
                out += batch
                continue
            if check_crcs and not verify_crc(batch, header, crc32c):
                out += batch
                continue
            try:
                section = decompress(header.codec, batch[HEADER_SIZE:], DEFAULT_LIMIT)
            except KafkaError:
                out += batch  # the reader meets it at its place
                continue
            plain = header._replace(
                attributes=header.attributes & ~CODEC_MASK,
                length=HEADER_SIZE - LOG_OVERHEAD + len(section),
            )
            start = len(out)
            out += pack_header(plain)
            out += section
            crc = computed_crc(memoryview(out)[start:], plain, crc32c)
            out[start : start + HEADER_SIZE] = pack_header(plain._replace(crc=crc))
    except KafkaError:
        pass  # headers that make no sense: the reader meets them at their place
    out += data[position:]
    return memoryview(bytes(out))
