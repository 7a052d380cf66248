"""A gateway with a spool: restarts, kills, full and broken disks lose nothing that was accepted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.errors import ConfigError
from aiokq.fastpath.gateway import SPOOL_HEADER_BYTES, spool_frames
from aiokq.gateway import Gateway, GatewaySettings
from aiokq.gateway.input_set import InputSet
from aiokq.gateway.spool.change import Change
from tests.fault.gateway_support import (
    ROOT,
    Process,
    Rig,
    balanced,
    configuration,
    directory,
    discarded,
    gateway_process,
    message,
    records_of,
    rig,
    values_of,
)
from tests.peers.gateway_programs import compiled
from tests.peers.ports import free_ports

KINDS = ["unix_datagram", "unix_stream", "tcp"]


def spooled(path: Path, **options: Any) -> dict[str, Any]:
    return {"spool": {"path": f"{path}/spool", **options}}


@contextlib.asynccontextmanager
async def away(
    path: Path, values: dict[str, Any], *, server: str = "127.0.0.1:1"
) -> AsyncIterator[Rig]:
    """Run a gateway whose Kafka cannot be reached."""
    given = {"delivery": {"shutdown_max_delay_ms": 200}, **values}
    settings = GatewaySettings.of(configuration(path, given), bootstrap_servers=server)
    async with Gateway(settings) as gateway:
        made = Rig(None, None, gateway, path)  # type: ignore[arg-type]
        try:
            yield made
        finally:
            made.close()


@contextlib.asynccontextmanager
async def home(path: Path, values: dict[str, Any], *, topics: int = 1) -> AsyncIterator[Rig]:
    """Run a gateway with the same directory and a broker."""
    async with aiokq.EmbeddedCluster() as kafka, aiokq.Admin(kafka.bootstrap_servers) as admin:
        await admin.create_topics([aiokq.NewTopic(f"t{n}", 1) for n in range(topics)])
        settings = GatewaySettings.of(
            configuration(path, values), bootstrap_servers=kafka.bootstrap_servers
        )
        async with Gateway(settings) as gateway:
            made = Rig(kafka, admin, gateway, path)
            try:
                yield made
            finally:
                made.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_pass_through_the_spool(kind: str) -> None:
    with directory() as path:
        async with home(path, spooled(path)) as made:
            sent = [b"%d" % n for n in range(2000)]
            await made.send(*(message("t0", value) for value in sent), kind=kind)
            snapshot = await made.settled(2000)
            assert snapshot.total.acked == snapshot.topics["t0"].acked == 2000
            assert "replayed" not in snapshot.total.document()
            assert values_of(await made.records("t0")) == sent
        assert os.listdir(path / "spool") == ["lock"]


@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_what_was_not_delivered_is_delivered_after_a_restart(engine: str) -> None:
    delivery = {"delivery": {"engine": engine, "shutdown_max_delay_ms": 200}}
    with directory() as path:
        values = {**spooled(path), **delivery}
        async with away(path, values) as made:
            await made.send(*(message("t0", b"%d" % n) for n in range(500)))
            await made.until(lambda: made.gateway.snapshot().total.received == 500)
            final = await made.gateway.close()
        assert (final.total.in_flight, sum(final.total.discarded)) == (500, 0)
        balanced(final)
        async with home(path, {**spooled(path), "delivery": {"engine": engine}}) as made:
            snapshot = made.gateway.snapshot()
            assert snapshot.total.received >= 500
            await made.send(*(message("t0", b"%d" % n) for n in range(500, 600)))
            snapshot = await made.settled(600)
            assert snapshot.total.document()["replayed"] == 500
            assert values_of(await made.records("t0")) == [b"%d" % n for n in range(600)]
        assert os.listdir(path / "spool") == ["lock"]


@pytest.mark.parametrize("kind", ["unix_stream", "tcp"])
async def test_more_than_the_pool_waits_on_the_disk(kind: str) -> None:
    """The pool has 64 KiB; 3 MB of messages wait for Kafka, and none is discarded."""
    with directory() as path:
        values = {**spooled(path), "pool": {"max_bytes": "64 KiB"}}
        async with away(path, values) as made:
            sent = [message("t0", b"%d" % n + bytes(1000)) for n in range(3000)]
            await made.send(*sent, kind=kind)
            await made.until(lambda: made.gateway.snapshot().total.received == 3000)
            snapshot = made.gateway.snapshot()
            assert snapshot.total.in_flight == 3000
            assert made.gateway.pool.counts().used_bytes <= 64 * 1024
        async with home(path, values) as made:
            await made.settled(3000)
            found = values_of(await made.records("t0"))
            assert [int(value.rstrip(b"\0")) for value in found if value] == list(range(3000))


async def test_a_full_spool_discards_and_recovers() -> None:
    """The discard log has the messages for which there was no room."""
    with directory() as path:
        values = spooled(path, max_bytes="64 KiB", segment_bytes="16 KiB")
        values = {**values, "discards": {"log_path": f"{path}/discards"}}
        async with away(path, values) as made:
            await made.send(*(message("t0", bytes(1000)) for _ in range(200)))
            await made.until(lambda: made.gateway.snapshot().total.received == 200)
            snapshot = made.gateway.snapshot()
            balanced(snapshot)
            lost = discarded(snapshot)["spool_full"]
            assert 100 < lost < 200
            assert snapshot.total.in_flight == 200 - lost
        lines = (path / "discards").read_bytes().splitlines()
        assert len(lines) == lost
        assert all(b" info: SPOOL_FULL topic: 2[t0] " in line for line in lines)
        async with home(path, values) as made:
            await made.settled(200 - lost)
            await made.send(message("t0", b"again"))
            await made.settled(201 - lost)


async def test_a_full_spool_blocks_a_sender() -> None:
    with directory() as path:
        values = spooled(path, max_bytes="64 KiB", segment_bytes="16 KiB")
        values["inputs"] = [
            {"type": "unix_datagram", "path": f"{path}/datagram", "when_full": "block"}
        ]
        async with home(path, values) as made:
            await made.send(*(message("t0", bytes(1000)) for _ in range(500)))
            snapshot = await made.settled(500)
            assert snapshot.total.acked == 500


async def test_messages_of_unknown_topics_are_discarded_once() -> None:
    with directory() as path:
        async with home(path, spooled(path)) as made:
            await made.send(*(message("nothing", b"x") for _ in range(10)), message("t0", b"y"))
            snapshot = await made.settled(11)
            assert discarded(snapshot) == {"bad_topic": 10}
        assert os.listdir(path / "spool") == ["lock"]


async def test_a_spool_in_use_and_a_wrong_directory_are_refused() -> None:
    with directory() as path:
        async with away(path, spooled(path)):
            settings = configuration(
                path, {**spooled(path), "inputs": [{"type": "tcp", "port": 0}]}
            )
            with pytest.raises(ConfigError, match="another gateway uses it"):
                await Gateway(settings).start()
        for wrong, text in (
            ({"path": "spool"}, "must be absolute"),
            ({"path": "/x", "fsync": "always"}, "never"),
            ({"path": "/x", "max_bytes": "1 MiB", "segment_bytes": "1 MiB"}, "half"),
        ):
            with pytest.raises(ConfigError, match=text):
                configuration(path, {"spool": wrong})


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 256 KiB."""
    with directory() as path:
        disk = path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("this user cannot mount a small disk")
        try:
            yield disk
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_discards_exactly_and_recovers(small_disk: Path) -> None:
    path = small_disk.parent
    values = {"spool": {"path": f"{small_disk}/spool", "segment_bytes": "32 KiB"}}
    async with away(path, values) as made:
        await made.send(*(message("t0", bytes(1000)) for _ in range(500)))
        await made.until(lambda: made.gateway.snapshot().total.received == 500)
        snapshot = made.gateway.snapshot()
        balanced(snapshot)
        lost = discarded(snapshot)["spool_full"]
        assert 200 < lost < 400
        assert made.gateway.spool is not None
        assert made.gateway.spool.error == "No space left on device"
    async with home(path, values) as made:
        await made.settled(500 - lost)
        await asyncio.sleep(2.1)  # the longest time until the disk is tried again
        await made.send(message("t0", b"again"))
        await made.settled(501 - lost)
        assert made.gateway.spool is not None
        assert made.gateway.spool.error is None


async def test_a_disk_that_becomes_read_only_is_reported(small_disk: Path) -> None:
    """Messages are discarded and counted, /readyz says why, and the gateway recovers."""
    path = small_disk.parent
    values = {
        "spool": {"path": f"{small_disk}/spool", "segment_bytes": 4096},
        "http": {"port": 0},
    }
    async with home(path, values) as made:
        await made.send(*(message("t0", b"%d" % n) for n in range(10)))
        await made.settled(10)
        shutil.rmtree(small_disk / "spool")
        await made.send(*(message("t0", bytes(1000)) for _ in range(20)))
        await made.until(lambda: "spool_error" in discarded(made.gateway.snapshot()))
        assert made.gateway.spool is not None
        assert made.gateway.spool.error is not None
        assert made.gateway.http is not None
        ready = await asyncio.create_subprocess_exec(
            "curl", "-s", f"{made.gateway.http.where}/readyz", stdout=subprocess.PIPE
        )
        assert json.loads((await ready.communicate())[0])["ready"] is False
        (small_disk / "spool").mkdir()
        await asyncio.sleep(2.1)
        await made.send(message("t0", b"again"))
        await made.until(lambda: made.gateway.spool is not None and not made.gateway.spool.error)
        await made.until(lambda: not made.gateway.snapshot().total.in_flight)
        balanced(made.gateway.snapshot())
        assert values_of(await made.records("t0"))[-1] == b"again"


# ---------------------------------------------------------------- read-only file systems


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Let a directory be on a file system that is mounted read-only; open files stay writable."""
    mounts = [
        ["mount", "--bind", str(path), str(path)],
        ["mount", "-o", "remount,bind,ro", str(path)],
    ]
    if subprocess.run(mounts[0], capture_output=True).returncode:
        pytest.skip("this user cannot mount a read-only file system")
    try:
        subprocess.run(mounts[1], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


async def test_a_spool_on_a_read_only_file_system_is_refused_at_the_start() -> None:
    """Whether there is a spool already, with messages, or not; what is there stays."""
    with directory() as path:
        values = {"spool": {"path": f"{path}/disk/spool"}}
        (path / "disk").mkdir()
        refused = pytest.raises(ConfigError, match=r"\[spool\] path .*: Read-only file system")
        with read_only(path / "disk"), refused:
            await Gateway(configuration(path, values)).start()
        async with away(path, values) as made:
            await made.send(message("t0", b"kept"))
            await made.until(lambda: made.gateway.snapshot().total.received == 1)
        with read_only(path / "disk"), refused:
            await Gateway(configuration(path, values)).start()
        async with home(path, values) as made:
            await made.settled(1)
            assert values_of(await made.records("t0")) == [b"kept"]


@pytest.mark.parametrize("when_full", ["discard", "block"])
async def test_a_spool_whose_file_system_becomes_read_only(when_full: str) -> None:
    """What was accepted is delivered; the rest is discarded and counted, or its sender waits.

    The outcomes cannot be written, and are written when the file system can be.
    """
    # The input reads up to 64 datagrams at a time, and the socket holds 10 more.
    every = 140
    with directory() as path:
        values: dict[str, Any] = {
            "spool": {"path": f"{path}/spool", "segment_bytes": 4096},
            "inputs": [
                {"type": "unix_datagram", "path": f"{path}/datagram", "when_full": when_full}
            ],
            "http": {"port": 0},
        }
        async with home(path, values) as made:
            spool, http = made.gateway.spool, made.gateway.http
            assert spool is not None
            assert http is not None
            await made.send(*(message("t0", b"%d" % n) for n in range(10)))
            await made.settled(10)
            with read_only(path / "spool"):
                more = [message("t0", b"%d" % n + b" " * 500) for n in range(10, every)]
                sending = asyncio.ensure_future(made.send(*more))
                await made.until(lambda: spool.error == "Read-only file system")
                url = f"{http.where}/readyz"
                ready = await asyncio.create_subprocess_exec(
                    "curl", "-s", url, stdout=subprocess.PIPE
                )
                said = json.loads((await ready.communicate())[0])
                assert said["ready"] is False
                assert "Read-only file system" in str(said["reasons"])
                if when_full == "discard":
                    await sending
                    await made.settled(every)
                else:
                    await asyncio.sleep(0.3)
                    assert not sending.done()
            await sending
            snapshot = await made.settled(every)
            lost = discarded(snapshot).get("spool_error", 0)
            assert (lost > 20) if when_full == "discard" else (lost == 0)
            assert snapshot.total.acked == every - lost
            await asyncio.sleep(2.1)  # the longest time until the disk is tried again
            await made.send(message("t0", b"again"))
            await made.settled(every + 1)
            await made.until(lambda: spool.error is None)
            found = [
                int((value or b"").split()[0])
                for value in values_of((await made.records("t0"))[:-1])
            ]
            assert found == sorted(found)
            assert len(found) == every - lost
        assert os.listdir(path / "spool") == ["lock"]


@pytest.mark.skipif(sys.platform != "linux", reason="uses LD_PRELOAD")
@pytest.mark.parametrize(
    ("number", "fsync"), [(errno.EROFS, "never"), (errno.EIO, "each"), (errno.ENOSPC, "never")]
)
async def test_a_disk_that_fails_under_open_files(number: int, fsync: str) -> None:
    """As a file system that becomes read-only after an error: no write of any file succeeds.

    Accepted messages are delivered meanwhile. A SIGKILL while the disk is broken loses none.
    """
    with directory() as path:
        library = path / "broken_disk.so"
        compiled("broken_disk.c", library, "-shared", "-fPIC", "-Wno-nonnull-compare")
        reason = "spool_full" if number == errno.ENOSPC else "spool_error"
        broken = path / "spool.errno"
        environment = {"LD_PRELOAD": str(library), "BROKEN_DISK": f"{path}/spool"}
        async with aiokq.EmbeddedCluster() as kafka:
            async with aiokq.Admin(kafka.bootstrap_servers) as admin:
                await admin.create_topics([aiokq.NewTopic("t0", 1)])
            file = path / "gateway.toml"
            file.write_text(
                f'kafka.bootstrap_servers = "{kafka.bootstrap_servers}"\n'
                f'[[inputs]]\ntype = "unix_datagram"\npath = "{path}/d"\n'
                f'[spool]\npath = "{path}/spool"\nsegment_bytes = "64 KiB"\nfsync = "{fsync}"\n'
                "[http]\nport = 0\n"
            )

            async def accounting(process: Process) -> dict[str, Any]:
                asking = await asyncio.create_subprocess_exec(
                    *("curl", "-s", f"{process.ready['http']}/accounting/json"),
                    stdout=subprocess.PIPE,
                )
                found: dict[str, Any] = json.loads((await asking.communicate())[0])
                known = found["acked"] + sum(found["discarded"].values())
                assert found["received"] == known + found["in_flight"]
                return found

            async def until(process: Process, **expected: int) -> dict[str, Any]:
                async with asyncio.timeout(20):
                    while True:
                        found = await accounting(process)
                        if all(found[name] == value for name, value in expected.items()):
                            return found
                        await asyncio.sleep(0.05)

            def send(first: int, count: int) -> None:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.connect(f"{path}/d")
                    for n in range(first, first + count):
                        sender.send(message("t0", b"%d" % n))

            async with gateway_process("--config", str(file), environment=environment) as process:
                await process.started()
                await asyncio.to_thread(send, 0, 100)
                await until(process, acked=100)
                broken.write_text(str(number))
                await asyncio.to_thread(send, 100, 50)
                found = await until(process, received=150, in_flight=0)
                assert found["acked"] == 100
                assert found["discarded"] == {reason: 50}
                broken.unlink()
                await asyncio.sleep(2.1)
                await asyncio.to_thread(send, 200, 50)
                await until(process, acked=150, in_flight=0)
                broken.write_text(str(number))
                await asyncio.to_thread(send, 300, 5)
                await until(process, received=205, in_flight=0)
                await process.kill()
            broken.unlink()
            async with gateway_process("--config", str(file)) as process:
                await process.started()
                await asyncio.to_thread(send, 400, 1)
                async with asyncio.timeout(20):
                    while (await accounting(process))["in_flight"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                process.signal(15)
                assert await process.ended() == 0
            records = values_of(await records_of(kafka.bootstrap_servers, "t0"))
            arrived = list(dict.fromkeys(int(value or b"") for value in records))
            assert arrived == [*range(100), *range(200, 250), 400]
        assert os.listdir(path / "spool") == ["lock"]


# ---------------------------------------------------------------- kills


class Sender(threading.Thread):
    """Sends numbered messages until it is stopped; connects again when the gateway is gone."""

    def __init__(self, name: str, family: int, kind: int, address: Any) -> None:
        super().__init__(daemon=True)
        self.prefix = name
        self._socket = family, kind
        self._address = address
        self.sent: list[bytes] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        opened: socket.socket | None = None
        number = 0
        while not self.stopped.is_set():
            value = f"{self.prefix} {number}".encode()
            try:
                if opened is None:
                    opened = socket.socket(*self._socket)
                    opened.settimeout(0.2)
                    opened.connect(self._address)
                opened.sendall(message("t0", value))
            except OSError:
                if opened is not None and self._socket[1] == socket.SOCK_STREAM:
                    opened.close()
                    opened = None
                time.sleep(0.01)
                number += self._socket[1] == socket.SOCK_STREAM  # it may be half sent
                continue
            self.sent.append(value)
            number += 1
            time.sleep(0.0002)
        if opened is not None:
            opened.close()


def stored(path: Path) -> set[bytes]:
    """Return the values in the whole frames of a spool."""
    found = set()
    for segment in path.glob("*.spool"):
        data = segment.read_bytes()
        for frame in spool_frames(data, SPOOL_HEADER_BYTES):
            at = frame.begin
            while at < frame.end:
                size = int.from_bytes(data[at : at + 4], "big")
                found.add(data[at + 12 + 2 + 8 + 4 + 4 : at + size])
                at += size
    return found


START = (
    "import os, sys\n"
    "os.dup2(int(sys.argv[1]), 3)\n"
    "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='queue')\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'aiokq', 'gateway', *sys.argv[2:]])\n"
)


@contextlib.asynccontextmanager
async def killed_gateway(file: Path, owned: socket.socket) -> AsyncIterator[Process]:
    process = Process(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            START,
            str(owned.fileno()),
            *("--config", str(file), "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[owned.fileno()],
        )
    )
    try:
        yield process
    finally:
        await process.kill()


async def test_sigkill_loses_nothing_that_was_accepted() -> None:
    """Senders go on while the gateway is killed at random moments, first without Kafka.

    Everything that was in the spool at a kill arrives. Of the datagram socket, which is passed in,
    at most the datagrams of one read are lost at a kill: those that were read and not yet written.
    """
    kills = 8
    chance = random.Random(7)
    (port,) = free_ports(1)
    with directory() as path, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as owned:
        owned.bind(f"{path}/queue")
        file = path / "gateway.toml"
        file.write_text(
            f'kafka.bootstrap_servers = "127.0.0.1:{port}"\n'
            f'[[inputs]]\ntype = "unix_datagram"\nname = "queue"\npath = "{path}/queue"\n'
            f'[[inputs]]\ntype = "unix_stream"\npath = "{path}/stream"\n'
            f'[spool]\npath = "{path}/spool"\nsegment_bytes = "64 KiB"\n'
        )
        senders = [
            Sender("datagram", socket.AF_UNIX, socket.SOCK_DGRAM, f"{path}/queue"),
            Sender("stream", socket.AF_UNIX, socket.SOCK_STREAM, f"{path}/stream"),
        ]
        for sender in senders:
            sender.start()
        accepted: set[bytes] = set()
        async with contextlib.AsyncExitStack() as stack:
            for n in range(kills):
                if n == kills // 2:
                    kafka = await stack.enter_async_context(aiokq.EmbeddedCluster(port=port))
                    admin = await stack.enter_async_context(aiokq.Admin(kafka.bootstrap_servers))
                    await admin.create_topics([aiokq.NewTopic("t0", 1)])
                async with killed_gateway(file, owned) as process:
                    await process.started()
                    await asyncio.sleep(chance.uniform(0.05, 0.6))
                accepted |= stored(path / "spool")
            for sender in senders:
                sender.stopped.set()
            for sender in senders:
                await asyncio.to_thread(sender.join, 10)
            async with killed_gateway(file, owned) as process:
                await process.started()
                found: list[str] = []
                async with asyncio.timeout(60):
                    while True:
                        await asyncio.sleep(0.5)
                        records = await records_of(kafka.bootstrap_servers, "t0")
                        values = [bytes(value) for value in values_of(records) if value is not None]
                        if len(values) == len(found):
                            break
                        found = [value.decode() for value in values]
                process.signal(15)
                assert await process.ended() == 0
        assert len(accepted) > 1000
        arrived = {value.encode() for value in found}
        assert not accepted - arrived
        lost = set(senders[0].sent) - arrived
        assert len(lost) <= 11 * kills, sorted(lost)[:20]
        for sender in senders:
            order = list(
                dict.fromkeys(int(v.split()[1]) for v in found if v.startswith(sender.prefix))
            )
            assert order == sorted(order)
        assert os.listdir(path / "spool") == ["lock"]


async def test_the_command_takes_a_directory() -> None:
    with directory() as path:
        async with gateway_process(
            *("-b", "127.0.0.1:1", "--unix-datagram", f"{path}/d", "--spool", f"{path}/spool")
        ) as process:
            await process.started()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.connect(f"{path}/d")
                sender.send(message("t0", b"kept"))
            async with asyncio.timeout(10):
                while not stored(path / "spool"):  # noqa: ASYNC110  files of another process
                    await asyncio.sleep(0.01)
        assert stored(path / "spool") == {b"kept"}


async def test_a_start_deletes_finished_segments_before_its_inputs_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, read = Change.make, InputSet.read
    left: list[Path] = []

    def slow(change: Change) -> None:
        time.sleep(0.3)
        make(change)

    def note(*given: Any) -> None:
        left.extend(killed.glob("spool/*.spool"))
        read(*given)

    with directory() as path:
        first, killed = path / "first", path / "killed"
        first.mkdir()
        async with rig(spooled(first, segment_bytes=4096), topics={"orders": 1}) as r:
            for topic in ("unknown", "orders"):  # in two segments
                await r.send(message(topic, bytes(3000)))
                await asyncio.sleep(0.05)
            await r.until(lambda: any(first.glob("spool/*.done")))
            shutil.copytree(first, killed)  # as a SIGKILL leaves it
        names = sorted(one.name for one in killed.glob("spool/*.spool"))
        assert len(names) == 2
        monkeypatch.setattr(Change, "make", slow)
        monkeypatch.setattr(InputSet, "read", note)
        async with rig(spooled(killed), topics={"orders": 1}):
            assert [one.name for one in left] == names[:1]
