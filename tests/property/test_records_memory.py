"""Wrong counts and lengths, in every format and codec: documented errors and bounded memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokq.core.errors import CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from aiokq.fastpath import crc32c
from aiokq.records.codecs import RecordCodecs
from aiokq.records.compression import compress
from aiokq.records.header import HEADER_SIZE, read_header
from aiokq.records.legacy import decode_message_set, downconvert, encode_message_set, upconvert
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests import cores

Read = Callable[[bytes], object]

DOCUMENTED = (CorruptRecord, RecordTooLarge, UnsupportedCompressionType)
LIMIT = 1024 * 1024
COUNT = 57  # position of the record count in a batch header
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

FACTOR = 200
"""Bytes of memory that a byte of records may cost.

The smallest record has seven bytes. It becomes an object with an integer for its offset and one
for its timestamp.
"""

SLACK = 512 * 1024
"""Bytes that reading may need in any case: gzip uses 268 KiB, and there are errors and lists."""

HUGE = (
    b"\xfe\xff\xff\xff\x0f",  # the largest length of a record, as a varint
    b"\xff\xff\xff\xff\x0f",  # the smallest length
    b"\x7f\xff\xff\xff",  # the largest 32-bit count or size
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
)

RECORDS = [RawRecord(n, 1000 + n, b"key", b"value", [("name", b"of"), ("b", None)]) for n in (0, 1)]


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    """Trace memory only in these tests, because tracing slows everything down."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def cursor_readers(name: str) -> dict[str, Read]:
    core = cores.core(name)

    def cursor(data: bytes) -> Any:
        return core.Cursor(
            "t", 0, data, start_offset=0, codecs=RecordCodecs(), max_batch_bytes=LIMIT
        )

    return {
        f"{name} take": lambda data: cursor(data).take(10**9),
        f"{name} columns": lambda data: cursor(data).columns(),
    }


CURSORS: dict[str, Read] = {**cursor_readers("compiled"), **cursor_readers("pure")}
BATCH_READERS: dict[str, Read] = {
    **CURSORS,
    "iter_records": lambda data: list(iter_records(data, read_header(data), limit=LIMIT)),
    "downconvert": lambda data: downconvert(data, 1, limit=LIMIT),
}
SET_READERS: dict[str, Read] = {
    **CURSORS,
    "decode": lambda data: list(decode_message_set(data, check_crcs=False, limit=LIMIT)),
    "upconvert": lambda data: upconvert(data, crc32c=crc32c, limit=LIMIT),
}


def memory(read: Read, data: bytes) -> int:
    """Return the peak memory of reading; only documented errors are allowed."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        read(data)
    except DOCUMENTED:
        pass
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


def sealed(header: bytes, payload: bytes, codec: int) -> bytes:
    """Return a batch whose length, codec and CRC fit any payload."""
    batch = bytearray(header + (compress(codec, payload) if codec else payload))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("read", BATCH_READERS.values(), ids=BATCH_READERS)
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_huge_number_anywhere_in_a_batch_costs_no_memory(codec: int, read: Read) -> None:
    """For a record that claims to have two billion headers no list may be allocated."""
    whole = encode_batch(RECORDS, crc32c=crc32c)
    warm = sealed(whole[:HEADER_SIZE], whole[HEADER_SIZE:], codec)
    try:
        assert read(warm)
    except UnsupportedCompressionType:
        assert (codec, read) == (CODECS["zstd"], BATCH_READERS["downconvert"])
    for huge in HUGE:
        for position in range(COUNT, len(whole)):
            data = whole[:position] + huge + whole[position + len(huge) :]
            batch = sealed(data[:HEADER_SIZE], data[HEADER_SIZE:], codec)
            assert memory(read, batch) < SLACK + FACTOR * len(data), (huge, position)


@pytest.mark.parametrize("read", BATCH_READERS.values(), ids=BATCH_READERS)
def test_the_smallest_records_cost_a_constant_multiple_of_the_batch(read: Read) -> None:
    """The batch has as many records as fit, and a count that claims still more."""
    smallest = b"\x0c\0\0\0\1\1\0"  # length 6: attributes, times, offsets, null key and value
    whole = encode_batch(RECORDS, crc32c=crc32c)
    for count in (5000, 2**31 - 1):
        header = bytearray(whole[:HEADER_SIZE])
        struct.pack_into(">i", header, COUNT, count)
        struct.pack_into(">i", header, 23, count - 1)
        batch = sealed(bytes(header), smallest * 5000, 0)
        held = memory(read, batch)
        assert held < SLACK + FACTOR * len(batch), count


@pytest.mark.parametrize("read", SET_READERS.values(), ids=SET_READERS)
@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_huge_number_anywhere_in_a_message_set_costs_no_memory(
    magic: int, codec: int, read: Read
) -> None:
    """The old formats have 32-bit sizes before each message, key and value."""
    whole = encode_message_set(RECORDS, magic, codec)
    assert read(whole)
    for position in range(len(whole)):
        for huge in (HUGE[2], b"\xff\xff\xff\xfe"):
            data = whole[:position] + huge + whole[position + len(huge) :]
            assert memory(read, data) < SLACK + FACTOR * len(data), (huge, position)
