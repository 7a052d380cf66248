"""CRC-32C and murmur2, compared with published values."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from aiokq.fastpath import pure

# RFC 3720, appendix B.4, and the check value of the CRC catalogue
CRC_ANSWERS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]

# Kafka's UtilsTest.testMurmur2.
MURMUR2_ANSWERS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("data", "crc"), CRC_ANSWERS)
def test_crc32c_gives_the_published_answers(core: SimpleNamespace, data: bytes, crc: int) -> None:
    """With a wrong checksum every broker would reject every batch."""
    assert core.crc32c(data) == crc


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_crc32c_takes_every_kind_of_buffer(core: SimpleNamespace, kind: type) -> None:
    """Received frames are memoryviews, appended data bytearrays."""
    assert core.crc32c(kind(b"123456789")) == 0xE3069283


def test_crc32c_refuses_a_buffer_with_gaps_in_the_same_words(core: SimpleNamespace) -> None:
    """Code that is tested with one build must behave the same with the other."""
    for checksum in (core.crc32c, pure.crc32c_table):
        with pytest.raises(BufferError, match="not C-contiguous"):
            checksum(memoryview(b"123456789")[::2])
        assert checksum(memoryview(b"12345678").cast("i")) == checksum(b"12345678")


def test_crc32c_goes_on_where_it_stopped(core: SimpleNamespace) -> None:
    """A checksum over fragments equals that of the whole, for every split."""
    data = random.Random(1).randbytes(10_000)
    whole = pure.crc32c_table(data)
    assert core.crc32c(data) == whole
    for cut in (0, 1, 7, 8, 383, 384, 385, 3071, 3072, 3073, 9_999, 10_000):
        assert core.crc32c(data[cut:], core.crc32c(data[:cut])) == whole


def test_crc32c_is_right_for_every_length_around_its_block_sizes(core: SimpleNamespace) -> None:
    """The three-stream loop, the short loop and the tail must fit together."""
    data = random.Random(2).randbytes(8_192)
    for length in [*range(0, 420, 5), *range(3_060, 3_090), 6_143, 6_144, 6_145, 8_192]:
        for start in (0, 1, 3):
            piece = data[start : start + length]
            assert core.crc32c(memoryview(piece)) == pure.crc32c_table(piece)


@pytest.mark.parametrize("load", ["crc32c_package", "crc32c_cramjam"])
def test_every_crc32c_the_pure_core_may_use_agrees_with_the_table(load: str) -> None:
    """cramjam's CRC is read out of a compressed frame, whose format might change."""
    function = getattr(pure, load)()
    data = random.Random(3).randbytes(200_000)
    for length in (0, 1, 9, 65_535, 65_536, 65_537, 131_072, 200_000):
        assert function(data[:length], 0) == pure.crc32c_table(data[:length])
    assert function(data[100_000:], function(data[:100_000], 0)) == pure.crc32c_table(data)


@pytest.mark.parametrize(("key", "answer"), MURMUR2_ANSWERS)
def test_murmur2_gives_javas_answers(core: SimpleNamespace, key: bytes, answer: int) -> None:
    """A key in another partition than Java's would break the order per key across clients."""
    assert core.murmur2(key) == answer & 0xFFFFFFFF
    assert core.partition_for_key(key, 7) == (answer & 0x7FFFFFFF) % 7


def test_an_empty_key_has_a_partition(core: SimpleNamespace) -> None:
    """b"" is a key; None is not."""
    assert core.murmur2(b"") == 275646681


def test_a_topic_without_partitions_is_refused(core: SimpleNamespace) -> None:
    """A modulo by zero would crash in C."""
    with pytest.raises(ValueError, match="at least one partition"):
        core.partition_for_key(b"k", 0)
