"""Batches written by coordinators, compared with the general batch encoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.broker.coordinator.record_batch import decode_record_batch, encode_record_batch
from aiokq.core.errors import CorruptRecord
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from aiokq.records.record import RawRecord, encode_batch, iter_records

SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 8191, 8192, 20_000])
PAIRS = st.tuples(
    SIZES.map(lambda size: b"k" * size), st.none() | SIZES.map(lambda size: b"v" * size)
)


@given(st.lists(PAIRS, min_size=1, max_size=5), st.integers(0, 2**62))
def test_it_is_the_batch_that_any_encoder_makes(pairs, now_ms):
    """A wrong byte would lose the group at the next start."""
    data, header = encode_record_batch(pairs, now_ms=now_ms, crc32c=crc32c)
    records = [RawRecord(n, now_ms, key, value) for n, (key, value) in enumerate(pairs)]
    assert data == encode_batch(records, crc32c=crc32c)
    assert header == read_header(data)


def test_many_records_have_long_offset_deltas():
    """A group may have thousands of offset tombstones."""
    pairs = [(b"k", None)] * 9000
    data, _ = encode_record_batch(pairs, now_ms=5, crc32c=crc32c)
    records = [RawRecord(n, 5, b"k", None) for n in range(9000)]
    assert data == encode_batch(records, crc32c=crc32c)


@given(
    st.lists(PAIRS, min_size=1, max_size=5),
    st.sampled_from([0, 1, 2**40]),
    st.integers(0, 3),
    st.booleans(),
)
def test_it_reads_batches_as_any_decoder_does(pairs, base_offset, codec, other):
    """Its own ones, and batches with headers, times, gaps or codecs that another program wrote."""
    records = [
        RawRecord(base_offset + n * (1 + other), 5 + n * other, key, value, [("h", b"")] * other)
        for n, (key, value) in enumerate(pairs)
    ]
    batch = encode_batch(records, crc32c=crc32c, codec=codec, base_offset=base_offset)
    data = b"before" + batch + b"behind"
    found = decode_record_batch(data, 6, read_header(batch))
    assert found == [(each.offset, each.key, each.value) for each in records]


@given(st.lists(PAIRS, min_size=1, max_size=2), st.data())
def test_damaged_batches_are_read_or_refused_as_by_any_decoder(pairs, data):
    """Nothing is read beyond the batch."""
    encoded, header = encode_record_batch(pairs, now_ms=5, crc32c=crc32c)
    batch = bytearray(encoded)
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    try:
        expected = [(each.offset, each.key, each.value) for each in iter_records(batch, header)]
    except CorruptRecord:
        with pytest.raises(CorruptRecord):
            decode_record_batch(bytes(batch) + b"\1" * 30, 0, header)
    else:
        assert decode_record_batch(bytes(batch) + b"\1" * 30, 0, header) == expected


def test_many_records_are_read_in_order():
    """Their offset deltas take two and three bytes."""
    pairs = [(b"k%d" % n, None) for n in range(9000)]
    data, header = encode_record_batch(pairs, now_ms=5, crc32c=crc32c)
    expected = [(n, key, None) for n, (key, _) in enumerate(pairs)]
    assert decode_record_batch(bytes(data), 0, header) == expected
