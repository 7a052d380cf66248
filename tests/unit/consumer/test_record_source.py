"""RecordSource: rotation of partitions, interruptions, and which records are finished."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiokq.connection.backoff import Backoff
from aiokq.consumer.buffers import Buffers, extent
from aiokq.consumer.positions import PartitionState, Start
from aiokq.consumer.reader import Reader
from aiokq.consumer.record_source import TURN_BYTES, RecordSource
from aiokq.core.errors import Closed, OffsetOutOfRange, TopicAuthorization
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.fastpath.consume import Record
from aiokq.records.codecs import RecordCodecs
from aiokq.records.record import RawRecord, encode_batch


class World:
    """A record source that records its callbacks."""

    def __init__(self) -> None:
        self.buffers = Buffers(10**9, codecs=RecordCodecs(crc32c), check_crcs=True)
        self.counted = 0
        self.starved = 0
        self.source = RecordSource(
            self.buffers,
            consumed=lambda state: None,
            starved=self._starve,
            counted=self._count,
            opened=lambda: None,
        )

    def _count(self, records: int) -> None:
        self.counted += records

    def _starve(self, source: RecordSource) -> None:
        self.starved += 1

    def partition(self, number: int) -> PartitionState:
        state = PartitionState(
            TopicPartition("t", number),
            Start.POLICY,
            self.source,
            Backoff(0.1, 1, random.Random(1)),
        )
        state.jump(0)
        self.source.add(state)
        return state

    def fetched(self, state: PartitionState, count: int, *, size: int = 3) -> None:
        """Add a chunk of `count` records at the next offsets."""
        first = state.fetch_offset
        records = [RawRecord(first + n, 1, None, b"x" * size) for n in range(count)]
        data = memoryview(encode_batch(records, crc32c=crc32c))
        end, _ = extent(data)
        chunk = self.buffers.chunk(
            self.buffers.frame(len(data)), "t", state.tp.partition, data, first, end, None
        )
        state.chunks.append(chunk)
        state.queued_bytes += chunk.size
        state.fetch_offset = end
        self.source.arrived(state)

    def take(self) -> tuple[int, int] | None:
        record = self.source.stream.next_nowait()
        return None if record is None else (record.partition, record.offset)


async def test_partitions_take_turns_chunk_by_chunk() -> None:
    """A partition that always has records must not delay the others."""
    world = World()
    a, b = world.partition(0), world.partition(1)
    for _ in range(2):
        world.fetched(a, 2)
    world.fetched(b, 2)
    order = [world.take() for _ in range(6)]
    assert order == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
    assert world.take() is None
    assert world.counted == 6
    assert world.buffers.used == 0


async def test_a_record_is_finished_when_the_next_one_is_asked_for() -> None:
    """Automatic commits use the offset of finished records."""
    world = World()
    a, b = world.partition(0), world.partition(1)
    world.fetched(a, 2)
    world.fetched(b, 1)
    assert world.source.finished(a) == 0
    world.take()
    assert (a.position, world.source.finished(a)) == (1, 0)
    world.take()
    assert (a.position, world.source.finished(a)) == (2, 1)
    world.take()
    assert (world.source.finished(a), world.source.finished(b)) == (2, 0)
    assert world.take() is None
    assert world.source.finished(b) == 1


async def test_records_of_one_call_are_finished_together() -> None:
    """For getmany and batches."""
    world = World()
    a = world.partition(0)
    world.fetched(a, 5)
    taken = world.source.take(3)
    assert [r.offset for r in taken[a.tp]] == [0, 1, 2]
    assert (a.position, world.source.finished(a)) == (3, 0)
    chunk = world.source.take_chunk()
    assert chunk is not None
    assert (chunk.position, chunk.next_offset) == (3, 5)
    assert (a.position, world.source.finished(a)) == (5, 3)
    assert world.source.take_chunk() is None
    assert world.source.finished(a) == 5


async def test_an_interrupted_record_stays_unfinished_and_is_not_handed_over_again() -> None:
    """pause() is called in the middle of a loop."""
    world = World()
    a = world.partition(0)
    world.fetched(a, 3)
    world.take()
    a.paused = True
    world.source.interrupt(a)
    assert world.source.finished(a) == 0
    assert world.take() is None
    assert world.source.finished(a) == 1
    a.paused = False
    world.source.arrived(a)
    assert world.take() == (0, 1)


async def test_dropping_keeps_the_position() -> None:
    """Discarded records are fetched again from the position."""
    world = World()
    a = world.partition(0)
    world.fetched(a, 3)
    world.fetched(a, 3)
    world.take()
    world.source.drop(a)
    assert (a.position, a.fetch_offset, a.queued_bytes) == (1, 1, 0)
    assert world.buffers.used == 0
    assert world.take() is None


async def test_a_partition_that_moves_to_another_stream_keeps_its_chunks() -> None:
    """The chunks stay in order."""
    world, other = World(), World()
    a = world.partition(0)
    world.fetched(a, 3)
    world.take()
    world.source.remove(a)
    assert world.take() is None
    other.source._buffers = other.source._chunks._buffers = world.buffers
    other.source.add(a)
    assert [other.take() for _ in range(2)] == [(0, 1), (0, 2)]


async def test_an_error_is_raised_once_and_then_reading_continues() -> None:
    """An error about a partition for which seek() was called meanwhile is not raised."""
    world = World()
    a = world.partition(0)
    world.source.report(OffsetOutOfRange(topic_partition=a.tp))
    world.fetched(a, 1)
    with pytest.raises(OffsetOutOfRange):
        world.take()
    assert world.take() == (0, 0)
    world.source.report(OffsetOutOfRange(topic_partition=a.tp))
    world.source.forget_errors(a.tp)
    assert world.take() is None


async def test_an_error_that_nobody_reads_is_kept_once() -> None:
    """An authorization error repeats every second while user code works for an hour."""
    world = World()
    a, b = world.partition(0), world.partition(1)
    for attempt in range(3):
        for state in (a, b):
            error = TopicAuthorization(f"attempt {attempt}", topic_partition=state.tp)
            world.source.report(error)
    world.source.report(OffsetOutOfRange(topic_partition=a.tp))
    for tp in (a.tp, b.tp):
        with pytest.raises(TopicAuthorization, match="attempt 2") as raised:
            world.take()
        assert raised.value.topic_partition == tp
    with pytest.raises(OffsetOutOfRange):
        world.take()
    assert world.take() is None


async def test_reading_yields_to_the_loop_after_a_number_of_bytes() -> None:
    """Otherwise reading from the buffers would starve fetching."""
    world = World()
    a = world.partition(0)
    world.fetched(a, 1, size=TURN_BYTES)
    world.fetched(a, 1)
    assert world.take() == (0, 0)
    assert world.take() is None, "though there is more"
    turns = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await world.source.wait()
    assert turns == [1]
    assert world.take() == (0, 1)


async def test_waiting_is_reported_once_and_ends_when_records_arrive() -> None:
    """Partitions of a waiting reader are fetched even if the buffers are full."""
    world = World()
    a = world.partition(0)
    first, second = world.source.wait(), world.source.wait()
    assert world.source.hungry
    assert world.starved == 1
    world.fetched(a, 1)
    await asyncio.gather(first, second)
    assert not world.source.hungry
    assert world.source.wait().done()


async def test_polling_without_a_timeout_lets_the_loop_run() -> None:
    """`while True: await consumer.getmany()` would prevent fetching."""
    world = World()
    state = world.partition(0)
    reader = Reader(world.source, world.buffers, None)
    asyncio.get_running_loop().call_soon(world.fetched, state, 2)
    got: dict[TopicPartition, list[Record]] = {}
    for _ in range(3):
        got = got or await reader.many((), 0.0, 10)
    assert [record.offset for record in got[state.tp]] == [0, 1]


async def test_a_cancelled_wait_is_not_hungry() -> None:
    """Without a waiting reader the memory limit applies again."""
    world = World()
    world.partition(0)
    waiting = world.source.wait()
    waiting.cancel()
    await asyncio.sleep(0)
    assert not world.source.hungry


async def test_closing_ends_loops_and_fails_calls() -> None:
    """Calls raise the failure, if there is one."""
    world = World()
    waiting = world.source.wait()
    world.source.close()
    await waiting
    with pytest.raises(StopAsyncIteration):
        world.take()
    with pytest.raises(Closed):
        world.source.take(1)
    failed = World()
    failed.source.close(Closed("the consumer failed"))
    for _ in range(2):
        with pytest.raises(Closed, match="failed"):
            failed.take()
