"""Batch headers: fields, iteration, checksums, patches, and invalid bytes."""

from __future__ import annotations

import pytest

from aiokq.core.errors import CorruptRecord
from aiokq.records.header import (
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    UNKNOWN_COUNT,
    BatchHeader,
    add_sequence,
    iter_headers,
    pack_header,
    read_header,
    set_base_offset,
    set_log_append_time,
    verify_crc,
)
from aiokq.records.legacy import Message, encode_message_set
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests.unit.records.samples import crc32c


def batch(count: int = 3, **options: object) -> bytes:
    rows = [RawRecord(10 + i, 1000 + i, b"k", b"v%d" % i) for i in range(count)]
    return encode_batch(rows, crc32c=crc32c, **options)


def test_derived_fields() -> None:
    """Other layers use these fields instead of computing them."""
    header = read_header(batch(codec=4, leader_epoch=6, attributes=TRANSACTIONAL_MASK))
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 12, 13)
    assert (header.codec, header.leader_epoch, header.timestamp_type) == (4, 6, 0)
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_producer_id
    assert header.last_sequence == NO_SEQUENCE
    assert read_header(batch(attributes=CONTROL_MASK)).is_control
    assert header.size == len(batch(codec=4))
    assert pack_header(header) == batch(codec=4, leader_epoch=6, attributes=TRANSACTIONAL_MASK)[:61]


def test_sequences_wrap() -> None:
    """After 2**31 - 1 comes 0."""
    assert add_sequence(2**31 - 1, 1) == 0
    assert add_sequence(2**31 - 2, 3) == 1
    assert add_sequence(1, -3) == 2**31 - 2
    header = read_header(batch(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_at_any_place(kind: type) -> None:
    """Frames are memoryviews, test data bytes, patched copies bytearrays."""
    data = kind(b"junk" + batch())
    assert read_header(data, 4).base_offset == 10


def test_a_walk_gives_whole_batches_only() -> None:
    """Fetch responses may end in the middle of a batch."""
    data = batch() + batch(1) + batch(2)
    assert [h.count for h in iter_headers(data)] == [3, 1, 2]
    for cut in (1, 30, 60, len(batch(2)) - 1, len(batch(2))):
        assert [h.count for h in iter_headers(data[:-cut])] == [3, 1]
    assert list(iter_headers(b"")) == []
    assert list(iter_headers(data[:16])) == []


def test_a_walk_over_mixed_formats() -> None:
    """A log that began with Kafka 0.8 may continue with v2."""
    old = encode_message_set([Message(0, -1, b"k", b"v"), Message(1, -1, None, b"w")], 0)
    packed = encode_message_set([Message(2, 5, b"k", b"v"), Message(3, 6, b"k", b"v")], 1, 1)
    headers = list(iter_headers(old + packed + batch()))
    assert [(h.magic, h.base_offset, h.count) for h in headers] == [
        (0, 0, 1),
        (0, 1, 1),
        (1, 3, UNKNOWN_COUNT),
        (2, 10, 3),
    ]
    assert [h.max_timestamp_ms for h in headers] == [-1, -1, 6, 1002]
    assert headers[2].next_offset == 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 16,
        bytes(16) + b"\x03" + bytes(60),
        bytes(16) + b"\xff" + bytes(60),
        bytes(16) + b"\x02" + bytes(43),
        bytes(8) + b"\x00\x00\x00\x30" + bytes(4) + b"\x02" + bytes(60),
        bytes(8) + b"\xff\xff\xff\xff" + bytes(4) + b"\x02" + bytes(60),
        bytes(8) + b"\x00\x00\x00\x0d" + bytes(4) + b"\x00" + bytes(60),
        bytes(8) + b"\x00\x00\x00\x15" + bytes(4) + b"\x01" + bytes(60),
    ],
)
def test_what_is_no_header_is_corrupt(data: bytes) -> None:
    """An impossible length would misplace every later read."""
    with pytest.raises(CorruptRecord):
        read_header(data)


def test_a_walk_stops_at_an_impossible_length() -> None:
    """A negative length must not make the iteration go backwards for ever."""
    for length in (-1, -(2**31), 0, 48):
        data = batch() + bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(4) + b"\x02"
        walk = iter_headers(data + bytes(100))
        assert next(walk).count == 3
        with pytest.raises(CorruptRecord):
            next(walk)


def test_checksums_cover_what_kafkas_do() -> None:
    """Only base offset and leader epoch are outside the checksum, so that brokers can set them."""
    data = bytearray(batch())
    header = read_header(data)
    assert verify_crc(data, header, crc32c)
    assert verify_crc(bytes(data) + b"more", header, crc32c)
    assert not verify_crc(data[:-1], header, crc32c)
    set_base_offset(data, 777, 8)
    assert verify_crc(data, read_header(data), crc32c)
    assert (read_header(data).base_offset, read_header(data).leader_epoch) == (777, 8)
    for position in range(21, len(data)):
        data[position] ^= 1
        assert not verify_crc(data, read_header(data), crc32c)
        data[position] ^= 1
    for magic in (0, 1):
        old = encode_message_set([Message(0, 5, b"k", b"v")], magic)
        assert verify_crc(old, read_header(old), crc32c)
        assert not verify_crc(old[:-1] + b"x", read_header(old), crc32c)


def test_log_append_time_is_patched_with_its_crc() -> None:
    """Every record then has that time, whatever its own timestamp is."""
    data = bytearray(batch() + b"behind")
    set_log_append_time(data, 9999, crc32c)
    header = read_header(data)
    assert header.timestamp_type == LOG_APPEND_TIME
    assert verify_crc(data, header, crc32c)
    assert {record.timestamp_ms for record in iter_records(data, header)} == {9999}
    assert data.endswith(b"behind")
    assert HEADER_SIZE == 61


def test_a_header_placed_in_a_log_is_what_is_read_there() -> None:
    """An append computes the header with its offsets instead of reading it back."""
    data = bytearray(batch(codec=4, attributes=TRANSACTIONAL_MASK))
    placed = read_header(data).placed_at(1 << 40, 7)
    set_base_offset(data, 1 << 40, 7)
    assert placed == read_header(data)
    assert type(placed) is BatchHeader
