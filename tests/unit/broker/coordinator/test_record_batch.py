"""Batches written by coordinators, compared with the general batch encoder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokq.broker.coordinator.record_batch import encode_record_batch
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from aiokq.records.record import RawRecord, encode_batch

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
