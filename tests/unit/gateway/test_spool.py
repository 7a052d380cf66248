"""The spool on the loop's side: replay, order, outcomes, damage, and the ends of segments."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokq.errors import ConfigError
from aiokq.fastpath.gateway import BAD_TOPIC, SPOOL_HEADER_BYTES, Intake, Pool, spool_frames
from aiokq.gateway import GatewaySettings
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.engine import TopicState
from aiokq.gateway.settings_tables import SpoolSettings
from aiokq.gateway.spool.spool import Spool
from tests.forking import in_child, needs_fork
from tests.gateway_messages import encode

MIB = 1 << 20


def settings(path: Path, **options: Any) -> SpoolSettings:
    given = {"path": str(path), "max_bytes": MIB, "segment_bytes": 4096, **options}
    return SpoolSettings(**given)


class Run:
    """One process: a spool and a pool, whose topic "t" is registered."""

    def __init__(
        self, path: Path, *, pool_bytes: int = MIB, topic_share: int = 7, **options: Any
    ) -> None:
        self.spool = Spool(settings(path, **options))
        self.spool.open()
        self.ready: set[int] = set()
        self.pool = Pool(pool_bytes, wake_fd=self._wake_fd(), topic_share=topic_share, spooled=True)
        self.slot = self.pool.register(b"t")
        self.spool.start(self.pool, lambda callback: callback)
        self.held: list[Any] = []

    def _wake_fd(self) -> int:
        """Return a descriptor by which the pool wakes the loop, as in a gateway."""
        loop = asyncio.get_running_loop()
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.spool._stack.callback(os.close, fd)
        loop.add_reader(fd, self._woken, fd)
        self.spool._stack.callback(loop.remove_reader, fd)
        return fd

    def _woken(self, fd: int) -> None:
        os.read(fd, 8)
        self.ready.update(self.pool.due()[0])
        self.spool.released()

    def append(self, *values: bytes, together: bool = False, topic: bytes = b"t") -> None:
        messages = [encode(topic, value) for value in values]
        for data in [b"".join(messages)] if together else messages:
            assert self.spool.writer.append(data, time.time_ns() // 1_000_000) == -1

    def take(self) -> list[bytes]:
        """Take what is due; its outcome is not known yet."""
        values = []
        while (taken := self.pool.take(self.slot)) is not None:
            self.held.append(taken)
            values += [taken.message(n).value for n in range(taken.count)]
        return values

    def settle(self, wanted: Callable[[bytes], bool] = lambda value: True) -> None:
        """Say that messages that were taken have an outcome."""
        for taken in self.held:
            rows = [n for n in range(taken.count) if wanted(taken.message(n).value)]
            self.pool.release(taken.count, taken.charge)
            if rows:
                self.spool.finished(taken, rows)
        self.held = []

    async def values(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        async with asyncio.timeout(10):
            while len(found) < count:
                found += self.take()
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        return found + self.take()

    async def stalled(self) -> None:
        """Wait until the pool has no room for the next message."""
        async with asyncio.timeout(10):
            while not self.spool._stalled:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def written(self) -> None:
        """Wait until the files have all outcomes."""
        async with asyncio.timeout(10):
            while self.spool._changed or self.spool._changing is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def until(self, *, failed: bool) -> None:
        """Wait until the last change of files has failed, or has not."""
        async with asyncio.timeout(10):
            while (self.spool.error is not None) != failed:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.spool.close()
        self.pool.close()

    async def kill(self) -> None:
        """End as a SIGKILL does: nothing more is written."""
        assert self.spool._reader is not None
        self.spool._reader.stop()
        self.spool._changed.clear()
        while self.spool._changing is not None:  # noqa: ASYNC110  of a thread
            await asyncio.sleep(0.001)
        for handle in (self.spool._change_at, self.spool._feed_at):
            if handle is not None:
                handle.cancel()
        self.spool.writer.close()
        for segment in self.spool._segments:
            segment.close()
        self.spool._stack.close()
        self.pool.close()


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.spool"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


async def test_messages_pass_through_in_order(path: Path) -> None:
    run = Run(path)
    for start in range(0, 300, 3):
        run.append(*numbers(start, 3), together=True)
    assert await run.values(300) == numbers(0, 300)
    assert len(segments(path)) > 2
    assert run.spool.waiting == 0
    run.settle()
    await run.written()
    assert len(segments(path)) == 1  # the one that is written to
    await run.close()
    assert sorted(os.listdir(path)) == ["lock"]


async def test_what_has_no_outcome_is_replayed_first(path: Path) -> None:
    run = Run(path)
    run.append(*numbers(0, 200))
    await run.values(200)
    run.settle(lambda value: int(value) % 3 == 0)
    await run.written()
    await run.kill()
    left = [value for value in numbers(0, 200) if int(value) % 3]
    for _ in range(2):
        run = Run(path)
        assert run.spool.recovered == run.spool.waiting == len(left)
        run.append(*numbers(1000, 5))
        assert await run.values(len(left) + 5) == left + numbers(1000, 5)
        counts = run.pool.counts()
        assert (counts.received, counts.replayed) == (len(left) + 5, len(left))
        run.settle(lambda value: int(value) >= 1000)
        await run.written()
        await run.kill()
    run = Run(path)
    assert await run.values(len(left)) == left
    run.settle()
    await run.close()
    assert segments(path) == []


async def test_what_was_not_fed_is_replayed(path: Path) -> None:
    run = Run(path, pool_bytes=3000)
    run.append(*numbers(0, 500))
    first = await run.values(10)
    assert len(first) < 100
    assert run.spool.waiting == 500 - len(first)
    run.settle()
    await run.close()
    run = Run(path, pool_bytes=3000)
    assert run.spool.recovered == 500 - len(first)
    found = list(first)
    async with asyncio.timeout(10):
        while len(found) < 500:
            found += run.take()
            run.settle()
            await asyncio.sleep(0)
    assert found == numbers(0, 500)
    await run.close()
    assert segments(path) == []


async def test_the_smallest_messages_are_replayed(path: Path) -> None:
    """A bound for the number of messages of a segment must not be too small for them."""
    run = Run(path, pool_bytes=64, segment_bytes=16 * 1024)
    for _ in range(3):
        run.append(*[b""] * 500, together=True)
    await run.kill()
    run = Run(path, segment_bytes=16 * 1024)
    assert run.spool.recovered == 1500
    assert await run.values(1500) == [b""] * 1500
    assert run.spool.damaged == 0
    await run.close()


async def test_a_segment_in_the_middle_is_deleted_first(path: Path) -> None:
    run = Run(path)
    run.append(*numbers(0, 300))
    await run.values(300)
    run.settle(lambda value: value not in (b"1", b"299"))
    await run.written()
    assert len(segments(path)) == 2
    await run.kill()
    run = Run(path)
    assert await run.values(2) == [b"1", b"299"]
    assert run.spool.damaged == 0
    run.settle()
    await run.close()
    assert segments(path) == []


async def test_a_finished_segment_that_a_start_finds_shows_the_end_of_the_one_before(
    path: Path,
) -> None:
    """Regression: a start deleted it before the end of the segment before was on the disk, and the
    next start took its messages for damaged ones of that segment.
    """
    run = Run(path)
    run.append(*numbers(0, 80))
    await run.values(80)
    count = int(segments(path)[1].stem)  # messages of the first segment
    run.settle(lambda value: int(value) >= count)
    await run.written()
    await run.kill()
    for start in (1000, 1001):
        run = Run(path)
        left = numbers(0, count) + numbers(1000, start - 1000)
        assert run.spool.recovered == run.spool.waiting == len(left)
        run.append(b"%d" % start)
        assert await run.values(len(left) + 1) == [*left, b"%d" % start]
        assert run.spool.damaged == 0
        await run.written()
        await run.kill()
    assert int(segments(path)[1].stem) == 80
    run = Run(path)
    assert await run.values(count + 2) == [*numbers(0, count), b"1000", b"1001"]
    run.settle()
    await run.close()
    assert sorted(os.listdir(path)) == ["lock"]


async def test_an_empty_segment_between_others_is_deleted(path: Path) -> None:
    """A full disk empties a segment before it is deleted, and a kill may come between."""
    run = Run(path)
    run.append(*numbers(0, 200))
    await run.values(200)
    second, third = segments(path)[1:3]
    await run.kill()
    os.truncate(second, 0)
    left = numbers(0, 200)
    del left[int(second.stem) : int(third.stem)]
    for _ in range(2):
        run = Run(path)
        assert run.spool.recovered == len(left)
        assert await run.values(len(left)) == left
        assert run.spool.damaged == 0
        await run.written()
        assert not second.exists()
        await run.kill()
    run = Run(path)
    assert await run.values(len(left)) == left
    run.settle()
    await run.close()
    assert sorted(os.listdir(path)) == ["lock"]


async def test_messages_that_the_pool_discards_are_finished(path: Path) -> None:
    run = Run(path)
    run.append(b"a", topic=b"bad/name")
    run.append(b"b")
    assert await run.values(1) == [b"b"]
    run.settle()
    await run.close()
    assert segments(path) == []
    assert run.pool.counts().discarded[8] == 1


async def test_messages_that_are_discarded_after_a_lookup_are_finished_at_once(path: Path) -> None:
    """Regression: only the next wake-up of the pool did that, and a kill before repeated them."""
    run = Run(path)
    accounting = Accounting(run.pool, run.spool)
    run.append(b"a", topic=b"nope")
    run.append(b"too long", topic=b"other")
    async with asyncio.timeout(10):
        while run.pool.counts().received < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    (segment,) = run.spool._segments
    assert segment.left == 2
    assert accounting.discard_unresolved("nope", BAD_TOPIC) == 1
    assert segment.left == 1
    topic = TopicState("other", GatewaySettings().of_topic("other"))
    topic.slot = run.pool.register(b"other", max_message_bytes=3)
    accounting.registered(topic)
    assert segment.left == 0
    await run.close()


async def test_finished_segments_take_no_room_from_new_messages_after_a_start(path: Path) -> None:
    """Regression: until a thread had deleted them, messages were refused as SPOOL_FULL."""
    options = {"max_bytes": 64 * 1024, "segment_bytes": 32 * 1024}
    run = Run(path, **options)
    run.append(b"first", *(bytes(5000) for _ in range(11)))
    await run.values(12)
    run.settle(lambda value: value != b"first")  # so that the second segment is kept
    await run.written()
    await run.kill()
    assert len(segments(path)) == 2
    run = Run(path, **options)
    await run.spool.delete_finished()
    assert len(segments(path)) == 1
    run.append(*(bytes(5000) for _ in range(6)))
    await run.close()


async def test_the_outcomes_of_discarded_messages_cost_no_call_per_message(path: Path) -> None:
    run = Run(path, max_bytes=64 * MIB, segment_bytes=MIB, pool_bytes=64 * MIB)
    message = encode(b"nope", b"x" * 50)
    for _ in range(100):
        assert run.spool.writer.append(message * 500, 0) == -1
    async with asyncio.timeout(10):
        while run.pool.counts().received < 50_000:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert run.pool.discard_unresolved(b"nope", BAD_TOPIC) == 50_000
    assert len(segments(path)) > 3
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        run.spool.note_discards()
    finally:
        sys.setprofile(None)
    assert calls < 200
    await run.written()
    assert len(segments(path)) == 1
    await run.close()
    assert segments(path) == []


async def test_a_full_pool_is_fed_when_messages_are_released(path: Path) -> None:
    run = Run(path, pool_bytes=64 * 1024, max_bytes=8 * MIB, segment_bytes=MIB)
    run.append(*[bytes(500)] * 2000, together=True)
    found = 0
    async with asyncio.timeout(20):
        while found < 2000:
            found += len(run.take())
            run.settle()
            await asyncio.sleep(0)
    await run.close()


async def test_a_full_pool_is_fed_when_a_topic_has_less_than_its_share(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: nothing was fed until a message had its outcome, or a timer ended."""
    monkeypatch.setattr("aiokq.gateway.spool.spool.RETRY_SECONDS", 1000.0)
    run = Run(path, pool_bytes=64 * 1024, topic_share=1)
    run.append(*numbers(0, 2000), together=True)
    async with asyncio.timeout(20):
        await run.stalled()
        assert run.pool.used_bytes() < 33 * 1024
        found = run.take()
        while len(found) < 1000:
            await asyncio.sleep(0.001)
            found += run.take()  # without an outcome of any of them
    assert found == numbers(0, len(found))
    await run.close()


async def test_a_full_pool_is_fed_when_an_incomplete_message_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: nothing was fed until a timer ended."""
    monkeypatch.setattr("aiokq.gateway.spool.spool.RETRY_SECONDS", 1000.0)
    run = Run(path, pool_bytes=64 * 1024)
    address = str(path.parent / "s")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
        listening.bind(address)
        listening.listen()
        intake = Intake(run.pool, listening.fileno(), "unix_stream", max_message_bytes=MIB)
        intake.start()
        try:
            run.append(b"first")
            assert await run.values(1) == [b"first"]
            client.connect(address)
            client.sendall(encode(b"t", bytes(40_000))[:-1])
            async with asyncio.timeout(20):
                while run.pool.counts().partial_bytes < 40_000:  # noqa: ASYNC110  of a thread
                    await asyncio.sleep(0.001)
            run.append(bytes(30_000))
            await run.stalled()
            client.close()
            assert await run.values(1) == [bytes(30_000)]
        finally:
            intake.stop()
    await run.close()


async def test_an_eighth_of_the_pool_is_left_to_incomplete_messages(path: Path) -> None:
    """Regression: the messages of a frame were fed together, and filled a small pool. Messages of
    connections that came in two parts were then discarded, although the spool had room.
    """
    room = 64 * 1024 - 8 * 1024
    run = Run(path, pool_bytes=64 * 1024)
    run.append(*[b"%d" % n + bytes(1000) for n in range(200)], together=True)
    found: list[bytes] = []
    async with asyncio.timeout(10):
        while len(found) < 200:
            found += run.take()
            used = run.pool.used_bytes()
            assert used <= room
            if used > room - 2000:
                run.settle()
            await asyncio.sleep(0)
            if len(found) > 150:
                run.settle()
    assert [int(value.rstrip(b"\0")) for value in found] == list(range(200))
    await run.close()


async def test_a_large_message_waits_until_the_others_have_an_outcome(path: Path) -> None:
    run = Run(path, pool_bytes=64 * 1024)
    run.append(bytes(30_000), bytes(40_000), bytes(60_000), b"last")
    for size in (30_000, 40_000, 60_000, 4):
        assert [len(value) for value in await run.values(1)] == [size]
        run.settle()
    await run.close()


async def test_batches_are_due_when_nothing_can_be_fed(path: Path) -> None:
    """Without a limit of time they would wait for messages for which there is no room."""
    run = Run(path, pool_bytes=64 * 1024)
    run.pool.register(b"t", batch_messages=1000)
    run.append(*[bytes(10_000)] * 3, bytes(40_000))
    found: list[bytes] = []
    async with asyncio.timeout(10):
        while len(found) < 3:
            if run.ready:
                found += run.take()
            await asyncio.sleep(0.001)
    run.settle()
    assert [len(value) for value in found] == [10_000] * 3
    await run.close()


async def test_outcomes_across_segments_and_twice(path: Path) -> None:
    run = Run(path)
    run.append(*numbers(0, 200))
    await run.values(200)
    run.settle()
    run.spool._finish(memoryview(b"\0" * 8).cast("q"))
    run.spool.finished_one(-1)
    run.spool.finished_one(10_000)
    await asyncio.sleep(0.01)
    run.append(b"x", b"y")
    await run.values(2)
    run.spool.finished_one(200)
    run.spool.finished_one(200)
    await run.kill()
    run = Run(path)
    assert await run.values(1) in ([b"y"], [b"x", b"y"])
    await run.close()


# ---------------------------------------------------------------- damage


async def _stored(path: Path, count: int, **options: Any) -> list[Path]:
    run = Run(path, **options)
    run.append(*numbers(0, count))
    await run.values(count)
    await run.kill()
    return segments(path)


@pytest.mark.parametrize("cut", [1, 5, 33, 60])
async def test_a_torn_tail_is_cut_off(path: Path, cut: int) -> None:
    (segment,) = await _stored(path, 10, segment_bytes=MIB // 2)
    size = segment.stat().st_size
    os.truncate(segment, size - cut)
    run = Run(path)
    assert run.spool.recovered == 9
    data = segment.read_bytes()
    assert spool_frames(data, SPOOL_HEADER_BYTES)[-1].end == len(data)
    run.append(b"new")
    assert await run.values(10) == [*numbers(0, 9), b"new"]
    assert run.spool.damaged == 0
    run.settle()
    await run.close()
    assert os.listdir(path) == ["lock"]


async def test_what_follows_the_tail_is_cut_off(path: Path) -> None:
    (segment,) = await _stored(path, 10, segment_bytes=MIB // 2)
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"aKqF" + bytes(3000))
    run = Run(path)
    assert segment.stat().st_size == size
    assert await run.values(10) == numbers(0, 10)
    await run.close()


async def test_a_damaged_frame_is_passed_over_and_counted(path: Path) -> None:
    all_of_them = await _stored(path, 200)
    segment = all_of_them[1]
    data = bytearray(segment.read_bytes())
    frames = spool_frames(data, SPOOL_HEADER_BYTES)
    data[frames[2].begin + 10] ^= 1
    data[frames[3].begin - 20] ^= 1
    segment.write_bytes(data)
    run = Run(path)
    lost = {frames[2].sequence, frames[3].sequence}
    expected = [value for value in numbers(0, 200) if int(value) not in lost]
    assert await run.values(198) == expected
    assert run.spool.damaged == 2
    assert run.spool.waiting == 0
    run.settle()
    await run.close()
    assert sorted(os.listdir(path)) == [segment.name.replace(".spool", ".damaged"), "lock"]


async def test_a_damaged_frame_of_the_newest_segment(path: Path) -> None:
    (segment,) = await _stored(path, 20, segment_bytes=MIB // 2)
    data = bytearray(segment.read_bytes())
    frames = spool_frames(data, SPOOL_HEADER_BYTES)
    data[frames[4].begin - 32] ^= 1  # its magic
    segment.write_bytes(data)
    run = Run(path)
    assert run.spool.recovered == 20
    assert await run.values(19) == numbers(0, 4) + numbers(5, 15)
    assert run.spool.damaged == 1
    await run.close()


async def test_a_damaged_end_of_an_older_segment_is_counted(path: Path) -> None:
    first, *_ = await _stored(path, 200)
    count = len(spool_frames(first.read_bytes(), SPOOL_HEADER_BYTES))
    os.truncate(first, first.stat().st_size - 3)
    run = Run(path)
    assert await run.values(199) == numbers(0, count - 1) + numbers(count, 200 - count)
    assert run.spool.damaged == 1
    await run.close()


async def test_a_message_that_looks_like_a_frame_is_not_believed(path: Path) -> None:
    other = path.parent / "other"
    run = Run(other, segment_bytes=MIB // 2)
    run.spool.writer.close()
    await run.close()
    from aiokq.fastpath.gateway.pure_spool import _frames_of

    parts, _ = _frames_of(memoryview(encode(b"t", b"forged")), 10**15, 0)
    run = Run(path, segment_bytes=MIB // 2)
    run.append(b"0", b"".join(parts), b"2")
    await run.values(3)
    await run.kill()
    (segment,) = segments(path)
    data = bytearray(segment.read_bytes())
    frames = spool_frames(data, SPOOL_HEADER_BYTES)
    data[frames[1].begin + 5] ^= 1
    segment.write_bytes(data)
    run = Run(path)
    assert run.spool.recovered == 3
    assert await run.values(2) == [b"0", b"2"]
    assert run.spool.damaged == 1
    await run.close()


async def _forged_frames(path: Path, count: int) -> Path:
    """Store a message with `count` possible headers, and another one; damage the first frame."""
    run = Run(path, max_bytes=128 * MIB, segment_bytes=32 * MIB, pool_bytes=64 * MIB)
    header = struct.pack(">4sIIIqq", b"aKqF", MIB, 1, 1, 1, 0)
    run.append(header * count, b"good")
    await run.values(2)
    await run.kill()
    (segment,) = segments(path)
    with segment.open("r+b") as file:
        file.seek(SPOOL_HEADER_BYTES + 10)
        file.write(b"\xff\xff\xff\xff")
    return segment


async def test_a_search_after_damage_reads_few_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender can write anything that looks like a header."""
    await _forged_frames(path, 100_000)
    monkeypatch.setattr("aiokq.gateway.spool.reading.CHECKED_BYTES", MIB)
    read = 0
    real = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        data = real(fd, size, position)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    run = Run(path)
    async with asyncio.timeout(20):
        while run.spool.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert read < 40 * MIB
    await run.close()


async def test_a_search_after_damage_does_not_block_the_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiokq.gateway.spool import reading

    await _forged_frames(path, 10)
    real = reading.next_frame
    run = Run(path)
    threads = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*given)

    monkeypatch.setattr(reading, "next_frame", noted)
    assert await run.values(1) == [b"good"]
    assert run.spool.damaged == 1
    assert threads
    assert threading.main_thread() not in threads
    await run.close()


async def test_a_large_message_is_read_without_a_search(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(path, max_bytes=64 * MIB, segment_bytes=8 * MIB, pool_bytes=64 * MIB)
    monkeypatch.setattr("aiokq.gateway.spool.reading.next_frame", None)
    values = [b"small", bytes(3 * MIB), b"next"]
    run.append(*values)
    assert await run.values(3) == values
    assert run.spool.damaged == 0
    await run.close()


async def test_a_search_that_fails_is_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aiokq.gateway.spool import reading

    monkeypatch.setattr("aiokq.gateway.spool.spool.RETRY_SECONDS", 0.01)
    await _forged_frames(path, 10)
    real = reading.next_frame
    run = Run(path)
    failed: list[object] = []

    def broken(*given: Any) -> Any:
        if len(failed) < 2:
            failed.append(given)
            raise OSError(errno.EIO, "Input/output error")
        return real(*given)

    monkeypatch.setattr(reading, "next_frame", broken)
    assert await run.values(1) == [b"good"]
    assert len(failed) == 2
    assert run.spool.error is None
    await run.close()


async def test_a_spool_that_is_closed_during_a_search(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiokq.gateway.spool import reading

    await _forged_frames(path, 10)
    real = reading.next_frame
    begun, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        begun.set()
        go_on.wait(10)
        return real(*given)

    run = Run(path)
    monkeypatch.setattr(reading, "next_frame", slow)
    while not begun.is_set():  # noqa: ASYNC110  of a thread
        await asyncio.sleep(0.001)
    await run.close()
    go_on.set()
    await asyncio.sleep(0.05)
    monkeypatch.undo()
    run = Run(path)
    assert await run.values(1) == [b"good"]
    await run.close()


async def test_a_damaged_header_loses_nothing(path: Path) -> None:
    first, *_ = await _stored(path, 100)
    data = bytearray(first.read_bytes())
    data[:SPOOL_HEADER_BYTES] = bytes(SPOOL_HEADER_BYTES)
    first.write_bytes(data)
    run = Run(path)
    assert await run.values(100) == numbers(0, 100)
    await run.close()


async def test_files_without_messages_are_removed(path: Path) -> None:
    os.mkdir(path)
    (path / f"{5:020d}.spool").write_bytes(b"")
    (path / f"{7:020d}.spool").write_bytes(bytes(20))
    (path / f"{9:020d}.done").write_bytes(b"\xff" * 40)
    (path / "notes.txt").write_text("kept")
    run = Run(path)
    assert run.spool.recovered == 0
    run.append(b"a")
    assert await run.values(1) == [b"a"]
    run.settle()
    await run.close()
    assert sorted(os.listdir(path)) == ["lock", "notes.txt"]


async def test_a_done_file_of_any_content_is_survived(path: Path) -> None:
    run = Run(path)
    run.append(*numbers(0, 60))
    await run.values(60)
    run.settle(lambda value: int(value) < 3)
    await run.written()
    await run.kill()
    done = path / f"{0:020d}.done"
    good = done.read_bytes()
    for content in (b"", good[:10], good[:17], b"\xff" * 16 + good[16:], good + bytes(1000)):
        done.write_bytes(content)
        run = Run(path)
        assert 50 <= run.spool.recovered <= 60
        assert len(await run.values(run.spool.recovered)) == run.spool.recovered
        await run.kill()


# ---------------------------------------------------------------- the directory


async def test_a_directory_has_one_gateway(path: Path) -> None:
    run = Run(path)
    with pytest.raises(ConfigError, match=f"another gateway uses it .process {os.getpid()}"):
        Spool(settings(path)).open()
    await run.close()
    await Run(path).close()


def test_a_missing_parent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Spool(settings(tmp_path / "a" / "b")).open()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Not a directory"):
        Spool(settings(tmp_path / "file")).open()


def test_a_name_with_a_number_that_no_message_has_is_refused(path: Path) -> None:
    """Regression: OverflowError."""
    path.mkdir(exist_ok=True)
    name = path / f"{10**20 - 1}.spool"
    name.write_bytes(b"")
    with pytest.raises(ConfigError, match=f"{name}: this is no file of a spool"):
        Spool(settings(path)).open()


async def test_an_unknown_version_is_refused(path: Path) -> None:
    (segment,) = await _stored(path, 3)
    data = bytearray(segment.read_bytes())
    data[9] = 9
    segment.write_bytes(data)
    with pytest.raises(ConfigError, match=r"version 9, and this gateway knows version 1"):
        Spool(settings(path)).open()
    data[9] = 1
    segment.write_bytes(data)
    await Run(path).close()  # the lock was released


@needs_fork
async def test_a_fork_leaves_the_spool_alone(path: Path) -> None:
    run = Run(path)
    run.append(b"a")

    def child() -> None:
        with pytest.raises(RuntimeError, match="process that created it"):
            run.spool.writer.append(encode(), 0)

    in_child(child)
    assert await run.values(1) == [b"a"]
    await run.close()


# ---------------------------------------------------------------- the disk


async def test_a_segment_that_cannot_be_read_is_counted_and_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = await _stored(path, 200)
    count = len(spool_frames(first.read_bytes(), SPOOL_HEADER_BYTES))
    monkeypatch.setattr("aiokq.gateway.spool.spool.RETRY_SECONDS", 0.01)
    real = os.pread

    def broken(fd: int, size: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") == str(first) and size > SPOOL_HEADER_BYTES:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", broken)
    run = Run(path)
    await run.until(failed=True)
    assert await run.values(200 - count) == numbers(count, 200 - count)
    assert run.spool.damaged == count
    assert run.spool.error is None
    monkeypatch.undo()
    async with asyncio.timeout(10):
        while not first.with_suffix(".damaged").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await run.close()


async def test_outcomes_that_cannot_be_written_are_written_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokq.gateway.spool.spool.RETRY_SECONDS", 0.01)
    run = Run(path)
    run.append(*numbers(0, 10))
    await run.values(10)
    real = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    run.settle(lambda value: int(value) < 4)
    await run.until(failed=True)
    monkeypatch.setattr(os, "pwrite", real)
    await run.until(failed=False)
    await run.kill()
    run = Run(path)
    assert await run.values(6) == numbers(4, 6)
    await run.close()


async def test_messages_that_the_pool_discards_do_not_press_it(path: Path) -> None:
    """Regression: the reader counted them as held, and made all incomplete batches due."""
    run = Run(path, pool_bytes=64 * 1024)
    waiting = run.pool.register(b"w", batch_messages=1000)
    run.pool.register(b"long", max_message_bytes=10)
    run.append(b"waits", topic=b"w")
    run.append(*[bytes(1000)] * 100, topic=b"long")
    reader = run.spool._reader
    assert reader is not None
    async with asyncio.timeout(10):
        while reader.fed < 101:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert run.pool.counts().held == 1
    assert waiting not in {*run.ready, *run.pool.due()[0]}
    await run.close()


async def test_a_full_spool_has_room_when_messages_have_outcomes(path: Path) -> None:
    run = Run(path, max_bytes=64 * 1024, segment_bytes=16 * 1024)
    accepted = 0
    for n in range(2000):
        if run.spool.writer.append(encode(b"t", b"%d" % n), 0) == -1:
            accepted += 1
    assert accepted < 2000
    assert len(await run.values(accepted)) == accepted
    run.settle()
    await run.written()
    run.append(b"again")
    assert await run.values(1) == [b"again"]
    await run.close()


async def test_a_full_spool_deletes_its_newest_segment(path: Path) -> None:
    """Regression: an append without room did not finish it, so it stayed while an older message had
    no outcome, and the spool stayed full.
    """
    run = Run(path, max_bytes=64 * 1024, segment_bytes=32 * 1024)
    count = 0
    while run.spool.writer.append(encode(b"t", b"%d" % count), 0) == -1:
        count += 1
    assert len(await run.values(count)) == count
    assert len(segments(path)) == 2
    run.settle(lambda value: value != b"0")
    await run.written()
    assert len(segments(path)) == 1
    run.append(b"again")
    assert await run.values(1) == [b"again"]
    await run.close()
    run = Run(path)
    assert await run.values(2) == [b"0", b"again"]
    await run.close()


def _full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse all writes of files of outcomes until blocks were freed."""
    freed: list[object] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*given: Any) -> Any:
            freed.append(given)
            return real(*given)

        monkeypatch.setattr(os, name, call)

    noted("truncate")
    noted("unlink")
    write = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if not freed and os.readlink(f"/proc/self/fd/{fd}").endswith(".done"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", full)


async def test_a_full_disk_is_freed_while_an_older_message_has_no_outcome(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the older segment needs a block before the others can be deleted."""
    run = Run(path)
    run.append(*numbers(0, 300))
    await run.values(300)
    assert len(segments(path)) > 3
    _full_disk(monkeypatch)
    run.settle(lambda value: value != b"0")
    await run.written()
    assert len(segments(path)) == 2
    assert run.spool.error is None
    monkeypatch.undo()
    await run.kill()
    run = Run(path)
    assert await run.values(1) == [b"0"]
    assert run.spool.damaged == 0
    await run.close()


async def test_a_kill_after_segments_were_emptied_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(path)
    run.append(*numbers(0, 300))
    await run.values(300)
    first, *others, newest = segments(path)
    assert len(others) > 2
    write = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".done"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    run.settle(lambda value: value != b"0")
    await run.until(failed=True)
    monkeypatch.undo()
    await run.kill()
    assert all(one.stat().st_size == 0 for one in others)
    again = int(others[0].stem) + 300 - int(newest.stem)  # whose outcomes could not be written
    run = Run(path)
    assert run.spool.recovered == again
    assert (await run.values(again))[0] == b"0"
    assert run.spool.damaged == 0
    assert segments(path) == [first, newest]
    await run.close()


async def test_interval_is_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(path, fsync="interval", fsync_interval_ms=1)
    synced = asyncio.ensure_future(run.spool.sync_forever())
    run.append(*numbers(0, 100))
    await run.values(100)
    await asyncio.sleep(0.05)
    synced.cancel()
    assert run.spool.error is None
    await run.close()


class Synced:
    """Notes the paths that are synced to disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: set[str] = set()
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._noted(getattr(os, name)))

    def _noted(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            real(fd)
            self.paths.add(os.readlink(f"/proc/self/fd/{fd}"))

        return call


async def test_the_last_interval_is_synced_at_the_end(path: Path) -> None:
    run = Run(path, fsync="interval")
    calls: list[str] = []
    writer: Any = run.spool.writer

    class Noted:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(writer, name)

    run.append(b"a")
    noted: Any = Noted()
    run.spool.writer = noted
    await run.close()
    assert calls.index("sync") < calls.index("close")


@pytest.mark.parametrize("fsync", ["never", "interval", "each"])
async def test_stored_messages_are_synced_at_the_start(
    path: Path, fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process before may have been killed within an interval."""
    synced = Synced(monkeypatch)
    run = Run(path, fsync=fsync)
    assert synced.paths == (set() if fsync == "never" else {str(path.parent), str(path)})
    run.append(*numbers(0, 100))
    await run.values(100)
    await run.kill()
    synced.paths.clear()
    files = {str(one) for one in segments(path)}
    run = Run(path, fsync=fsync)
    assert synced.paths == (set() if fsync == "never" else {str(path), *files})
    await run.close()


async def test_a_failed_sync_at_the_start_is_logged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await _stored(path, 10)

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    run = Run(path, fsync="interval")
    assert "the stored messages cannot be synced to disk" in caplog.text
    assert await run.values(10) == numbers(0, 10)
    monkeypatch.undo()
    await run.close()


async def test_the_name_of_a_file_of_outcomes_is_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(path, fsync="interval")
    run.append(*numbers(0, 300))
    await run.values(300)
    synced = Synced(monkeypatch)
    run.settle(lambda value: value != b"1")
    await run.written()
    assert str(path) in synced.paths
    await run.close()


class InThreads:
    """Notes which calls of `os` run in which thread, and delays or refuses them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.refused = ""
        for name in ("pwrite", "fdatasync", "unlink"):
            monkeypatch.setattr(os, name, self._noted(name, getattr(os, name)))

    def _noted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.calls.append((name, threading.current_thread() is threading.main_thread()))
            if name == self.refused:
                raise OSError(errno.EIO, "Input/output error")
            return real(*given)

        return call

    def names(self) -> list[str]:
        assert not any(on_loop for _, on_loop in self.calls), "the loop waits for no disk"
        return [name for name, _ in self.calls]


async def test_outcomes_are_written_and_segments_deleted_in_a_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the segment before a deleted one is on the disk first."""
    run = Run(path, fsync="interval")
    run.append(*numbers(0, 300))
    await run.values(300)
    calls = InThreads(monkeypatch)
    run.settle(lambda value: value != b"1")
    await run.written()
    names = calls.names()
    assert names.count("pwrite") >= 2
    assert "fdatasync" in names[: names.index("unlink")]
    assert len(segments(path)) == 2
    run.append(b"x")
    await run.values(1)
    calls.calls.clear()  # that of the writer
    run.settle()
    await run.close()
    assert calls.names().count("unlink") >= 2


async def test_a_segment_stays_until_the_end_of_the_one_before_is_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the messages of a deleted segment would count as damaged after a restart."""
    monkeypatch.setattr("aiokq.gateway.spool.spool.RETRY_SECONDS", 0.01)
    run = Run(path, fsync="interval")
    run.append(*numbers(0, 300))
    await run.values(300)
    before = len(segments(path))
    calls = InThreads(monkeypatch)
    calls.refused = "fdatasync"
    run.settle(lambda value: value != b"1")
    await run.until(failed=True)
    assert len(segments(path)) == before
    calls.refused = ""
    await run.written()
    assert len(segments(path)) == 2
    assert run.spool.error is None
    await run.kill()
    run = Run(path)
    assert await run.values(1) == [b"1"]
    assert run.spool.damaged == 0
    await run.close()


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_segment_is_deleted_only_after_the_one_before(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Regression: a deleted segment showed where the one before ends, and that one stayed, because
    its deletion failed, or the process was killed. The next start took the messages of the deleted
    segment for damaged ones of the segment before.
    """
    run = Run(path)
    run.append(*numbers(0, 300))
    await run.values(300)
    first, second, *_ = files = segments(path)
    unlink, called = os.unlink, []

    def unlink_some(name: str) -> None:
        if name.endswith(".spool"):
            called.append(name)
            if len(called) > 1 if is_killed else Path(name) == first:
                raise OSError(errno.EIO, "Input/output error")
        unlink(name)

    monkeypatch.setattr(os, "unlink", unlink_some)
    run.held.reverse()
    run.settle(lambda value: value != b"299")
    await run.until(failed=True)
    assert segments(path) == (files[1:] if is_killed else files)
    await run.kill()
    monkeypatch.undo()
    run = Run(path)
    assert run.spool.recovered <= 300 - (int(second.stem) if is_killed else 0)
    assert (await run.values(run.spool.recovered))[-1] == b"299"
    assert run.spool.damaged == 0
    run.settle()
    await run.close()
    assert segments(path) == []


async def test_the_outcome_of_some_messages_copies_no_message(path: Path) -> None:
    """Only their sequences are needed."""
    run = Run(path)
    run.append(*numbers(0, 10), together=True)
    await run.values(10)

    class OnlySequences:
        def __init__(self, taken: Any) -> None:
            self.count = taken.count
            self.sequences = taken.sequences

    for taken in run.held:
        chosen: Any = OnlySequences(taken)
        run.spool.finished(chosen, range(taken.count))
    run.held = []
    await run.written()
    run.append(*numbers(10, 10), together=True)
    await run.values(10)
    for taken in run.held:
        chosen = OnlySequences(taken)
        for row in range(taken.count):
            run.spool.finished(chosen, [row])
    await run.close()
    assert segments(path) == []
