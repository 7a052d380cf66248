"""The cost of records that do not deserialize is linear in their number."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest

from aiokq.connection.backoff import Backoff
from aiokq.consumer.batch_progress import BatchProgress
from aiokq.consumer.buffers import Buffers, extent, from_offset
from aiokq.consumer.deserializers import record_deserializer
from aiokq.consumer.positions import PartitionState, Start
from aiokq.consumer.reader import Reader
from aiokq.consumer.record_source import RecordSource
from aiokq.consumer.settings import ConsumerSettings
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.fastpath.consume import Cursor
from aiokq.records import compression
from aiokq.records.codecs import RecordCodecs
from aiokq.records.record import RawRecord, encode_batch

BATCHES, EACH = 4, 25
RECORDS = BATCHES * EACH


class PoisonError(Exception):
    """Raised by the deserializers of these tests."""


class CountingCodecs(RecordCodecs):
    """Counts decompressed batches."""

    def __init__(self) -> None:
        super().__init__(crc32c)
        self.opened = 0

    def decompress(self, codec: int, data: memoryview, limit: int) -> bytes:
        self.opened += 1
        return super().decompress(codec, data, limit)


class CountingCursor:
    """A cursor that counts the records that it decodes as columns."""

    def __init__(self, cursor: Cursor, buffers: CountingBuffers) -> None:
        self._cursor = cursor
        self._buffers = buffers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Any:
        return iter(self._cursor)

    def columns(self, names: Any) -> Any:
        columns = self._cursor.columns(names)
        self._buffers.decoded += len(columns)
        return columns


class CountingBuffers(Buffers):
    """Counts checks of whole chunks, copies, and records decoded as columns."""

    verified = 0
    frames = 0
    decoded = 0

    def cursor_of(self, taken: Any, position: int, stop: int | None) -> Any:
        return CountingCursor(super().cursor_of(taken, position, stop), self)

    def frame(self, size: int) -> Any:
        self.frames += 1
        return super().frame(size)

    def sound_prefix(self, chunk: Any) -> Any:
        self.verified += 1
        return super().sound_prefix(chunk)


class World:
    """A reader of one partition in which the odd records, or all, fail to deserialize.

    Attributes:
        calls: calls of the deserializer, by offset.
        counted: records received.
    """

    def __init__(self, *, odd: bool) -> None:
        self.codecs = CountingCodecs()
        self.buffers = CountingBuffers(10**9, codecs=self.codecs, check_crcs=True)
        self.calls: dict[int, int] = {}
        self.counted = 0
        self.source = RecordSource(
            self.buffers,
            consumed=lambda state: None,
            starved=lambda source: None,
            counted=self._count,
            opened=lambda: None,
        )

        def deserialize(data: bytes) -> int:
            offset = int(data)
            self.calls[offset] = self.calls.get(offset, 0) + 1
            if offset % 2 or not odd:
                raise PoisonError(offset)
            return offset

        make = record_deserializer(ConsumerSettings(value_deserializer=deserialize))
        self.reader = Reader(self.source, self.buffers, make)
        backoff = Backoff(0.1, 1, random.Random(1))
        self.state = PartitionState(TopicPartition("t", 0), Start.POLICY, self.source, backoff)
        self.state.jump(0)
        self.source.add(self.state)
        data = memoryview(b"".join(batch(n * EACH) for n in range(BATCHES)))
        self.size = len(data)
        frame = self.buffers.frame(2 * self.size)  # the frame also has data of other partitions
        chunk = self.buffers.chunk(frame, "t", 0, data, 0, extent(data).end_offset, None)
        self.state.chunks.append(chunk)
        self.state.queued_bytes += chunk.size
        self.state.fetch_offset = RECORDS
        self.source.arrived(self.state)

    def _count(self, records: int) -> None:
        self.counted += records


def batch(first: int) -> bytes:
    """Return a compressed batch of EACH records whose values are their offsets."""
    records = [RawRecord(first + n, 1, None, b"%d" % (first + n)) for n in range(EACH)]
    return encode_batch(records, crc32c=crc32c, codec=compression.ZSTD)


@pytest.mark.parametrize("odd", [True, False])
async def test_batches_that_stop_at_each_error_are_decompressed_and_copied_once(odd: bool) -> None:
    """For each error the whole rest was copied, verified, decompressed and counted again."""
    world = World(odd=odd)
    good: list[int] = []
    errors: list[int] = []
    while len(good) + len(errors) < RECORDS:
        try:
            for record in await world.reader.next_batch():
                good.append(record.offset)
        except PoisonError as error:
            errors.append(error.args[0])
        assert world.buffers.used <= world.size
    assert errors == [n for n in range(RECORDS) if n % 2 or not odd]
    assert sorted(good + errors) == list(range(RECORDS))
    # One more for the first batch, which is examined in the response's memory before the copy.
    assert world.codecs.opened <= BATCHES + 1
    assert world.buffers.verified == 1
    assert world.buffers.frames == 2, "the response, and one copy"
    assert set(world.calls.values()) == {1}
    assert world.counted == RECORDS
    world.source.finish()
    assert world.buffers.used == 0


async def test_a_batch_read_with_repeated_errors_is_decompressed_once() -> None:
    """The next batch continues at the decompressed position."""
    world = World(odd=False)
    for offset in range(RECORDS):
        batch = await world.reader.next_batch()
        with pytest.raises(PoisonError, match=f"^{offset}\n"):
            _ = batch.records
    assert world.codecs.opened <= BATCHES + 1


async def test_a_batch_continues_after_an_error_without_decompressing_again() -> None:
    """The next iteration continues with the decompressed data."""
    world = World(odd=False)
    batch = await world.reader.next_batch()
    for _ in range(RECORDS):
        with pytest.raises(PoisonError):
            for _ in batch:
                pass
    assert world.codecs.opened == BATCHES
    assert batch.next_offset == RECORDS


async def test_the_length_of_the_rest_of_a_batch_is_counted_on_demand() -> None:
    """The rest of a batch can only be counted by decoding."""
    world = World(odd=False)
    for left in range(RECORDS, RECORDS - 3, -1):
        batch = await world.reader.next_batch()
        assert [len(batch), len(batch)] == [left, left]
        with pytest.raises(PoisonError):
            next(iter(batch))


@pytest.mark.parametrize("odd", [True, False])
async def test_list_of_batches_that_stop_at_each_error_decodes_each_record_once(odd: bool) -> None:
    """`list()` asks each batch for its length, which decoded all remaining records."""
    world = World(odd=odd)
    good: list[int] = []
    errors: list[int] = []
    while len(errors) < RECORDS // (2 if odd else 1):
        batch = await world.reader.next_batch()
        left = RECORDS - batch.base_offset
        assert len(batch) == left
        try:
            good += [record.offset for record in list(batch)]
        except PoisonError as error:
            errors.append(error.args[0])
    assert errors == [n for n in range(RECORDS) if n % 2 or not odd]
    assert world.buffers.decoded <= RECORDS
    assert world.codecs.opened <= 2 * BATCHES, "read, and once for the offsets"


async def test_the_parts_of_a_batch_between_errors_have_their_own_lengths() -> None:
    """Iterating the whole batch raised several times; parts between the failed records are left."""
    world = World(odd=True)
    whole = await world.reader.next_batch()
    for offset in (1, 3):
        with pytest.raises(PoisonError, match=f"^{offset}\n"):
            _ = whole.records
    lengths = []
    for _ in range(3):
        batch = await world.reader.next_batch()
        lengths.append((batch.base_offset, len(batch)))
    assert lengths == [(0, 1), (2, 1), (4, RECORDS - 4)]


@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("limit", [1, 10])
async def test_getmany_deserializes_and_decompresses_each_once(limit: int, odd: bool) -> None:
    """A record that failed after good ones was deserialized and its batch decompressed twice."""
    world = World(odd=odd)
    found: list[int] = []
    while len(found) < RECORDS:
        try:
            for records in (await world.reader.many((), 0.0, limit)).values():
                found += [record.offset for record in records]
                assert world.state.position == found[-1] + 1, "the error is not handed over yet"
        except PoisonError as error:
            found.append(error.record.offset)  # type: ignore[attr-defined]
    assert found == list(range(RECORDS))
    assert world.codecs.opened <= 2 * BATCHES  # some batches twice
    assert set(world.calls.values()) == {1}
    assert not await world.reader.many((), 0.0, limit)
    assert (world.counted, world.buffers.used) == (RECORDS, 0)


async def test_a_pending_error_is_in_no_reference_cycle() -> None:
    """The error may never be raised, and must be freed with its chunk."""
    world = World(odd=True)
    gc.disable()
    try:
        await world.reader.many((), 0.0, 10)
        failed = world.state.chunks[0].failed
        assert failed is not None
        gone = weakref.ref(failed[1])
        del failed
        world.source.drop(world.state)
        assert gone() is None
    finally:
        gc.enable()


async def test_a_pending_error_is_not_raised_by_a_batch_or_after_a_seek() -> None:
    """The record is deserialized again."""
    world = World(odd=True)
    assert len((await world.reader.many((), 0.0, 10))[world.state.tp]) == 1
    with pytest.raises(PoisonError, match=r"^1\n"):
        for _ in await world.reader.next_batch():
            pass
    assert world.calls[1] == 2
    (rest,) = (await world.reader.many((), 0.0, 10)).values()
    assert [record.offset for record in rest] == [2]


def test_finished_iterations_do_not_accumulate() -> None:
    """Only the furthest iteration, those that met undecodable data, and those in use are kept."""
    data = batch(0) + b"".join([batch(EACH)[:-1], b"\xff"])
    codecs = RecordCodecs(crc32c)

    def begin() -> Cursor:
        cursor = Cursor("t", 0, data, start_offset=progress.start(), codecs=codecs)
        progress.iteration_started(cursor)
        return cursor

    progress = BatchProgress(0, 2 * EACH)
    furthest = begin()
    furthest.take(7)
    del furthest
    in_use = begin()
    in_use.take(1)
    for _ in range(1_000):
        next(begin())
    assert len(progress._iterations) < 20
    assert progress._reached() == 7
    in_use.take(8)
    for _ in range(100):
        next(begin())
    assert progress._reached() == 9


def test_complete_batches_before_an_offset_are_removed() -> None:
    """Invalid batches are kept."""
    parts = [batch(0), batch(EACH), batch(2 * EACH)]
    data = memoryview(b"".join(parts))
    for offset in range(3 * EACH):
        assert from_offset(data, offset) == b"".join(parts[offset // EACH :])
    assert from_offset(data, 3 * EACH) == b""
    assert from_offset(data[:-1], 3 * EACH) == parts[2][:-1]
    hostile = bytearray(parts[0])
    hostile[8:12] = b"\x7f\xff\xff\xff"
    assert from_offset(memoryview(bytes(hostile)), EACH) == bytes(hostile)
