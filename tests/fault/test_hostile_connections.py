"""Hostile clients in a process of their own, and a broker in another: who is served meanwhile.

Scenarios 38 (slow, half-open and byte-at-a-time clients, impossible sizes) and 39 (a client above
its quota) over real sockets. The rates beside storms are measured by `benchmarks/storms.py`.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiokq import Admin, ClientQuotaEntity, Cluster, EmbeddedCluster
from benchmarks import storms
from tests.peers.hostile_clients import (
    ENDLESS,
    GARBAGE,
    SecuredBroker,
    connections_to,
    secured_broker,
    steps,
    storm,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MIB = 1024 * 1024
PATIENT = {"bootstrap_timeout_ms": 50_000}
SERVED = 30.0
"""Seconds within which a working client is served, whatever hostile ones do."""


async def settled(broker: SecuredBroker, sockets: int) -> None:
    """Wait until the broker has no more sockets than before."""
    async with asyncio.timeout(30):
        while broker.sockets > sockets:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.1)


@asynccontextmanager
async def working(broker: SecuredBroker, *names: str) -> AsyncIterator[dict[str, int]]:
    """Let a client of each listener produce while the block runs; count its records."""
    served = dict.fromkeys(names, 0)
    ended = asyncio.Event()

    async def produce(name: str) -> None:
        async with (
            Cluster(**broker.client_settings(name), **PATIENT) as cluster,
            cluster.producer(linger_ms=0) as producer,
        ):
            while not ended.is_set():
                async with asyncio.timeout(SERVED):
                    # Large enough to ask for memory of `queued.max.request.bytes`.
                    await producer.send("t", bytes(300_000 if served[name] % 10 == 0 else 100))
                served[name] += 1
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(produce(name))
        while not all(served.values()):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)
        try:
            yield served
        finally:
            ended.set()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", ["stopped", "drips", "questions", "guesses", "scram-guesses", "handshakes"]
)
async def test_clients_are_served_beside_a_storm_and_nothing_is_left(
    tmp_path: Path, kind: str
) -> None:
    """A thousand stopped connections, logins with wrong passwords, or TLS handshakes.

    New clients log in meanwhile, too.
    """
    with secured_broker(tmp_path) as broker:
        async with Admin(broker.address("OPEN")) as admin:
            await admin.create_topics("t", raise_errors=True)
            sockets = broker.sockets
            async with working(broker, "OPEN", "LOGIN", "BOTH") as served:
                with storm(kind, broker, rate=100.0) as counts:
                    before = dict(served)
                    for _ in range(3):
                        settings = broker.client_settings("LOGIN") | PATIENT
                        async with asyncio.timeout(60), Admin(**settings) as other:
                            assert await other.list_topics()
                        await asyncio.sleep(0.5)
                    after = dict(served)
            assert all(after[name] > before[name] for name in served)
            assert sum(counts.values()) > 20
            await settled(broker, sockets)
        assert broker.peak_bytes < 512 * MIB


async def test_slow_and_half_open_clients_and_wrong_sizes_are_disconnected(tmp_path: Path) -> None:
    """Scenario 38: at every step, with nothing sent, a part of a request, or a byte at a time."""
    limits = ("handshake.timeout.ms=1500", "connections.max.idle.ms=2000")
    with secured_broker(tmp_path, *(word for one in limits for word in ("--set", one))) as broker:
        sockets = broker.sockets
        starts = [
            (listener, step, start, False)
            for listener, found in steps().items()
            for step, start in found
        ]
        starts += [(name, "a byte at a time", ENDLESS, True) for name in ("OPEN", "LOGIN")]
        starts += [(name, "no size", one, False) for name in ("OPEN", "LOGIN") for one in GARBAGE]

        async def closed(listener: str, step: str, start: bytes, slow: bool) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[listener])
            writer.write(start[:6] if slow else start)
            try:
                async with asyncio.timeout(20):
                    await asyncio.gather(_to_end(reader), _trickle(writer) if slow else _nothing())
            except TimeoutError:
                raise AssertionError(f"{listener}: {step}: still open") from None
            finally:
                writer.close()

        async with asyncio.TaskGroup() as group:
            for one in starts:
                group.create_task(closed(*one))
        await settled(broker, sockets)
        assert broker.peak_bytes < 512 * MIB


async def _to_end(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(65536):
            pass
    except ConnectionError:
        pass


async def _trickle(writer: asyncio.StreamWriter) -> None:
    while not writer.transport.is_closing():
        writer.write(b"\0")
        await asyncio.sleep(0.2)


async def _nothing() -> None:
    pass


async def test_ten_thousand_tls_connections_above_the_limit_are_refused(tmp_path: Path) -> None:
    """Each is closed at once; clients of the protected listener come in, and memory stays small."""
    with secured_broker(tmp_path, "--set", "max.connections=300") as broker:
        async with Admin(broker.address("OPEN")) as admin:
            await admin.create_topics("t", raise_errors=True)
            sockets, resident = broker.sockets, broker.resident_bytes
            kept = await asyncio.to_thread(connections_to, broker.ports["TLS"], 320)
            refused = 0
            for _ in range(100):
                refused += await asyncio.to_thread(refuse, broker.ports["TLS"], 100)
                assert await admin.list_topics()
            assert refused == 10_000
            assert broker.sockets <= sockets + 320
            assert broker.resident_bytes - resident < 64 * MIB
            async with working(broker, "OPEN"):
                pass
            for sock in kept:
                sock.close()
            await settled(broker, sockets)
            async with working(broker, "BOTH"):
                pass


def refuse(port: int, count: int) -> int:
    """Open connections; return how many the broker has closed."""
    closed = 0
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), 10) as sock:
            sock.settimeout(5)
            try:
                closed += not sock.recv(1)
            except ConnectionResetError:
                closed += 1
    return closed


COUNT = 1000


def memory_of(directory: Path, listener: str, start: bytes) -> float:
    """Return the bytes of resident memory for each of many connections that stop after `start`.

    On the listener BOTH they send it over TLS.
    """
    directory.mkdir()
    over_tls = listener == "BOTH"
    with secured_broker(directory) as broker:
        first = connections_to(broker.ports[listener], 20, start, over_tls=over_tls)
        time.sleep(0.3)
        before, sockets = broker.resident_bytes, broker.sockets
        opened = connections_to(broker.ports[listener], COUNT, start, over_tls=over_tls)
        deadline = time.monotonic() + 10
        while broker.sockets < sockets + COUNT and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        cost = (broker.resident_bytes - before) / COUNT
        for sock in (*first, *opened):
            sock.close()
    return cost


@pytest.mark.timeout(240)
@pytest.mark.parametrize("listener", ["LOGIN", "TLS", "BOTH", "MUTUAL"])
def test_connections_that_stop_in_a_login_need_little_memory(tmp_path: Path, listener: str) -> None:
    """Under 64 KB for each beyond a plain connection, at every step, also within a large token.

    On the listener MUTUAL, the broker closes some of the connections, because each needs more.
    """
    plain = memory_of(tmp_path / "plain", "OPEN", b"")
    for number, (step, start) in enumerate(steps()["LOGIN" if listener == "BOTH" else listener]):
        cost = memory_of(tmp_path / str(number), listener, start) - plain
        assert cost < 64_000, step


async def test_strangers_leave_nothing_in_the_broker() -> None:
    """Connections, tasks, sessions and memory for requests are what they were."""
    async with EmbeddedCluster(users={"alice": "alice-secret"}) as kafka:
        port = int(kafka.bootstrap_servers.rpartition(":")[2])
        (server,) = (one for _, one in kafka.node.servers._opened)
        async with (
            Cluster(**kafka.client_settings("alice", mechanism="PLAIN")) as cluster,
            cluster.producer(linger_ms=0) as producer,
        ):
            await producer.send("t", b"v")
            tasks, connections = len(asyncio.all_tasks()), server.connections
            starts = [*(start for _, start in steps()["LOGIN"]), *GARBAGE]
            for _ in range(3):
                opened: list[socket.socket] = []
                for start in starts * 10:
                    opened += connections_to(port, 1, start)
                    await asyncio.sleep(0)
                async with asyncio.timeout(SERVED):
                    await producer.send("t", bytes(500_000))
                for sock in opened:
                    sock.close()
            async with asyncio.timeout(20):
                while server.connections > connections or len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert server.budget.used == server.login_budget.used == 0
            gc.collect()
            contexts = sum(type(one).__name__ == "RequestContext" for one in gc.get_objects())
            assert contexts <= connections


async def test_a_client_above_its_quota_waits_alone(tmp_path: Path) -> None:
    """It is told to wait, its connection is muted, and other clients are served meanwhile."""
    with secured_broker(tmp_path) as broker:
        address = broker.address("OPEN")
        async with Admin(address) as admin, Cluster(address, client_id="greedy") as greedy:
            await admin.create_topics("t", raise_errors=True)
            entity = ClientQuotaEntity(client_id="greedy")
            await admin.alter_client_quotas(
                {entity: {"producer_byte_rate": 50_000}}, raise_errors=True
            )
            async with greedy.producer(linger_ms=0) as producer:
                async with asyncio.timeout(60):
                    await producer.send("t", bytes(800_000))
                late = asyncio.ensure_future(producer.send("t", b"late"))
                async with working(broker, "OPEN", "LOGIN") as served:
                    before = dict(served)
                    await asyncio.sleep(1.5)
                assert all(served[name] > before[name] + 10 for name in served)
                assert not late.done()
                async with asyncio.timeout(60):
                    await late


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", ["stopped", "drips", "questions", "guesses", "scram-guesses", "handshakes"]
)
def test_a_storm_costs_plain_clients_less_than_a_fifth_of_their_rate(kind: str) -> None:
    """Measured: needs a machine with two cores and without other load."""
    found = storms.measure(kind)
    assert found.kept > 0.8, found.row()
    assert found.peak_bytes < 512 * MIB


@pytest.mark.torture
@pytest.mark.timeout(300)
def test_a_storm_of_handshakes_delays_plain_clients_by_less_than_half() -> None:
    """The 99th percentile; measured, too."""
    found = storms.measure("handshakes")
    assert found.slower < 1.5, found.row()
