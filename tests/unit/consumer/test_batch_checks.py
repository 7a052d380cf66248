"""Checks of fetched batches by their headers and checksums."""

from __future__ import annotations

import pytest

from aiokq.consumer.batch_checks import sound_prefix
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch


def batch(first: int, count: int) -> bytes:
    records = [RawRecord(first + n, 1, None, b"value") for n in range(count)]
    return encode_batch(records, crc32c=crc32c)


def spoil(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def test_valid_batches_are_counted_by_their_headers() -> None:
    """Records are not decoded, and a truncated batch is left out."""
    data = batch(0, 3) + batch(3, 4)
    for tail in (b"", batch(7, 5)[:-1], batch(7, 5)[:20]):
        found = sound_prefix(memoryview(data + tail), 0, check_crcs=True)
        assert found == (len(data + tail), 7, 7, True, -1)


def test_records_before_the_position_make_the_headers_count_too_many() -> None:
    """If the position is inside a batch, records can only be counted by decoding."""
    data = memoryview(batch(0, 3) + batch(3, 4))
    assert sound_prefix(data, 1, check_crcs=True).records is None
    assert sound_prefix(data, 0, check_crcs=True).records == 7


def test_the_prefix_ends_before_a_wrong_checksum() -> None:
    """Undamaged records are delivered, and a seek() can skip the damaged batch."""
    good, bad = batch(5, 3), spoil(batch(8, 2))
    data = memoryview(good + bad + batch(10, 1))
    assert sound_prefix(data, 5, check_crcs=True) == (len(good), 8, 3, True, 10)
    assert sound_prefix(data[len(good) :], 8, check_crcs=True)[::4] == (0, 10)
    assert sound_prefix(data, 5, check_crcs=False) == (len(data), 11, 6, False, -1)


@pytest.mark.parametrize("delta", [-5, 2**31 - 1])
def test_a_corrupt_header_never_sends_the_reader_back(delta: int) -> None:
    """The end of a corrupt batch is taken from its header, which may itself be corrupt."""
    bad = bytearray(batch(8, 2))
    bad[23:27] = delta.to_bytes(4, "big", signed=True)
    assert sound_prefix(memoryview(bad), 8, check_crcs=True).beyond > 8


@pytest.mark.parametrize(("place", "value"), [(16, 1), (16, 9), (8, 0x80), (11, 3), (57, 0x80)])
def test_old_and_invalid_formats_are_left_to_the_cursor(place: int, value: int) -> None:
    """Old formats are counted differently; for invalid data the cursor raises its own errors."""
    data = bytearray(batch(0, 3))
    data[place] = value
    if place == 11:
        data[8:11] = bytes(3)
    assert sound_prefix(memoryview(data), 0, check_crcs=True) == (len(data), 0, None, False, -1)
