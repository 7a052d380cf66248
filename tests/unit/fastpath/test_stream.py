"""RecordStream: `async for` over successive cursors; a cancelled wait loses no record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from aiokq.core.errors import CorruptRecord

Make = Callable[..., object]


class Source:
    """A source of cursors that the test controls."""

    def __init__(self, *cursors: object) -> None:
        self.cursors = list(cursors)
        self.closed = False
        self.waits: list[asyncio.Future[None]] = []

    def next_cursor(self) -> object:
        if self.cursors:
            return self.cursors.pop(0)
        if self.closed:
            raise StopAsyncIteration
        return None

    def wait(self) -> asyncio.Future[None]:
        self.waits.append(asyncio.get_running_loop().create_future())
        return self.waits[-1]

    def add(self, cursor: object) -> None:
        self.cursors.append(cursor)
        self.wake()

    def close(self) -> None:
        self.closed = True
        self.wake()

    def wake(self) -> None:
        for wait in self.waits:
            if not wait.done():
                wait.set_result(None)


@pytest.fixture
def cursor_of(encode: Make, cursor: Make) -> Make:
    """A factory: returns a cursor over the records from start to stop."""

    def make(start: int, stop: int) -> object:
        records = [(None, b"%d" % n, None, n) for n in range(start, stop)]
        return cursor(encode(records, base_offset=start), start)

    return make


async def turn() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_records_come_from_one_cursor_after_another(
    core: SimpleNamespace, cursor_of: Make
) -> None:
    """Empty cursors are skipped; the end of the source ends the loop."""
    source = Source(cursor_of(0, 3), cursor_of(3, 4), cursor_of(4, 9))
    source.closed = True
    stream = core.RecordStream(source)
    assert [record.offset async for record in stream] == list(range(9))
    assert stream.cursor is None or stream.cursor.exhausted


async def test_the_position_moves_at_the_await_and_not_before(
    core: SimpleNamespace, cursor_of: Make
) -> None:
    """An __anext__() that is never awaited takes no record."""
    source = Source(cursor_of(0, 5))
    stream = core.RecordStream(source)
    assert (await anext(stream)).offset == 0
    pending = stream.__anext__()
    assert stream.cursor.position == 1
    assert (await pending).offset == 1
    assert stream.cursor.position == 2
    assert stream.in_hand
    assert stream.cursor.last_handed_offset == 1


async def test_it_waits_for_the_source(core: SimpleNamespace, cursor_of: Make) -> None:
    """It continues when the source has a cursor again."""
    source = Source()
    stream = core.RecordStream(source)
    seen: list[int] = []

    async def read() -> None:
        async for record in stream:
            seen.append(record.offset)

    task = asyncio.create_task(read())
    await turn()
    assert len(source.waits) == 1
    source.wake()  # a wake-up without a cursor
    await turn()
    assert len(source.waits) == 2
    source.add(cursor_of(0, 3))
    await turn()
    assert seen == [0, 1, 2]
    source.add(cursor_of(3, 5))
    await turn()
    source.close()
    await task
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["crc", "record"])
async def test_what_a_cursor_raises_is_raised_once_and_the_source_is_asked(
    core: SimpleNamespace, encode: Make, cursor: Make, cursor_of: Make, damage: str
) -> None:
    """Regression: a loop that continued with the same iterator got the same error for ever."""
    data = bytearray(encode([(None, b"%d" % n, None, n) for n in range(3)]))
    data[-3 if damage == "crc" else 61] ^= 0x40  # a value, or the first record's length
    damaged = cursor(bytes(data), 0, check_crcs=damage == "crc")
    source = Source(damaged, cursor_of(3, 5))
    stream = core.RecordStream(source)
    with pytest.raises(CorruptRecord):
        await anext(stream)
    assert isinstance(damaged.raised, CorruptRecord)  # type: ignore[attr-defined]
    assert [(await anext(stream)).offset for _ in range(2)] == [3, 4]


@pytest.mark.parametrize("before", ["take", "columns"])
async def test_what_a_cursor_met_and_did_not_raise_is_raised_by_the_stream(
    core: SimpleNamespace, encode: Make, cursor: Make, cursor_of: Make, before: str
) -> None:
    """A call for many records returns the good ones; the next call of any kind raises the error."""
    good = encode([(None, b"%d" % n, None, n) for n in range(2)])
    data = bytearray(encode([(None, b"3", None, 3)], base_offset=2))
    data[-2] ^= 1
    damaged = cursor(good + bytes(data), 0)
    taken = damaged.take(9) if before == "take" else damaged.columns()  # type: ignore[attr-defined]
    assert (len(taken), damaged.raised) == (2, None)  # type: ignore[attr-defined]
    stream = core.RecordStream(Source(damaged, cursor_of(3, 4)))
    with pytest.raises(CorruptRecord):
        await anext(stream)
    assert (await anext(stream)).offset == 3


@pytest.mark.parametrize("how", ["wait_for", "timeout", "cancel"])
async def test_a_cancelled_wait_loses_nothing(
    core: SimpleNamespace, cursor_of: Make, how: str
) -> None:
    """A record that arrives later goes to the next reader."""
    source = Source()
    stream = core.RecordStream(source)
    for _ in range(3):
        if how == "wait_for":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.001)
        elif how == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await anext(stream)
        else:

            async def read() -> object:
                return await anext(stream)

            task = asyncio.create_task(read())
            await turn()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    source.add(cursor_of(0, 3))
    assert (await anext(stream)).offset == 0
    assert (await asyncio.wait_for(anext(stream), 1)).offset == 1
    assert [(await anext(stream)).offset] == [2]


async def test_a_record_that_arrives_with_the_cancellation_is_kept(
    core: SimpleNamespace, cursor_of: Make
) -> None:
    """The source woke the task, which was cancelled before it ran."""
    source = Source()
    stream = core.RecordStream(source)

    async def read() -> object:
        return await anext(stream)

    task = asyncio.create_task(read())
    await turn()
    source.add(cursor_of(0, 2))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await anext(stream)).offset == 0


async def test_a_second_iterator_is_refused(core: SimpleNamespace, cursor_of: Make) -> None:
    """Two tasks that share a stream would get records in no defined order."""
    source = Source()
    stream = core.RecordStream(source)

    async def read() -> object:
        return await anext(stream)

    task = asyncio.create_task(read())
    await turn()
    with pytest.raises(RuntimeError, match="another task"):
        await anext(stream)
    source.cursors.append(cursor_of(0, 2))
    with pytest.raises(RuntimeError, match="another task"):
        await anext(stream)
    with pytest.raises(RuntimeError, match="another task"):
        stream.next_nowait()
    source.wake()
    assert (await task).offset == 0
    assert (await anext(stream)).offset == 1


async def test_a_task_destroyed_while_waiting_frees_the_stream(
    core: SimpleNamespace, cursor_of: Make
) -> None:
    """The coroutine is closed from outside, as by an async generator's aclose()."""
    source = Source()
    stream = core.RecordStream(source)

    async def read() -> object:
        return await anext(stream)

    coroutine = read()
    coroutine.send(None)
    coroutine.close()
    source.cursors.append(cursor_of(0, 1))
    assert (await anext(stream)).offset == 0


async def test_an_error_of_the_source_reaches_the_reader(
    core: SimpleNamespace, cursor_of: Make
) -> None:
    """From next_cursor() and from the awaited future; the stream can be used afterwards."""
    source = Source()
    stream = core.RecordStream(source)

    async def read() -> object:
        return await anext(stream)

    task = asyncio.create_task(read())
    await turn()
    source.waits[0].set_exception(OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        await task
    source.cursors.append(cursor_of(0, 1))
    assert (await anext(stream)).offset == 0


async def test_what_is_there_can_be_taken_without_waiting(
    core: SimpleNamespace, cursor_of: Make
) -> None:
    """next_nowait() serves getmany() and tests."""
    stream = core.RecordStream(Source(cursor_of(0, 2)))
    assert [stream.next_nowait().offset, stream.next_nowait().offset] == [0, 1]
    assert stream.next_nowait() is None
    assert repr(stream).startswith("<RecordStream")


async def test_detaching_leaves_the_cursor(core: SimpleNamespace, cursor_of: Make) -> None:
    """After seek() or pause() during iteration the source is asked for another cursor."""
    source = Source(cursor_of(0, 5), cursor_of(100, 105))
    stream = core.RecordStream(source)
    assert (await anext(stream)).offset == 0
    first = stream.cursor
    stream.detach()
    assert (await anext(stream)).offset == 100
    assert first.position == 1


async def test_a_bounded_cursor_is_streamed_to_its_stop(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """The stop offset may be inside a batch."""
    data = encode([(None, b"%d" % n) for n in range(10)])
    source = Source(cursor(data, 2, stop_offset=5), cursor(data, 7))
    source.closed = True
    offsets = [record.offset async for record in core.RecordStream(source)]
    assert offsets == [2, 3, 4, 7, 8, 9]
