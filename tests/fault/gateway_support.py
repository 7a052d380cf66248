"""Shared by the tests of the gateway: an embedded broker, a gateway and senders to its sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.gateway import Gateway, GatewaySettings
from aiokq.gateway.accounting import Snapshot
from aiokq.gateway.client import encode

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 20.0
"""Seconds within which each wait of a test ends."""

START_LIMIT = 90.0
"""Seconds within which a process is ready; on a busy machine Python's imports take long."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def message(
    topic: str | bytes,
    value: bytes,
    key: bytes = b"",
    timestamp_ms: int | None = None,
    partition_key: int | None = None,
) -> bytes:
    """Return a message as programs send it, with the current time by default."""
    return encode(topic, value, key=key, partition_key=partition_key, timestamp_ms=timestamp_ms)


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """Give a directory with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="gw-", dir="/tmp") as path:
        yield Path(path)


default_engine = "producer"
"""The engine of the gateways whose configuration names none."""


@pytest.fixture(params=["producer", "bruce"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with each engine; its gateways need not name it."""
    monkeypatch.setitem(globals(), "default_engine", request.param)
    return str(request.param)


both_engines = pytest.mark.usefixtures("engine")
"""The mark of tests that hold for both engines; their module imports the fixture, too."""


class Rig:
    """A gateway between senders and an embedded broker, all in this process.

    Attributes:
        kafka: the broker.
        admin: an admin client of the broker.
        gateway: the gateway.
        path: the directory of the sockets.
    """

    def __init__(
        self, kafka: aiokq.EmbeddedCluster, admin: aiokq.Admin, gateway: Gateway, path: Path
    ) -> None:
        self.kafka = kafka
        self.admin = admin
        self.gateway = gateway
        self.path = path
        self._sockets: list[socket.socket] = []

    def socket(self, kind: str = "unix_datagram") -> socket.socket:
        """Return a socket that is connected to the gateway's input of this kind."""
        (one,) = (one for one in self.gateway.inputs if one.type == kind)
        if kind == "tcp":
            opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            opened.connect(("127.0.0.1", one.socket.port))
        else:
            stream = kind == "unix_stream"
            opened = socket.socket(
                socket.AF_UNIX, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM
            )
            opened.connect(one.where)
        self._sockets.append(opened)
        return opened

    async def send(self, *messages: bytes, kind: str = "unix_datagram") -> None:
        """Send messages, in a thread, because a full socket blocks the sender."""
        opened = self.socket(kind)
        await asyncio.to_thread(lambda: [opened.sendall(one) for one in messages])
        opened.close()

    async def settled(self, received: int) -> Snapshot:
        """Wait until so many messages were received and have an outcome; return the numbers."""
        async with asyncio.timeout(LIMIT):
            while True:
                snapshot = cross_checked(self.gateway)
                total = snapshot.total
                if total.received >= received and not total.in_flight:
                    assert total.received == received
                    return snapshot
                await asyncio.sleep(0.01)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110  any condition, of another thread too
                await asyncio.sleep(0.01)

    async def records(self, topic: str) -> list[aiokq.Record]:
        """Return all records of a topic, by partition and offset."""
        return await records_of(self.kafka.bootstrap_servers, topic)

    async def create(self, topic: str, partitions: int = 1, **configs: Any) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await self.admin.create_topics([aiokq.NewTopic(topic, partitions, configs=named)])

    def close(self) -> None:
        for opened in self._sockets:
            opened.close()


async def records_of(bootstrap_servers: str, topic: str) -> list[aiokq.Record]:
    found: list[aiokq.Record] = []
    async with aiokq.Cluster(bootstrap_servers) as cluster:
        info = (await cluster.refresh(topic)).topics[topic]
        for partition in sorted(info.partitions):
            async for batch in cluster.read((topic, partition)):
                found.extend(batch)
    return found


def balanced(snapshot: Snapshot) -> None:
    """Check received = acked + discarded + dead-lettered + in flight, by topic and in all."""
    for totals in (snapshot.total, *snapshot.topics.values()):
        known = totals.acked + sum(totals.discarded) + totals.dead_lettered + totals.in_flight
        assert totals.received == known
        assert totals.in_flight >= 0


def topic_bytes(gateway: Gateway) -> int:
    """Return the bytes of the pool that topics are charged, without their messages."""
    return sum(topic.charge for topic in gateway.router.topics.values())


def cross_checked(gateway: Gateway) -> Snapshot:
    """Check the books, and what the parts hold against `in_flight`, which is a difference.

    Context: loop. Inputs receive messages in their threads meanwhile, into the pool or the spool.
    """
    spool = gateway.spool
    least = 0 if spool is None else spool.waiting
    snapshot = gateway.snapshot()
    most = 0 if spool is None else spool.waiting
    balanced(snapshot)
    core, letters = snapshot.core, gateway.dead_letters
    engine = sum(one.waiting + one.sent for one in gateway.engine.held().values())
    assert core.taken == engine + letters.held
    batches = sum(core.topics[slot].held for slot in gateway.router.topics if slot in core.topics)
    elsewhere = core.held - core.taken - batches - core.unresolved
    # Only messages that the pool did not accept and that wait for their reader.
    assert elsewhere >= 0
    if not letters.enabled:
        assert elsewhere == 0
    assert least <= snapshot.total.in_flight - core.held <= most
    if not snapshot.total.in_flight:
        assert core.used_bytes == core.partial_bytes + topic_bytes(gateway)
        assert letters.held_bytes == 0
    return snapshot


def configuration(path: Path, values: Mapping[str, Any] | None = None) -> GatewaySettings:
    """Return settings with one input of each kind."""
    given: dict[str, Any] = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "inputs": [
            {"type": "unix_datagram", "path": f"{path}/datagram"},
            {"type": "unix_stream", "path": f"{path}/stream"},
            {"type": "tcp", "port": 0},
        ],
        **(values or {}),
    }
    given["delivery"] = {"engine": default_engine, **given.get("delivery", {})}
    return GatewaySettings.checked(given)


@contextlib.asynccontextmanager
async def rig(
    values: Mapping[str, Any] | None = None,
    *,
    topics: Mapping[str, int] | None = None,
    spool: bool = False,
) -> AsyncIterator[Rig]:
    """Start a broker with topics, and a gateway in front of it."""
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka, aiokq.Admin(kafka.bootstrap_servers) as admin:
            for topic, partitions in (topics or {"orders": 1}).items():
                await admin.create_topics([aiokq.NewTopic(topic, partitions)])
            settings = GatewaySettings.of(
                configuration(path, values),
                bootstrap_servers=kafka.bootstrap_servers,
                spool=f"{path}/spool" if spool else None,
            )
            async with Gateway(settings) as gateway:
                made = Rig(kafka, admin, gateway, path)
                try:
                    yield made
                finally:
                    made.close()


class Process:
    """`aiokq gateway` as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ready: dict[str, Any] = {}

    async def started(self) -> None:
        assert self._process.stdout is not None
        async with asyncio.timeout(START_LIMIT):
            line = await self._process.stdout.readline()
        if not line:
            raise AssertionError(await self.errors())
        self.ready = json.loads(line)

    async def errors(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(LIMIT):
            return await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()


@contextlib.asynccontextmanager
async def gateway_process(
    *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Process]:
    process = Process(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "aiokq",
            "gateway",
            *arguments,
            "--json",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            **options,
        )
    )
    try:
        yield process
    finally:
        await process.kill()


def discarded(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the discards of all topics by reason."""
    reasons = snapshot.total.document()["discarded"]
    assert isinstance(reasons, dict)
    return reasons


def values_of(records: Iterable[aiokq.Record]) -> list[bytes | None]:
    return [record.value for record in records]
