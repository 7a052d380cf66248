"""Chunks, frames, and the accounting of their memory."""

from __future__ import annotations

from aiokq.consumer.buffers import Buffers, extent
from aiokq.fastpath import crc32c
from aiokq.records.codecs import RecordCodecs
from aiokq.records.legacy import encode_message_set
from aiokq.records.record import RawRecord, encode_batch


def batch(first: int, count: int, *, epoch: int = 4) -> bytes:
    records = [RawRecord(first + n, 1, None, b"x" * 10) for n in range(count)]
    return encode_batch(records, crc32c=crc32c, leader_epoch=epoch)


def buffers(limit: int = 1_000) -> Buffers:
    return Buffers(limit, codecs=RecordCodecs(crc32c), check_crcs=True)


def test_the_extent_is_the_next_fetch_offset() -> None:
    """The end is taken from the header of the last complete batch."""
    data = batch(5, 3) + batch(8, 2, epoch=6)
    assert extent(memoryview(data)) == (10, 6)
    assert extent(memoryview(data + batch(10, 5)[:-1])) == (10, 6), "the rest is cut off"
    assert extent(memoryview(b"")) == (-1, -1)
    assert extent(memoryview(batch(5, 3)[:-1])) == (-1, -1)


def test_the_extent_of_old_formats_is_that_of_their_last_entry() -> None:
    """Such topics have not been written to since 0.10."""
    records = [RawRecord(7, 1, None, b"a"), RawRecord(8, 1, None, b"b")]
    assert extent(memoryview(bytes(encode_message_set(records, 1)))) == (9, -1)


def test_hostile_lengths_end_the_walk() -> None:
    """Invalid lengths give no offset and no endless loop."""
    for length in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"):
        data = bytearray(batch(0, 1))
        data[8:12] = length
        assert extent(memoryview(bytes(data))) == (-1, -1)


def test_a_frame_counts_until_its_last_chunk_is_gone() -> None:
    """A memoryview of one partition keeps the whole response alive."""
    b = buffers()
    data = memoryview(batch(0, 5))
    frame = b.frame(800)
    chunks = [b.chunk(frame, "t", p, data, 0, 5, None) for p in range(2)]
    assert (b.used, b.room) == (800, 200)
    b.release(chunks[0])
    assert b.used == 800
    b.release(chunks[1])
    assert b.used == 0


def test_a_frame_that_gave_no_chunk_is_not_counted() -> None:
    """Meanwhile seek() was called for all partitions of the response."""
    b = buffers()
    b.discard(b.frame(5_000))
    assert (b.used, b.full) == (0, False)


def test_the_gate_opens_well_below_where_it_closes() -> None:
    """If both limits were the same, each chunk read would start and stop fetching."""
    b = buffers(1_000)
    data = memoryview(batch(0, 1))
    first, second, third = (b.chunk(b.frame(400), "t", 0, data, 0, 1, None) for _ in range(3))
    assert b.full
    assert b.room == 0
    assert not b.release(first)
    assert b.full, "800 of 1000 is not well below"
    assert b.release(second)
    assert not b.full
    assert not b.release(third)


def test_a_detached_chunk_has_its_own_memory_and_keeps_its_position() -> None:
    """A paused partition must not keep the other partitions' memory."""
    b = buffers(10_000)
    data = memoryview(batch(0, 5))
    frame = b.frame(5_000)
    chunk = b.chunk(frame, "t", 0, data, 0, 5, None)
    assert [next(chunk.cursor).offset for _ in range(2)] == [0, 1]
    b.detach(chunk)
    assert b.used == len(data)
    assert chunk.cursor.position == 2
    assert [record.offset for record in chunk.cursor] == [2, 3, 4]
    b.release(chunk)
    assert b.used == 0
