"""Records of v2 batches in pure Python: encoding, decoding, and malformed records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.core.errors import CorruptRecord, RecordTooLarge
from aiokq.records.header import LOG_APPEND_TIME, read_header
from aiokq.records.record import RawRecord, encode_batch, iter_records, iter_values
from aiokq.records.varint import append_varint, read_varint
from tests.unit.records.samples import RECORDS, crc32c


def test_batches_keep_gaps_and_their_own_base() -> None:
    """Compaction removes records; the offsets of the others are unchanged."""
    data = encode_batch(RECORDS, crc32c=crc32c, base_offset=90)
    header = read_header(data)
    assert (header.base_offset, header.last_offset, header.count) == (90, 106, 5)
    assert list(iter_records(data, header)) == RECORDS
    with pytest.raises(ValueError, match="100 after 100"):
        encode_batch(RECORDS, crc32c=crc32c, base_offset=101)
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([], crc32c=crc32c)


def test_log_append_time_is_every_records_time() -> None:
    """The batch's largest timestamp is the only one then."""
    data = encode_batch(RECORDS, crc32c=crc32c, timestamp_type=LOG_APPEND_TIME)
    times = {record.timestamp_ms for record in iter_records(data, read_header(data))}
    assert times == {1_700_000_000_900}


@pytest.mark.parametrize("value", [0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**63 - 1])
def test_varints(value: int) -> None:
    """In zigzag encoding small numbers of either sign are short."""
    out = bytearray(b"x")
    append_varint(out, value)
    assert read_varint(out, 1) == (value, len(out))


def test_varints_that_do_not_end_are_corrupt() -> None:
    """A 64-bit number takes ten bytes at most."""
    for data in (b"", b"\x80", b"\xff" * 11):
        with pytest.raises(CorruptRecord):
            read_varint(data, 0)
    with pytest.raises(CorruptRecord):
        read_varint(b"\xff\xff\xff\xff\xff\x01", 0, 5)


@pytest.mark.parametrize(
    "section",
    [
        b"",
        b"\x01",  # negative length
        b"\x10abc",  # longer than the remaining bytes
        b"\x0c\x00\x00\x00\x02\x00\x00",  # key longer than the record
        b"\x0c\x00\x00\x00\x01\x01\x01",  # negative count of headers
        b"\x0c\x00\x00\x00\x01\x01\x7e",  # more headers than bytes
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # header without a name
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # bytes left in the record
        b"\x0c\x00\x00\x00\x01\x01\x00junk",  # bytes after the last record
    ],
)
def test_malformed_records_are_corrupt(section: bytes) -> None:
    """The CRC may be valid, because a client may send anything."""
    data = encode_batch([RawRecord(0, 0, None, None)], crc32c=crc32c)[:61] + section
    header = read_header(data)._replace(length=49 + len(section))
    with pytest.raises(CorruptRecord):
        list(iter_records(data, header))


def test_records_above_the_limit_are_refused() -> None:
    """A batch of kilobytes may expand to gigabytes."""
    data = encode_batch([RawRecord(0, 0, None, bytes(10**6))], crc32c=crc32c, codec=4)
    with pytest.raises(RecordTooLarge):
        list(iter_records(data, read_header(data), limit=10**6))
    assert len(list(iter_records(data, read_header(data), limit=2 * 10**6))) == 1


def values_one_by_one(data: bytes) -> list[bytes] | None:
    """Return the values as `iter_records` reads them; None if the batch is refused."""
    header = read_header(data)
    try:
        records = list(iter_records(data, header))
    except CorruptRecord:
        return None
    values = [record.value for record in records if record.value is not None]
    expected = [header.base_offset + number for number in range(len(records))]
    in_order = [record.offset for record in records] == expected
    return values if in_order and len(values) == len(records) else None


def values_at_once(data: bytes) -> list[bytes] | None:
    try:
        return list(iter_values(data, read_header(data)))
    except CorruptRecord:
        return None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 1, 2]),  # distance of the offsets
            st.sampled_from([0, 0, 0, 5]),  # timestamp
            st.sampled_from([None, None, None, b"", b"key"]),
            st.one_of(st.binary(max_size=200), st.none(), st.just(bytes(9000))),
            st.sampled_from([(), (), (), (("h", b"v"),)]),
        ),
        min_size=1,
        max_size=90,
    ),
    st.sampled_from([0, 0, 0, 4]),
    st.data(),
)
def test_values_are_those_of_the_records(
    shapes: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]],
    codec: int,
    random: st.DataObject,
) -> None:
    """In batches of any shape, and with any byte flipped."""
    offset = 40
    records = []
    for distance, time, key, value, headers in shapes:
        records.append(RawRecord(offset, time, key, value, headers))
        offset += distance
    data = encode_batch(records, crc32c=crc32c, codec=codec)
    assert values_at_once(data) == values_one_by_one(data)
    if codec == 0:
        changed = bytearray(data)
        changed[random.draw(st.integers(61, len(data) - 1))] ^= random.draw(st.integers(1, 255))
        assert values_at_once(bytes(changed)) == values_one_by_one(bytes(changed))


def test_values_of_more_records_than_one_kind_of_offset_has() -> None:
    """The offsets of the first 64 records take one byte, of 8192 two, then three."""
    records = [RawRecord(number, 0, None, b"%d" % number) for number in range(8200)]
    data = encode_batch(records, crc32c=crc32c)
    assert list(iter_values(data, read_header(data))) == [record.value for record in records]
