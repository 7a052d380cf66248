"""The writer of the gateway's spool, inputs that use it, and what the pool says of fed messages."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.fastpath import gateway
from aiokq.fastpath.gateway import SPOOL_ERROR, SPOOL_FULL, SPOOL_HEADER_BYTES
from aiokq.fastpath.gateway.pure_spool import spool_header
from tests.gateway_messages import NOW, encode

MIB = 1 << 20


def messages(first: int, count: int, size: int = 0) -> list[bytes]:
    return [encode(value=b"%d" % n + bytes(size)) for n in range(first, first + count)]


def frames_of(core: SimpleNamespace, path: Path) -> list[tuple[int, int, bytes]]:
    """Return sequence, number and bytes of the messages of each frame of a segment."""
    data = path.read_bytes()
    assert core.spool_version(data) == 1
    found = core.spool_frames(data, SPOOL_HEADER_BYTES)
    assert (found[-1].end if found else SPOOL_HEADER_BYTES) == len(data)
    return [(one.sequence, one.messages, data[one.begin : one.end]) for one in found]


@pytest.fixture
def writers(core: SimpleNamespace, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(directory: Path = tmp_path, **options: Any) -> Any:
        options = {"max_bytes": MIB, "segment_bytes": MIB, **options}
        made.append(core.SpoolWriter(str(directory), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)], capture_output=True
    )
    if made.returncode:
        pytest.skip("this user cannot mount a small disk")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_frames_are_appended(core: SimpleNamespace, writers: Any, tmp_path: Path) -> None:
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    writer = writers(sequence=7, wake_fd=wake)
    assert writer.progress() == ((), -1, 0, 7)
    one = messages(0, 3)
    assert writer.append(b"".join(one), NOW) == -1
    assert writer.append(b"", NOW) == -1
    assert os.read(wake, 8)
    assert writer.append(one[0], NOW + 1) == -1
    with pytest.raises(BlockingIOError):
        os.read(wake, 8)
    path = tmp_path / f"{7:020d}.spool"
    assert frames_of(core, path) == [(7, 3, b"".join(one)), (10, 1, one[0])]
    size = path.stat().st_size
    assert writer.progress() == ((), 7, size, 11)
    counts = writer.counts()
    assert counts[:4] == (4, len(b"".join(one)) + len(one[0]), 11, size)
    assert (counts.failures, counts.error) == (0, 0)
    assert writer.append(one[0], NOW) == -1
    assert os.read(wake, 8)
    os.close(wake)


def test_what_is_no_whole_message_is_refused(writers: Any) -> None:
    writer = writers()
    for data in (b"\0\0\0\3abc", encode()[:-1], encode() + b"\0\0\0", b"\xff" * 40):
        with pytest.raises(ValueError, match="whole"):
            writer.append(data, NOW)
    assert writer.counts().sequence == 0


def test_both_cores_write_the_same_bytes(
    core: SimpleNamespace, writers: Any, tmp_path: Path
) -> None:
    writer = writers()
    data = b"".join(messages(0, 5000, 20)) + encode(value=bytes(200_000)) + encode()
    writer.append(data, NOW)
    found = frames_of(core, tmp_path / f"{0:020d}.spool")
    assert b"".join(part for _, _, part in found) == data
    assert [at for at, _, _ in found] == [
        sum(count for _, count, _ in found[:n]) for n in range(len(found))
    ]
    large = [part for _, _, part in found if len(part) > 65536]
    assert large == [encode(value=bytes(200_000))]
    assert all(len(part) > 60_000 for _, _, part in found[:-3])
    parts, count = gateway_frames(data)
    written = (tmp_path / f"{0:020d}.spool").read_bytes()
    assert written[SPOOL_HEADER_BYTES:] == parts
    assert count == sum(count for _, count, _ in found) == 5002
    created = int.from_bytes(written[24:32], "big")
    assert written[:SPOOL_HEADER_BYTES] == spool_header(0, created)


def gateway_frames(data: bytes) -> tuple[bytes, int]:
    from aiokq.fastpath.gateway.pure_spool import _frames_of

    parts, count = _frames_of(memoryview(data), 0, NOW)
    return b"".join(parts), count


def test_each_damaged_byte_is_noticed(core: SimpleNamespace, writers: Any, tmp_path: Path) -> None:
    writers().append(encode(value=b"abc"), NOW)
    data = bytearray((tmp_path / f"{0:020d}.spool").read_bytes())
    assert len(core.spool_frames(data, SPOOL_HEADER_BYTES)) == 1
    for at in range(SPOOL_HEADER_BYTES, len(data)):
        data[at] ^= 1
        assert core.spool_frames(data, SPOOL_HEADER_BYTES) == []
        data[at] ^= 1
    for size in range(len(data)):
        assert core.spool_frames(data[:size], SPOOL_HEADER_BYTES) == []
    assert core.spool_version(data) == 1
    for at in (0, 7, 12, 16, 31):
        data[at] ^= 1
        assert core.spool_version(data) == -1
        data[at] ^= 1
    data[9] = 2
    assert core.spool_version(data) == 2
    assert core.spool_version(data[:31]) == -1


def test_segments_roll(core: SimpleNamespace, writers: Any, tmp_path: Path) -> None:
    writer = writers(segment_bytes=1000)
    for message in messages(0, 20, 100):
        assert writer.append(message, NOW) == -1
    sealed, base, end, sequence = writer.progress()
    assert sequence == 20
    assert writer.progress().sealed == ()
    following = [one[0] for one in sealed[1:]] + [base]
    assert [one[2] for one in sealed] == following
    for first, size, until in sealed:
        path = tmp_path / f"{first:020d}.spool"
        assert path.stat().st_size == size <= 1000
        assert sum(count for _, count, _ in frames_of(core, path)) == until - first
    assert (tmp_path / f"{base:020d}.spool").stat().st_size == end
    assert writer.append(encode(value=bytes(5000)), NOW) == -1  # larger than a segment
    assert writer.progress().sequence == 21


def test_a_full_spool_refuses_until_a_segment_is_deleted(writers: Any, tmp_path: Path) -> None:
    writer = writers(max_bytes=2000, segment_bytes=1000)
    (one,) = messages(0, 1, 400)
    assert [writer.append(one, NOW) for _ in range(5)] == [-1] * 4 + [SPOOL_FULL]
    assert writer.counts().error == 0
    assert writer.append(one, NOW, force=True) == -1
    assert writer.append(one, NOW) == SPOOL_FULL
    ((base, size, _),) = writer.progress().sealed[:1]
    waiting = threading.Thread(target=writer.wait, args=(len(one),))
    waiting.start()
    writer.freed(size)
    waiting.join(10)
    assert not waiting.is_alive()
    assert writer.append(one, NOW) == -1
    assert base == 0
    assert not writer.wait(2000)  # it never fits
    assert writer.wait(100)


def test_a_large_message_does_not_wait_for_the_current_segment(writers: Any) -> None:
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    writer = writers(max_bytes=2000, segment_bytes=1000, wake_fd=wake)
    assert writer.append(encode(value=bytes(300)), NOW) == -1
    assert writer.progress().sealed == ()
    os.read(wake, 8)
    assert writer.append(encode(value=bytes(1700)), NOW) == SPOOL_FULL
    assert os.read(wake, 8)
    ((_, size, _),) = writer.progress().sealed
    assert writer.append(encode(value=bytes(1700)), NOW) == SPOOL_FULL
    writer.freed(size)
    assert writer.append(encode(value=bytes(1700)), NOW) == -1
    os.close(wake)


def test_a_full_disk_cuts_what_was_written_in_part(
    core: SimpleNamespace, writers: Any, small_disk: Path
) -> None:
    writer = writers(small_disk)
    kept = b"".join(messages(0, 10, 1000))
    assert writer.append(kept, NOW) == -1
    large = b"".join(messages(0, 60, 1000))
    assert writer.append(large, NOW) == SPOOL_FULL
    assert writer.counts().error == errno.ENOSPC
    assert writer.append(kept, NOW) == SPOOL_FULL  # not tried again at once
    path = small_disk / f"{0:020d}.spool"
    assert frames_of(core, path) == [(0, 10, kept)]
    assert writer.wait(len(kept))
    time.sleep(0.05)
    assert writer.append(kept, NOW) == -1
    assert writer.counts().error == 0
    assert frames_of(core, path) == [(0, 10, kept), (10, 10, kept)]
    (small_disk / "other").write_bytes(bytes(30_000))
    assert writer.append(kept + kept, NOW) == SPOOL_FULL
    time.sleep(0.06)
    (small_disk / "other").unlink()
    assert writer.append(kept, NOW) == -1
    assert writer.progress().sequence == 30


def test_an_error_is_tried_again_later(core: SimpleNamespace, writers: Any, tmp_path: Path) -> None:
    (one,) = messages(0, 1)
    gone = tmp_path / "gone"
    writer = writers(gone)
    assert writer.append(one, NOW) == SPOOL_ERROR
    assert writer.counts().error == errno.ENOENT
    gone.mkdir()
    assert writer.append(one, NOW) == SPOOL_ERROR
    while writer.append(one, NOW) >= 0:
        assert writer.wait(len(one))
    assert frames_of(core, gone / f"{0:020d}.spool") == [(0, 1, one)]
    assert writer.counts().error == 0


def test_a_write_that_fails_leaves_whole_frames(
    core: SimpleNamespace, writers: Any, tmp_path: Path
) -> None:
    writer = writers()
    (one,) = messages(0, 1, 500)
    assert writer.append(one, NOW) == -1
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        assert writer.append(one + one, NOW) == SPOOL_ERROR
        assert writer.counts().error == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert frames_of(core, tmp_path / f"{0:020d}.spool") == [(0, 1, one)]


@pytest.mark.parametrize("mode", ["interval", "each"])
def test_data_is_synced(core: SimpleNamespace, writers: Any, mode: str) -> None:
    writer = writers(fsync=mode, segment_bytes=300)
    for message in messages(0, 10, 100):
        assert writer.append(message, NOW) == -1
    assert writer.sync() == 0
    assert writer.sync() == 0
    assert writer.counts().failures == 0
    with pytest.raises(ValueError, match="fsync"):
        writers(fsync="always")


@pytest.mark.parametrize("core", ["pure"], indirect=True)
def test_what_cannot_be_synced_is_not_accepted(
    core: SimpleNamespace, writers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writers(fsync="each")
    (one,) = messages(0, 1)
    assert writer.append(one, NOW) == -1
    synced = os.fdatasync

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", broken)
    assert writer.append(one, NOW) == SPOOL_ERROR
    assert writer.counts()[4:] == (1, errno.EIO)
    monkeypatch.setattr(os, "fdatasync", synced)
    time.sleep(0.06)
    assert writer.append(one, NOW) == -1
    # The segment whose data may be lost has no further messages.
    assert [one[0] for one in writer.progress().sealed] == [0]
    assert frames_of(core, tmp_path / f"{0:020d}.spool") == [(0, 1, one)]
    assert frames_of(core, tmp_path / f"{1:020d}.spool") == [(1, 1, one)]


@pytest.mark.parametrize("core", ["pure"], indirect=True)
def test_an_interval_that_cannot_be_synced_begins_a_segment(
    core: SimpleNamespace, writers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writers(fsync="interval")
    (one,) = messages(0, 1)
    assert writer.append(one, NOW) == -1
    synced = os.fdatasync

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", broken)
    assert writer.sync() == errno.EIO
    assert writer.counts()[4:] == (1, errno.EIO)
    monkeypatch.setattr(os, "fdatasync", synced)
    assert writer.append(one, NOW) == -1
    assert [sealed[0] for sealed in writer.progress().sealed] == [0]
    assert writer.sync() == 0
    assert writer.counts().error == 0


def test_a_name_that_cannot_be_synced_is_synced_again(writers: Any, tmp_path: Path) -> None:
    writer = writers(fsync="interval")
    assert writer.append(encode(), 1) == -1
    directory = tmp_path.rename(tmp_path.with_name("moved"))
    try:
        for _ in range(3):
            assert writer.sync() == errno.ENOENT
            assert writer.counts().error == errno.ENOENT
    finally:
        directory.rename(tmp_path)
    assert writer.sync() == 0
    assert writer.counts().error == 0


def test_a_sync_without_a_descriptor_is_a_failure(writers: Any) -> None:
    writer = writers(fsync="interval")
    assert writer.append(encode(), 1) == -1
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest descriptor that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free, 4), limits[1]))
    try:
        assert writer.sync() == errno.EMFILE
        counts = writer.counts()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (counts.error, counts.failures) == (errno.EMFILE, 1)
    assert writer.sync() == 0
    assert writer.counts().error == 0


def test_a_closed_writer_accepts_nothing(writers: Any) -> None:
    writer = writers()
    writer.append(encode(), NOW)
    writer.close()
    writer.close()
    assert writer.append(encode(), NOW) == SPOOL_ERROR
    assert not writer.wait(10)
    assert writer.progress().sequence == 1


def test_threads_append_at_once(core: SimpleNamespace, writers: Any, tmp_path: Path) -> None:
    writer = writers(max_bytes=64 * MIB, segment_bytes=20_000)

    def run(first: int) -> None:
        for message in messages(first, 300):
            assert writer.append(message, NOW) == -1

    threads = [threading.Thread(target=run, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    sealed: list[tuple[int, int, int]] = []
    while any(thread.is_alive() for thread in threads):
        sealed += writer.progress().sealed
        writer.counts()
    sealed += writer.progress().sealed
    found = []
    expected = 0
    for path in sorted(tmp_path.glob("*.spool")):
        for sequence, count, data in frames_of(core, path):
            assert sequence == expected
            expected += count
            found.append(data)
    assert expected == 1200
    assert sorted(found) == sorted(m for n in range(4) for m in messages(1000 * n, 300))
    assert len(sealed) == len(list(tmp_path.glob("*.spool"))) - 1


def test_bits_are_set_once(core: SimpleNamespace) -> None:
    done = bytearray(4)
    assert core.spool_mark(done, 100, memoryview(array.array("q", [100, 107, 108, 131]))) == 4
    assert done == bytes([0x81, 1, 0, 0x80])
    assert core.spool_mark(done, 100, memoryview(array.array("q", [100, 101]))) == 1
    for wrong in (99, 132):
        with pytest.raises(IndexError):
            core.spool_mark(done, 100, memoryview(array.array("q", [wrong])))


# ---------------------------------------------------------------- the pool


def test_the_pool_names_what_it_discards_of_fed_messages(core: SimpleNamespace) -> None:
    pool = core.Pool(3000, spooled=True)
    pool.register(b"t", max_message_bytes=10, rate_interval_ms=1000, rate_max_messages=2)
    fed = [
        encode(b"t", b"ok"),
        encode(b"t", b"x" * 11),  # 11: too long
        encode(b"bad/name", b"x"),  # 12
        encode(b"t", b"ok"),
        encode(b"t", b"third"),  # 14: rate limit
        encode(b"u", b"x" * 4000),  # 15: larger than the pool
        encode(b"u", b"held"),
        encode(b"u", b"held"),
    ]
    data = b"".join(fed)
    assert pool.feed(data, sequence=10, stop_when_full=True, arrival_ms=NOW) == len(data)
    assert list(pool.finished()) == [11, 12, 14, 15]
    assert list(pool.finished()) == []
    assert pool.discard_unresolved(b"u", gateway.BAD_TOPIC) == 2
    assert list(pool.finished()) == [16, 17]
    pool.feed(encode(b"w", b"x" * 11) + encode(b"w", b"y"), sequence=20)
    pool.register(b"w", max_message_bytes=10)
    assert list(pool.finished()) == [20]
    plain = core.Pool(3000)
    plain.feed(encode(b"bad/name"), sequence=3)
    assert list(plain.finished()) == []


def test_fed_messages_keep_their_arrival(core: SimpleNamespace) -> None:
    pool = core.Pool(MIB, spooled=True)
    pool.set_clock(10_000_000, NOW)
    slot = pool.register(b"t", rate_interval_ms=1000, rate_max_messages=1)
    for n in range(4):
        pool.feed(encode(timestamp=NOW), sequence=n, arrival_ms=NOW - 5000 + n * 500)
    assert list(pool.finished()) == [1, 3]  # two in each window of their arrival
    taken = pool.take(slot)
    assert [taken.message(n).arrival_ms for n in range(2)] == [NOW - 5000, NOW - 4000]
    pool.feed(encode(timestamp=NOW), sequence=9, arrival_ms=NOW + 9999)
    assert pool.take(slot).message(0).arrival_ms == NOW


def test_refused_messages_name_their_sequence(core: SimpleNamespace) -> None:
    """The outcome of a message that is kept whole is not known yet."""
    for whole in ([], [gateway.BAD_TOPIC]):
        pool = core.Pool(
            MIB,
            spooled=True,
            refused_bytes=1000,
            refused_reasons=[gateway.BAD_TOPIC],
            refused_whole=whole,
        )
        pool.feed(encode(b"bad/name"), sequence=5)
        assert [one.sequence for one in pool.refused()] == [5]
        assert list(pool.finished()) == ([] if whole else [5])


# ---------------------------------------------------------------- inputs


class Input:
    def __init__(self, core: SimpleNamespace, path: Path, kind: str, spool: Any, **more: Any):
        self.pool = core.Pool(more.pop("pool_bytes", MIB), spooled=True)
        datagram = kind == "unix_datagram"
        self.kind = socket.SOCK_DGRAM if datagram else socket.SOCK_STREAM
        self.socket = socket.socket(socket.AF_UNIX, self.kind)
        self.address = str(path / "input.sock")
        self.socket.bind(self.address)
        if not datagram:
            self.socket.listen(8)
        self.spool = spool
        self.intake = core.Intake(self.pool, self.socket.fileno(), kind, spool=spool, **more)
        self.intake.start()

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, self.kind)
        client.connect(self.address)
        client.settimeout(20)
        return client

    def until(self, ready: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not ready():
            assert time.monotonic() < end
            time.sleep(0.002)

    def discarded(self) -> dict[str, int]:
        counts = self.pool.counts().discarded
        return {name: n for name, n in zip(gateway.REASONS, counts, strict=True) if n}


@pytest.fixture
def inputs(core: SimpleNamespace, tmp_path: Path) -> Iterator[Callable[..., Input]]:
    made: list[Input] = []

    def make(kind: str, spool: Any, **options: Any) -> Input:
        made.append(Input(core, tmp_path, kind, spool, **options))
        return made[-1]

    yield make
    for one in made:
        one.intake.stop()
        one.socket.close()


@pytest.mark.parametrize("kind", ["unix_datagram", "unix_stream"])
def test_an_input_appends_what_is_well_formed(
    core: SimpleNamespace, writers: Any, inputs: Any, tmp_path: Path, kind: str
) -> None:
    one = inputs(kind, writers(max_bytes=64 * MIB, segment_bytes=64 * MIB))
    sent = messages(0, 500) + [encode(value=bytes(60_000))]
    with one.connect() as client:
        if kind == "unix_datagram":
            for n, message in enumerate(sent):
                client.send(message)
                if n % 100 == 0:
                    client.send(encode(flags=1))
        else:
            data = b"".join(
                message + (encode(flags=1) if n % 100 == 0 else b"")
                for n, message in enumerate(sent)
            )
            for at in range(0, len(data), 997):
                client.send(data[at : at + 997])
        one.until(lambda: one.intake.counts().received == 507)
    found = frames_of(core, tmp_path / f"{0:020d}.spool")
    assert b"".join(data for _, _, data in found) == b"".join(sent)
    assert one.discarded() == {"malformed": 6}
    counts = one.pool.counts()
    assert (counts.received, counts.held) == (6, 0)
    assert one.spool.counts().appended == 501


def test_a_full_spool_discards_exactly(writers: Any, inputs: Any) -> None:
    one = inputs("unix_datagram", writers(max_bytes=5000, segment_bytes=2500))
    with one.connect() as client:
        for message in messages(0, 100, 100):
            client.send(message)
        one.until(lambda: one.intake.counts().received == 100)
    accepted = one.spool.counts().appended
    assert 0 < accepted < 100
    assert one.discarded() == {"spool_full": 100 - accepted}


@pytest.mark.parametrize("kind", ["unix_datagram", "unix_stream"])
def test_a_full_spool_blocks_the_input(
    core: SimpleNamespace, writers: Any, inputs: Any, kind: str
) -> None:
    spool = writers(max_bytes=5000, segment_bytes=2500)
    one = inputs(kind, spool, when_full="block", max_message_bytes=2000)
    sent = messages(0, 100, 100)

    def send() -> None:
        with one.connect() as client:
            for message in sent:
                client.send(message)
                time.sleep(0.001)

    thread = threading.Thread(target=send)
    thread.start()
    deadline = time.monotonic() + 20
    while one.intake.counts().received < 100:
        assert time.monotonic() < deadline
        for _, size, _ in spool.progress().sealed:
            time.sleep(0.01)
            spool.freed(size)
    thread.join()
    assert one.discarded() == {}
    assert spool.counts().appended == 100


@pytest.mark.parametrize("kind", ["unix_datagram", "unix_stream"])
def test_an_append_is_no_time_of_blocking(writers: Any, inputs: Any, kind: str) -> None:
    """`blocked_ms` is the time in which an input waits for room."""
    one = inputs(kind, writers(max_bytes=MIB, segment_bytes=MIB, fsync="each"), when_full="block")
    with one.connect() as client:
        for message in messages(0, 2000):
            client.send(message)
    one.until(lambda: one.intake.counts().received == 2000)
    assert one.intake.counts().blocked_ms == 0


@pytest.mark.parametrize("when_full", ["discard", "block"])
def test_a_read_that_is_larger_than_the_spool(writers: Any, inputs: Any, when_full: str) -> None:
    """Regression: all messages of the read were discarded, although each of them fits."""
    spool = writers(max_bytes=20_000, segment_bytes=5000)
    one = inputs("unix_stream", spool, when_full=when_full, max_message_bytes=2000)
    with one.connect() as client:
        client.sendall(b"".join(messages(0, 1000, 100)))
        deadline = time.monotonic() + 20
        while one.intake.counts().received < 1000:
            assert time.monotonic() < deadline
            if when_full == "block":
                for _, size, _ in spool.progress().sealed:
                    spool.freed(size)
            time.sleep(0.001)
    accepted = spool.counts().appended
    if when_full == "block":
        assert (accepted, one.discarded()) == (1000, {})
    else:
        assert accepted > 100
        assert one.discarded() == {"spool_full": 1000 - accepted}


def test_messages_of_several_frames_that_never_fit_are_not_waited_for(writers: Any) -> None:
    """Regression: the overhead of one frame was counted, and an input waited for ever."""
    spool = writers(max_bytes=200_000, segment_bytes=100_000)
    data = b"".join(messages(10_000, 199_880 // 1033, 1000))
    data += encode(value=bytes(199_880 - len(data) - len(encode())))
    assert len(data) == 199_880
    assert spool.append(data, NOW) == SPOOL_FULL
    assert not spool.wait(len(data))


def _refused(client: socket.socket, message: bytes) -> bool:
    try:
        client.send(message)
    except BlockingIOError:
        return True
    return False


def test_a_blocked_input_stops_and_keeps_what_it_read(writers: Any, inputs: Any) -> None:
    spool = writers(max_bytes=1000, segment_bytes=500)
    one = inputs("unix_datagram", spool, when_full="block", max_message_bytes=500)
    with one.connect() as client:
        client.setblocking(False)
        count = 0
        while not _refused(client, messages(count, 1, 100)[0]):
            count += 1
            time.sleep(0.002)
    began = time.monotonic()
    one.intake.stop(drain_ms=2000)
    assert time.monotonic() - began < 5
    assert spool.counts().appended == count
    assert one.discarded() == {}


def test_a_blocked_input_that_drains_keeps_the_limit(writers: Any, inputs: Any) -> None:
    """Regression: it appended whatever came within a second, although there was no room."""
    spool = writers()
    one = inputs("unix_stream", spool, when_full="block")
    client = one.connect()

    def send() -> None:
        with contextlib.suppress(OSError):
            for _ in range(1200):
                client.sendall(encode(value=bytes(50_000)))

    thread = threading.Thread(target=send)
    thread.start()
    one.until(lambda: spool.counts().stored_bytes > MIB - (1 << 18) - 51_000)
    one.intake.stop(drain_ms=2000)
    thread.join()
    client.close()
    # It reads 256 KiB at once.
    assert spool.counts().stored_bytes <= MIB + 2 * (1 << 18)


def test_a_connection_is_read_although_the_pool_is_full(writers: Any, inputs: Any) -> None:
    one = inputs("unix_stream", writers(), when_full="block", pool_bytes=4096)
    one.pool.register(b"t")
    while one.pool.feed(encode(value=bytes(100)), sequence=0, stop_when_full=True):
        pass
    with one.connect() as client:
        client.send(encode(value=bytes(3000))[:2000])
        time.sleep(0.05)
        client.send(encode(value=bytes(3000))[2000:])
        one.until(lambda: one.spool.counts().appended == 1)
