"""Owns the walk from batch header to batch header through a file, with few, bounded reads."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File
from aiokq.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header

READ_AHEAD: Final = 8 * 1024
"""Bytes per read: small batches lie several in one read, of a large one only the head is read."""

_LENGTH: Final = struct.Struct(">i")


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from ``position`` up to ``end``.

    The first batch that would reach beyond ``end`` ends the walk; records are never read.

    Raises:
        CorruptRecord: where a batch should begin there is none.
    """
    chunk, start = b"", position
    while position + 17 <= end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = file.pread(min(READ_AHEAD, end - position), position), position, 0
        if at + LOG_OVERHEAD > len(chunk):
            return
        size = _LENGTH.unpack_from(chunk, at + 8)[0] + LOG_OVERHEAD
        if position + size > end and size > LOG_OVERHEAD:
            return
        header = read_header(chunk, at)
        yield position, header
        position += header.size


def read_batch(file: File, position: int, header: BatchHeader) -> bytes:
    """The bytes of one whole batch.

    Raises:
        CorruptRecord: the file ends before.
    """
    data = file.pread(header.size, position)
    if len(data) != header.size:
        raise CorruptRecord(f"{file.path} ends inside the batch at position {position}")
    return data
