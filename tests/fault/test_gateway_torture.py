"""Many messages from several processes while broker and gateway are killed and suspended.

Up to 60,000 messages in a test; a million in `make torture`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.fastpath.gateway import SPOOL_HEADER_BYTES, spool_frames
from tests.fault.gateway_support import (
    ROOT,
    START_LIMIT,
    balanced,
    directory,
    gateway_process,
    message,
    records_of,
    rig,
    topic_bytes,
    values_of,
)
from tests.fault.test_gateway_units import Owner

SENDER = """
import socket, sys, time
from aiokq.gateway.client import encode
kind, address, sender, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if kind == "tcp":
    opened = socket.create_connection(("127.0.0.1", int(address)))
else:
    opened = socket.socket(socket.AF_UNIX,
                           socket.SOCK_STREAM if kind == "unix_stream" else socket.SOCK_DGRAM)
    opened.connect(address)
for n in range(count):
    key = n % 4 if n % 4 < 3 else None
    opened.sendall(encode(b"orders", b"%d %d" % (sender, n), partition_key=key))
    if n % 100 == 99:
        time.sleep(0.01)
opened.close()
"""
"""Sends numbered messages to three partitions by turns, and each fourth one to any partition."""


LASTING = """
import os, socket, sys, time
from aiokq.gateway.client import encode
kind, address, partition, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
stop = sys.argv[5]
opened, n = None, 0
while n < count or not os.path.exists(stop):
    data = encode(b"orders", b"%d" % n, partition_key=partition)
    try:
        if opened is None:
            form = socket.SOCK_DGRAM if kind == "unix_datagram" else socket.SOCK_STREAM
            opened = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX, form)
            opened.connect(("127.0.0.1", int(address)) if kind == "tcp" else address)
        opened.sendall(data)
    except OSError:
        # A message that was sent in part, and what the connection had in its buffers, is lost.
        opened.close()
        opened = None
        n += kind != "unix_datagram"
        time.sleep(0.005)
        continue
    n += 1
    if n % 20 == 0:
        time.sleep(0.02)
if opened is not None:
    opened.close()
with open(f"{stop}.{partition}", "w") as file:
    file.write(str(n))
"""
"""Sends numbered messages until there are so many and a file exists, and writes their number.

Goes on with a new connection when the gateway was killed.
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


async def started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


async def broker(port: int, path: Path) -> asyncio.subprocess.Process:
    arguments = ("-m", "aiokq", "broker", "--port", str(port), "--data-dir", str(path / "data"))
    process = await started(*arguments)
    async with asyncio.timeout(START_LIMIT):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return process
            except OSError:
                await asyncio.sleep(0.05)


def numbers(port: int) -> dict[str, Any]:
    return numbers_at(f"http://127.0.0.1:{port}")


def numbers_at(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/accounting/json", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    for one in (found, *found["topics"].values()):
        known = one["acked"] + sum(one["discarded"].values()) + one["dead_lettered"]
        assert one["received"] == known + one["in_flight"]
    return found


def check_records(records: list[aiokq.Record], each: int, engine: str) -> int:
    """Check the messages of three of SENDER; return how many are there more than once."""
    ways: dict[tuple[int, int], list[int]] = {}
    arrived: list[set[int]] = [set() for _ in range(3)]
    for one in records:
        assert one.value is not None
        sender, number = map(int, one.value.split())
        assert number % 4 in (one.partition, 3)
        ways.setdefault((sender, one.partition), []).append(number)
        arrived[sender].add(number)
    assert arrived == [set(range(each))] * 3
    if engine == "producer":
        for way, order in ways.items():
            assert order == sorted(order), way
    return len(records) - 3 * each


LONG = [pytest.mark.torture, pytest.mark.timeout(2400)]


@pytest.mark.parametrize(
    ("engine", "each"),
    [
        ("producer", 20_000),
        ("bruce", 5_000),
        pytest.param("producer", 333_334, marks=LONG),
        pytest.param("bruce", 333_334, marks=LONG),
    ],
)
async def test_the_books_balance_and_order_holds_while_the_broker_is_killed_and_suspended(
    engine: str, each: int
):
    """The order of each sender in each partition holds with the engine `producer` only, which also
    writes no message twice.
    """
    port, http = free_port(), free_port()
    with directory() as path:
        kafka = await broker(port, path)
        servers = f"127.0.0.1:{port}"
        async with aiokq.Admin(servers) as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 3)])
        (path / "engine.toml").write_text(f'[delivery]\nengine = "{engine}"\n')
        arguments = ("--bootstrap-servers", servers, "--http", str(http), "--tcp", "0")
        arguments += ("--config", str(path / "engine.toml"))
        sockets = ("--unix-datagram", f"{path}/d", "--unix-stream", f"{path}/s")
        try:
            async with gateway_process(*arguments, *sockets) as gateway:
                await gateway.started()
                tcp = gateway.ready["inputs"][-1]["address"].rpartition(":")[2]
                places = (
                    ("unix_datagram", f"{path}/d"),
                    ("unix_stream", f"{path}/s"),
                    ("tcp", tcp),
                )
                senders = [
                    await started("-c", SENDER, kind, place, str(n), str(each))
                    for n, (kind, place) in enumerate(places)
                ]
                async with asyncio.timeout(60 + each / 200):
                    done = asyncio.gather(*(one.wait() for one in senders))
                    while not done.done():
                        await asyncio.sleep(0.4)
                        kafka.kill()
                        await kafka.wait()
                        before = await asyncio.to_thread(numbers, http)
                        kafka = await broker(port, path)
                        # On a busy machine nothing would be delivered between two faults.
                        found = before
                        while found["acked"] == before["acked"] and found["in_flight"]:
                            await asyncio.sleep(0.1)
                            found = await asyncio.to_thread(numbers, http)
                        kafka.send_signal(signal.SIGSTOP)
                        await asyncio.sleep(0.4)
                        await asyncio.to_thread(numbers, http)
                        kafka.send_signal(signal.SIGCONT)
                    assert await done == [0, 0, 0]
                    while (await asyncio.to_thread(numbers, http))["in_flight"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                found = await asyncio.to_thread(numbers, http)
                assert (found["received"], found["acked"]) == (3 * each, 3 * each)
                gateway.signal(signal.SIGTERM)
                assert await gateway.ended() == 0
            twice = check_records(await records_of(servers, "orders"), each, engine)
            assert 0 <= twice <= (found["possible_duplicates"] if engine == "bruce" else 0)
        finally:
            with contextlib.suppress(ProcessLookupError):
                kafka.kill()
            await kafka.wait()


def stored(path: Path) -> set[tuple[int, int]]:
    """Return partition and number of each message in the whole frames of a spool."""
    found = set()
    for segment in path.glob("*.spool"):
        data = segment.read_bytes()
        for frame in spool_frames(data, SPOOL_HEADER_BYTES):
            at = frame.begin
            while at < frame.end:
                size = int.from_bytes(data[at : at + 4], "big")
                partition = int.from_bytes(data[at + 10 : at + 14], "big")
                found.add(
                    (partition, int(data[at + 4 + 2 * 3 + 4 + 2 + 6 + 8 + 4 + 4 : at + size]))
                )
                at += size
    return found


class Brokers:
    """A broker that is killed, restarted and suspended until the end."""

    def __init__(self, port: int, path: Path) -> None:
        self._port = port
        self._path = path
        self._end = asyncio.Event()
        self.process: asyncio.subprocess.Process

    async def run(self) -> None:
        while not self._end.is_set():
            await self._pause(0.5)
            self.process.kill()
            await self.process.wait()
            await self._pause(0.2)
            self.process = await broker(self._port, self._path)
            await self._pause(0.8)
            self.process.send_signal(signal.SIGSTOP)
            await self._pause(0.4)
            self.process.send_signal(signal.SIGCONT)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._end.wait()

    def end(self) -> None:
        self._end.set()


async def watched(url: str, seconds: float) -> None:
    """Check the books of one gateway process for some time: they balance, and only grow."""
    end = asyncio.get_running_loop().time() + seconds
    last: dict[str, Any] = {"received": 0, "acked": 0}
    while asyncio.get_running_loop().time() < end:
        found = await asyncio.to_thread(numbers_at, url)
        assert found["received"] >= last["received"]
        assert found["acked"] >= last["acked"]
        assert found["discarded"] == {}
        last = found
        await asyncio.sleep(0.03)


@pytest.mark.parametrize(
    ("engine", "each", "kills"),
    [
        ("producer", 2_000, 4),
        ("bruce", 1_000, 2),
        pytest.param("producer", 166_667, 60, marks=LONG),
        pytest.param("bruce", 166_667, 60, marks=LONG),
    ],
)
async def test_a_spool_keeps_what_was_accepted_while_gateway_and_broker_are_killed(
    engine: str, each: int, kills: int
):
    """Two processes write to each input, whose sockets are owned by the test, as by systemd.

    SIGKILL of the gateway loses at most one read of datagrams. The order holds with the engine
    `producer` only.
    """
    port, tcp = free_port(), free_port()
    chance = random.Random(3)
    with directory() as path, contextlib.ExitStack() as stack:
        brokers = Brokers(port, path)
        brokers.process = await broker(port, path)
        servers = f"127.0.0.1:{port}"
        async with aiokq.Admin(servers) as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 6)])
        places = [
            ("unix_datagram", f"{path}/d"),
            ("unix_stream", f"{path}/s"),
            ("tcp", str(tcp)),
        ]
        lines = [
            f'kafka.bootstrap_servers = "{servers}"',
            "[http]\nport = 0",
            f'[delivery]\nengine = "{engine}"',
            "pause_initial_ms = 500\nmin_pause_ms = 100" if engine == "bruce" else "",
            f'[spool]\npath = "{path}/spool"\nsegment_bytes = "256 KiB"',
        ]
        sockets = []
        for kind, place in places:
            lines.append(f'[[inputs]]\ntype = "{kind}"')
            lines.append(f"port = {place}" if kind == "tcp" else f'path = "{place}"')
            family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
            form = socket.SOCK_DGRAM if kind == "unix_datagram" else socket.SOCK_STREAM
            opened = stack.enter_context(socket.socket(family, form))
            opened.bind(("127.0.0.1", tcp) if kind == "tcp" else place)
            if form == socket.SOCK_STREAM:
                opened.listen(64)
            sockets.append(opened)
        (path / "gateway.toml").write_text("\n".join(lines))
        owner = Owner(path / "gateway.toml", sockets)
        senders = [
            await started("-c", LASTING, *places[n // 2], str(n), str(each), f"{path}/stop")
            for n in range(6)
        ]
        disturbing = asyncio.ensure_future(brokers.run())
        accepted: set[tuple[int, int]] = set()
        try:
            done = asyncio.gather(*(one.wait() for one in senders))
            count = 0
            while not done.done():
                killed = count < kills
                if not killed:
                    (path / "stop").touch()
                async with owner.started() as gateway:
                    url = gateway.ready["http"]
                    await watched(url, chance.uniform(0.2, 1.5))
                    while not killed and not done.done():
                        await watched(url, 0.5)
                    if not killed:
                        gateway.signal(signal.SIGTERM)
                        await gateway.ended()
                count += 1
                accepted |= stored(path / "spool")
            assert await done == [0] * 6
            brokers.end()
            await disturbing
            async with owner.started() as gateway:
                async with asyncio.timeout(60 + each / 1000):
                    while True:
                        found = await asyncio.to_thread(numbers_at, gateway.ready["http"])
                        if not found["in_flight"]:
                            break
                        await asyncio.sleep(0.1)
                assert found["discarded"] == {}
                gateway.signal(signal.SIGTERM)
                assert await gateway.ended() == 0
            assert os.listdir(path / "spool") == ["lock"]
            records = await records_of(servers, "orders")
            arrived = [
                list(dict.fromkeys(int(one.value or b"") for one in records if one.partition == n))
                for n in range(6)
            ]
            assert count > kills
            assert len(accepted) > each
            assert not accepted - {(n, one) for n in range(6) for one in arrived[n]}
            for n, found_ in enumerate(arrived):
                assert found_ == sorted(found_) or engine == "bruce", n
                if n < 2:  # datagrams: only those of a read that was not written yet
                    sent = int((path / f"stop.{n}").read_text())
                    assert sent - len(found_) <= 64 * kills
        finally:
            brokers.end()
            disturbing.cancel()
            for one in (*senders, brokers.process):
                with contextlib.suppress(ProcessLookupError):
                    one.kill()
                await one.wait()


def misbehave(path: Path, seed: int) -> None:
    """Write what no program should write, to all inputs."""
    source = random.Random(seed)
    whole = message("orders", b"never complete", b"k")
    with contextlib.ExitStack() as stack:
        for end in range(1, len(whole)):  # closed after every byte
            opened = stack.enter_context(socket.socket(socket.AF_UNIX))
            opened.connect(f"{path}/stream")
            opened.send(whole[:end])
            if end % 2:
                opened.close()
        for _ in range(300):
            opened = stack.enter_context(socket.socket(socket.AF_UNIX))
            opened.connect(f"{path}/stream")
            with contextlib.suppress(OSError):
                opened.sendall(source.randbytes(source.randrange(200)))
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagrams.connect(f"{path}/datagram")
        for _ in range(2000):
            data = bytearray(message(f"made-up-{source.randrange(500)}", b"v"))
            for _ in range(source.randrange(4)):
                data[source.randrange(len(data))] = source.randrange(256)
            datagrams.send(data)
        large = stack.enter_context(socket.socket(socket.AF_UNIX))
        large.connect(f"{path}/stream")
        with contextlib.suppress(OSError):  # refused by its size
            large.sendall(message("orders", bytes(16 * 1024 * 1024)))


async def test_programs_that_misbehave_cost_other_senders_nothing():
    async with rig({"pool": {"max_bytes": "8 MiB"}}) as r:
        descriptors = len(os.listdir("/proc/self/fd"))
        hostile = [asyncio.to_thread(misbehave, r.path, seed) for seed in range(3)]
        attack = asyncio.gather(*hostile)
        sent = 0
        while not attack.done() or sent < 20:
            data = [message("orders", b"good-%d" % n) for n in range(sent, sent + 20)]
            await r.send(*data, kind=("unix_datagram", "tcp", "unix_stream")[sent // 20 % 3])
            sent += 20
            snapshot = r.gateway.snapshot()
            balanced(snapshot)
            assert r.gateway.pool.counts().used_bytes <= 8 * 1024 * 1024
            await asyncio.sleep(0.005)
        await attack
        async with asyncio.timeout(20):
            while r.gateway.snapshot().topics["orders"].acked < sent:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            while r.gateway.snapshot().total.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        good = {value for value in values_of(await r.records("orders")) if value}
        assert good >= {b"good-%d" % n for n in range(sent)}
        assert all(one.counts().running for one in r.gateway.inputs)
        async with asyncio.timeout(10):
            while len(os.listdir("/proc/self/fd")) > descriptors + 40:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert r.gateway.pool.used_bytes() == topic_bytes(r.gateway)
