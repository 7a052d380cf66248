"""Decompresses fetched data that has large batches; the fetcher calls it in the executor.

Batches that stay compressed are decompressed later by the Cursor, on the event loop. A decompressed
batch is the same batch with codec "none" and a new checksum.
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
"""The decompressed bytes of a response after which its remaining batches stay compressed.

Without this limit, several batches that each grow a thousandfold could exhaust the memory.
"""

_LENGTH: Final = struct.Struct(">i").unpack_from
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22


def needs_decompression(data: memoryview) -> bool:
    """Whether decompressing any of the batches would block the event loop for long.

    All batches are assumed to have the codec of the first batch, because producers rarely mix
    codecs.
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
    """Return `data` with its batches decompressed; batches that are damaged stay unchanged.

    May be called in any thread.

    Args:
        most_bytes: output bytes after which the remaining batches stay compressed.
        check_crcs: leave a batch with a wrong checksum unchanged, so that the reader finds the
            error.
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
                out += batch  # the reader raises the error
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
        pass  # invalid header: the reader raises the error
    out += data[position:]
    return memoryview(bytes(out))
