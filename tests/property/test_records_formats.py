"""Records with any content in all formats, and random bytes in all readers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokq.core.errors import CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from aiokq.fastpath import crc32c
from aiokq.records.compression import compress, decompress
from aiokq.records.control import read_marker
from aiokq.records.header import HEADER_SIZE, iter_headers, read_header
from aiokq.records.legacy import decode_message_set, downconvert, encode_message_set, upconvert
from aiokq.records.record import RawRecord, encode_batch, iter_records

DOCUMENTED = (CorruptRecord, RecordTooLarge, UnsupportedCompressionType)
LIMIT = 1024 * 1024

maybe_bytes = st.none() | st.binary(max_size=60)


@st.composite
def batches_of_records(draw: st.DrawFn) -> list[RawRecord]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 6))):
        records.append(
            RawRecord(
                offset,
                draw(st.integers(0, 2**41)),
                draw(maybe_bytes),
                draw(maybe_bytes),
                draw(st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3)),
            )
        )
        offset += draw(st.integers(1, 5))
    return records


@given(batches_of_records(), st.integers(0, 4))
def test_batches_survive_encoding(records: list[RawRecord], codec: int) -> None:
    """Keys, values and headers may have any content."""
    data = encode_batch(records, crc32c=crc32c, codec=codec)
    header = read_header(data)
    assert list(iter_records(data, header)) == records
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


@given(batches_of_records(), st.integers(0, 3), st.integers(0, 1))
def test_conversions_keep_all_fields_of_the_older_format(
    records: list[RawRecord], codec: int, magic: int
) -> None:
    """Converting to an old format and back loses only headers, and timestamps with magic 0."""
    expected = [
        record._replace(headers=[], timestamp_ms=record.timestamp_ms if magic else -1)
        for record in records
    ]
    down = downconvert(encode_batch(records, crc32c=crc32c, codec=codec), magic)
    up = upconvert(down, crc32c=crc32c)
    assert list(iter_records(up, read_header(up))) == expected
    assert down == encode_message_set(records, magic, codec)


@given(st.binary(max_size=3000), st.integers(1, 4))
def test_compressed_data_is_restored(data: bytes, codec: int) -> None:
    """A result above the allowed size is refused."""
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    if data:
        try:
            decompress(codec, packed, len(data) - 1)
        except RecordTooLarge:
            return
        raise AssertionError("more than the limit")


@given(st.binary(max_size=300), st.integers(0, 7), st.integers(0, 2))
def test_any_bytes_give_documented_errors_only(data: bytes, codec: int, magic: int) -> None:
    """Data from the network must not be trusted; no error of a compression library may escape."""
    for read in (
        lambda: decompress(codec, data, LIMIT, magic=magic),
        lambda: list(iter_headers(data)),
        lambda: list(decode_message_set(data, limit=LIMIT)),
        lambda: downconvert(data, 0, limit=LIMIT),
    ):
        try:
            read()
        except DOCUMENTED:
            pass


@given(batches_of_records(), st.integers(0, 4), st.data())
def test_damaged_batches_give_documented_errors_only(
    records: list[RawRecord], codec: int, data: st.DataObject
) -> None:
    """Bytes inside a batch are damaged, and the CRC is not checked."""
    batch = bytearray(encode_batch(records, crc32c=crc32c, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    for read in (
        lambda: list(iter_records(batch, header, limit=LIMIT)),
        lambda: read_marker(batch, header),
    ):
        try:
            read()
        except DOCUMENTED:
            pass


@given(batches_of_records(), st.integers(0, 1), st.integers(0, 3), st.data())
def test_damaged_message_sets_give_documented_errors_only(
    records: list[RawRecord], magic: int, codec: int, data: st.DataObject
) -> None:
    """Bytes of the old formats are damaged."""
    entries = bytearray(encode_message_set(records, magic, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        entries[data.draw(st.integers(0, len(entries) - 1))] = data.draw(st.integers(0, 255))
    for check_crcs in (True, False):
        try:
            list(decode_message_set(entries, check_crcs=check_crcs, limit=LIMIT))
        except DOCUMENTED:
            pass
