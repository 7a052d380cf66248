"""Codecs: round trips, framing of other clients, levels, and limits on the output."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from aiokq.core.errors import (
    ConfigError,
    CorruptRecord,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from aiokq.records import compression
from aiokq.records.compression import CODEC_NAMES, check_level, codec_id, compress, decompress

CODECS = [1, 2, 3, 4]
LIMIT = 4 * 1024 * 1024
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "repetitive": b"abcdefgh" * 50_000,
    "random": os.urandom(200_000),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_compressed_comes_back(codec: int, name: str) -> None:
    """A codec that loses a block or its end loses records."""
    data = SAMPLES[name]
    assert decompress(codec, compress(codec, data), len(data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), LIMIT) == data


def test_codec_zero_hands_the_bytes_on() -> None:
    """Code that treats all codecs alike must not need a special case."""
    assert compress(0, b"abc") == b"abc"
    assert decompress(0, memoryview(b"abc"), 3) == b"abc"
    with pytest.raises(RecordTooLarge):
        decompress(0, b"abcd", 3)


@pytest.mark.parametrize("codec", CODECS)
def test_content_above_the_limit_is_refused(codec: int) -> None:
    """Content of exactly the limit is accepted; one byte more may be a decompression bomb."""
    data = SAMPLES["random"]
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(RecordTooLarge):
        decompress(codec, packed, len(data) - 1)


def bombs() -> dict[str, tuple[int, bytes]]:
    zeros = bytes(64 * 1024 * 1024)
    streaming = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return {
        "gzip": (1, gzip.compress(zeros, 1)),
        "snappy raw": (2, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy": (2, compress(2, zeros)),
        "lz4": (3, lz4.frame.compress(zeros)),
        "zstd with its size": (4, zstandard.compress(zeros)),
        "zstd without": (4, streaming.compress(zeros) + streaming.flush()),
        # a false size: 4 GiB in a block of five bytes
        "snappy that lies": (2, b"\xff\xff\xff\xff\x0f" + b"\x00"),
    }


@pytest.mark.parametrize(("codec", "bomb"), bombs().values(), ids=bombs())
def test_bombs_do_not_take_more_memory_than_the_limit(codec: int, bomb: bytes) -> None:
    """A message of kilobytes that expands to gigabytes would take the whole process down."""
    limit = 1024 * 1024
    tracemalloc.start()
    with pytest.raises(RecordTooLarge):
        decompress(codec, bomb, limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # gzip doubles its buffer, and lz4 returns its output in steps
    assert peak < 2 * limit + 4 * len(bomb) + 256 * 1024


@pytest.mark.parametrize("name", ["repetitive", "random"])
@pytest.mark.parametrize("codec", CODECS)
def test_content_cut_short_is_corrupt(codec: int, name: str) -> None:
    """Missing records at the end of a batch must not go unnoticed."""
    packed = compress(codec, SAMPLES[name])
    for cut in (1, 4, len(packed) // 2, len(packed) - 9, len(packed) - 1):
        with pytest.raises(CorruptRecord):
            decompress(codec, packed[:-cut], LIMIT)


def test_zstd_cut_short_without_its_size_is_corrupt() -> None:
    """Java streams zstd without a size, so the library alone does not detect missing bytes."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = stream.compress(SAMPLES["random"]) + stream.flush()
    assert decompress(4, packed, LIMIT) == SAMPLES["random"]
    for cut in (1, 3, len(packed) // 2, len(packed) - 7):
        with pytest.raises(CorruptRecord):
            decompress(4, packed[:-cut], LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_corrupt_and_nothing_else(codec: int) -> None:
    """A library's own exception would escape the consumer's error handling."""
    packed = bytearray(compress(codec, SAMPLES["repetitive"]))
    for junk in (b"", b"\x07", b"\xff" * 40, os.urandom(100), bytes(packed[:4]) + b"\xff" * 60):
        with pytest.raises((CorruptRecord, RecordTooLarge)):
            decompress(codec, junk, LIMIT)
    for position in range(0, len(packed), max(1, len(packed) // 200)):
        packed[position] ^= 0x55
        try:
            decompress(codec, packed, LIMIT)
        except (CorruptRecord, RecordTooLarge):
            pass
        packed[position] ^= 0x55


def test_gzip_of_several_members_is_read_whole() -> None:
    """Java's GZIPInputStream reads several members, so a producer may write them."""
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(1, packed, 7) == b"one two"
    with pytest.raises(RecordTooLarge):
        decompress(1, packed, 6)


def test_zstd_of_several_frames_is_read_whole() -> None:
    """zstd-jni reads several frames as well."""
    packed = zstandard.compress(b"one ") + zstandard.compress(b"two")
    assert decompress(4, packed, 7) == b"one two"
    with pytest.raises(RecordTooLarge):
        decompress(4, packed, 6)


def test_snappy_is_written_in_xerial_framing_and_read_raw_too() -> None:
    """Java requires xerial's framing; some clients send the raw block."""
    data = SAMPLES["repetitive"]
    packed = compress(2, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert decompress(2, bytes(cramjam.snappy.compress_raw(data)), LIMIT) == data
    assert decompress(2, packed + packed, LIMIT) == data + data  # concatenated streams


def test_lz4_of_magic_zero_has_kafkas_wrong_checksum_and_either_is_read() -> None:
    """Kafka 0.8 hashed four bytes too many, and its consumers require the result."""
    data = SAMPLES["repetitive"]
    right, wrong = compress(3, data), compress(3, data, magic=0)
    assert right[:6] == wrong[:6]
    assert right[6] != wrong[6]
    assert right[7:] == wrong[7:]
    assert decompress(3, wrong, LIMIT, magic=0) == data
    assert decompress(3, right, LIMIT, magic=0) == data
    with pytest.raises(CorruptRecord):
        decompress(3, wrong, LIMIT)


def test_lz4_blocks_are_independent() -> None:
    """Java's reader rejects frames with linked blocks."""
    flags = compress(3, SAMPLES["repetitive"])[4]
    assert flags & 0x20
    assert not flags & 0x08  # no content size, because Java cannot read past it


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(1, [-1, 1, 9]), (3, [1, 2, 3, 9, 12, 17]), (4, [-131072, -7, 1, 3, 22])],
)
def test_every_level_of_kafkas_range_works(codec: int, levels: list[int]) -> None:
    """A level that Java accepts and the library rejects would break shared configurations."""
    data = SAMPLES["repetitive"]
    for level in levels:
        assert decompress(codec, compress(codec, data, level), LIMIT) == data


@pytest.mark.parametrize(("codec", "level"), [(1, 0), (1, 10), (3, 0), (3, 18), (4, 23), (2, 1)])
def test_levels_outside_the_range_are_refused(codec: int, level: int) -> None:
    """Silent clamping would hide a mistake in the settings."""
    with pytest.raises(ConfigError, match=CODEC_NAMES[codec]):
        check_level(codec, level)
    with pytest.raises(ConfigError):
        compress(codec, b"x", level)


def test_names_are_kafkas() -> None:
    """These are the values of `compression.type`."""
    assert [codec_id(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="gzip, snappy, lz4, zstd"):
        codec_id("brotli")


def test_unknown_codecs_and_zstd_in_old_formats_are_unsupported() -> None:
    """Codec ids 5 to 7 are for newer Kafka versions; zstd came with batches of magic 2.

    Regression: with a level, an unknown codec raised an IndexError.
    """
    for codec in (-1, 5, 6, 7):
        with pytest.raises(UnsupportedCompressionType):
            decompress(codec, b"", LIMIT)
        for level in (None, 1):
            with pytest.raises(UnsupportedCompressionType):
                compress(codec, b"", level)
    with pytest.raises(UnsupportedCompressionType):
        compress(compression.ZSTD, b"", magic=1)
    with pytest.raises(UnsupportedCompressionType):
        compress(compression.ZSTD, b"", 99, magic=1)


def test_many_gzip_members_are_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each of a megabyte of empty members copied all that followed it."""
    member = compression.compress(compression.GZIP, b"")
    data = member * 2000 + compression.compress(compression.GZIP, b"end" * 100_000)
    given = []
    make = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._inner = make(wbits)

        def decompress(self, data: bytes, limit: int) -> bytes:
            given.append(len(data))
            return self._inner.decompress(data, limit)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    assert compression.decompress(compression.GZIP, data, 1_000_000) == b"end" * 100_000
    assert sum(given) < 30 * len(data)
