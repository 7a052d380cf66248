"""Decompression of large batches before they are read."""

from __future__ import annotations

import os

import pytest

from aiokq.consumer.buffers import extent
from aiokq.consumer.decompression import MOST_BYTES, decompress_batches, needs_decompression
from aiokq.core.errors import CorruptRecord
from aiokq.fastpath import crc32c
from aiokq.fastpath.consume import Cursor
from aiokq.records.codecs import RecordCodecs
from aiokq.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch


def batch(codec: int, size: int, first: int = 0) -> bytes:
    half = os.urandom(size // 2)
    records = [RawRecord(first, 1, b"k", half), RawRecord(first + 1, 2, None, half)]
    return encode_batch(records, crc32c=crc32c, codec=codec, leader_epoch=5, producer_id=7)


def read(data: memoryview) -> list:
    return list(Cursor("t", 0, data, start_offset=0, codecs=RecordCodecs(crc32c)))


@pytest.mark.parametrize(
    ("codec", "size", "wanted"),
    [
        (NONE, 1_000_000, False),
        (GZIP, 20_000, False),
        (GZIP, 100_000, True),
        (LZ4, 100_000, False),
        (LZ4, 300_000, True),
        (SNAPPY, 300_000, True),
        (ZSTD, 300_000, True),
    ],
)
def test_large_batches_are_decompressed_in_a_thread(codec: int, size: int, wanted: bool) -> None:
    """Decompressing a small batch costs less than a call of the executor."""
    data = memoryview(batch(codec, size))
    assert needs_decompression(data) is wanted
    assert not needs_decompression(data[:-1]), "the last one is cut off, and not read"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_the_records_are_the_same(codec: int) -> None:
    """Headers, epochs and a truncated last batch are also unchanged."""
    data = memoryview(batch(codec, 300_000) + batch(NONE, 100, 2) + batch(codec, 400_000, 4)[:-5])
    decompressed = decompress_batches(data, MOST_BYTES, check_crcs=True)
    assert read(decompressed) == read(data)
    assert extent(decompressed) == extent(data)
    assert not needs_decompression(decompressed)


def test_a_wrong_checksum_is_left_for_the_reader_to_find() -> None:
    """A decompressed batch has a new checksum, which must not hide an error in the original one."""
    bad = bytearray(batch(LZ4, 300_000))
    bad[-1] ^= 1
    decompressed = decompress_batches(memoryview(bytes(bad)), MOST_BYTES, check_crcs=True)
    with pytest.raises(CorruptRecord, match="CRC"):
        read(decompressed)


def test_data_that_does_not_decompress_is_left_for_the_reader() -> None:
    """The reader's error names the offset."""
    bad = bytearray(batch(ZSTD, 300_000))
    bad[70:90] = bytes(20)
    decompressed = decompress_batches(memoryview(bytes(bad)), MOST_BYTES, check_crcs=False)
    with pytest.raises(CorruptRecord):
        read(decompressed)


def test_a_row_of_bombs_is_not_opened_all_at_once() -> None:
    """Each batch is within the limit, but all of them together are not."""
    data = memoryview(b"".join(batch(LZ4, 300_000, 2 * n) for n in range(5)))
    decompressed = decompress_batches(data, 500_000, check_crcs=True)
    assert [header.codec for header in iter_headers(decompressed)] == [NONE, NONE, LZ4, LZ4, LZ4]
    assert read(decompressed) == read(data)


def test_garbage_is_passed_on() -> None:
    """The reader's error names the partition."""
    data = memoryview(b"\0" * 16 + b"\7" + b"\0" * 100)
    assert decompress_batches(data, MOST_BYTES, check_crcs=True) == data
