"""Message sets of magic 0 and 1: encoding, decoding, conversion, and malformed sets."""

from __future__ import annotations

import zlib

import pytest

from aiokq.core.errors import CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from aiokq.records.codecs import RecordCodecs
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import LOG_APPEND_TIME, iter_headers, read_header, verify_crc
from aiokq.records.legacy import (
    Message,
    decode_message_set,
    downconvert,
    encode_message_set,
    upconvert,
)
from aiokq.records.record import encode_batch, iter_records
from tests.unit.records.samples import RECORDS, crc32c

MESSAGES = [Message(r.offset, r.timestamp_ms, r.key, r.value) for r in RECORDS]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_sets_come_back(magic: int, codec: int) -> None:
    """With gaps, nulls and empty values."""
    expected = [m if magic else m._replace(timestamp_ms=-1) for m in MESSAGES]
    data = encode_message_set(MESSAGES, magic, codec)
    assert list(decode_message_set(data)) == expected
    assert list(decode_message_set(data[:-1])) == ([] if codec else expected[:-1])
    assert encode_message_set([], magic, codec) == b""


def test_the_wrapper_has_the_last_offset_and_largest_time() -> None:
    """Readers position by the wrapper without decompressing it."""
    [header] = iter_headers(encode_message_set(MESSAGES, 1, 1))
    assert header.base_offset == 106
    assert header.max_timestamp_ms == max(m.timestamp_ms for m in MESSAGES)


def test_a_wrapper_with_log_append_time_sets_all_times() -> None:
    """The broker stamps the wrapper and leaves its content unchanged."""
    data = encode_message_set(MESSAGES, 1, 1, timestamp_type=LOG_APPEND_TIME)
    found = list(decode_message_set(data))
    assert {m.timestamp_ms for m in found} == {1_700_000_000_900}
    assert {m.timestamp_type for m in found} == {LOG_APPEND_TIME}


def test_a_wrong_crc_is_noticed_unless_nobody_looks() -> None:
    """check.crcs=false skips the check for speed."""
    data = bytearray(encode_message_set(MESSAGES[:1], 1))
    data[-1] ^= 1
    with pytest.raises(CorruptRecord, match="CRC-32"):
        list(decode_message_set(data))
    assert len(list(decode_message_set(data, check_crcs=False))) == 1


def entry(value: bytes | None, magic: int = 1, attributes: int = 1) -> bytes:
    """Return one entry with a valid CRC and any value."""
    data = bytearray(encode_message_set([Message(5, 7, None, value)], magic))
    data[17] = attributes
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    return bytes(data)


def test_invalid_wrappers_are_corrupt() -> None:
    """Null or missing content, and inner messages of another magic, compressed, or cut short."""
    inner = encode_message_set(MESSAGES[:2], 1)
    contents = [
        None,
        zlib_gzip(b""),
        zlib_gzip(encode_message_set(MESSAGES[:2], 0)),
        zlib_gzip(encode_message_set(MESSAGES[:2], 1, 1)),
        zlib_gzip(inner[:-3]),
        b"no gzip",
    ]
    for content in contents:
        with pytest.raises(CorruptRecord):
            list(decode_message_set(entry(content)))
    assert len(list(decode_message_set(entry(zlib_gzip(inner))))) == 2
    with pytest.raises(UnsupportedCompressionType):
        list(decode_message_set(entry(b"", attributes=4)))


def zlib_gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def test_bombs_in_wrappers_are_refused() -> None:
    """The limit is the same as for v2 batches."""
    with pytest.raises(RecordTooLarge):
        list(decode_message_set(entry(zlib_gzip(bytes(10**6))), limit=10**5))


def test_lengths_that_lie_are_corrupt() -> None:
    """A key or value that ends outside its entry, and bytes that belong to neither."""
    good = encode_message_set(MESSAGES[:1], 0)
    for position, value in ((18, 100), (18, 2), (25, 100), (25, 1)):
        data = bytearray(good)
        data[position : position + 4] = value.to_bytes(4, "big")
        with pytest.raises(CorruptRecord):
            list(decode_message_set(data, check_crcs=False))
    with pytest.raises(CorruptRecord, match="magic 2"):
        list(decode_message_set(encode_batch(RECORDS, crc32c=crc32c)))


# --- Conversion


@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_up_and_down_again_keeps_offsets_times_keys_and_values(magic: int, codec: int) -> None:
    """An old client's records pass through a new log and back."""
    data = encode_message_set(MESSAGES, magic, codec)
    batch = upconvert(data, crc32c=crc32c)
    assert verify_crc(batch, read_header(batch), crc32c)
    assert list(decode_message_set(downconvert(batch, magic))) == list(decode_message_set(data))
    assert RecordCodecs(crc32c).upconvert(memoryview(data)) == batch
    assert RecordCodecs().upconvert(memoryview(data))[21:] == batch[21:]


def test_upconversion_needs_a_message_and_rising_offsets() -> None:
    """Repeated offsets cannot be represented in a batch."""
    for data in (b"", encode_message_set([MESSAGES[1], MESSAGES[0]], 1)):
        with pytest.raises(CorruptRecord):
            upconvert(data)


def test_log_append_time_survives_where_one_time_is_all() -> None:
    """A batch has one timestamp type and, with LogAppendTime, one timestamp."""
    same = [m._replace(timestamp_ms=50) for m in MESSAGES]
    data = encode_message_set(same, 1, timestamp_type=LOG_APPEND_TIME)
    assert read_header(upconvert(data)).timestamp_type == LOG_APPEND_TIME
    data = encode_message_set(MESSAGES, 1, timestamp_type=LOG_APPEND_TIME)
    batch = upconvert(data)
    assert read_header(batch).timestamp_type == 0
    assert [r.timestamp_ms for r in iter_records(batch, read_header(batch))] == [
        m.timestamp_ms for m in MESSAGES
    ]


def test_downconversion_keeps_the_codec_and_leaves_control_batches_out() -> None:
    """Old clients know neither markers nor zstd."""
    marker = encode_marker(
        EndTransactionMarker(ControlType.COMMIT, 1),
        producer_id=1,
        producer_epoch=0,
        timestamp_ms=0,
        crc32c=crc32c,
    )
    old = encode_message_set(MESSAGES[:1], 1)
    data = old + encode_batch(RECORDS, crc32c=crc32c, codec=2) + marker
    down = downconvert(data, 1)
    assert [h.codec for h in iter_headers(down)] == [0, 2]
    assert list(decode_message_set(down)) == [MESSAGES[0], *MESSAGES]
    assert [h.magic for h in iter_headers(downconvert(data, 0))] == [0, 0]
    with pytest.raises(UnsupportedCompressionType):
        downconvert(encode_batch(RECORDS, crc32c=crc32c, codec=4), 1)
