"""A broker whose process has few descriptors, and clients that need more than there are.

The broker runs as a process and embedded, on asyncio and on uvloop, with limits of 256 and of 64.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aiokq
from aiokq import wire
from tests.peers.limited_broker import LimitedBroker, limited_broker

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs Linux to look at another process"
)

LIMITS = (256, 64)

everywhere = pytest.mark.parametrize(
    ("how", "loop"),
    [(how, loop) for how in ("process", "embedded") for loop in ("asyncio", "uvloop")],
)
every_limit = pytest.mark.parametrize("limit", LIMITS)

AT_WORK = {"log.segment.bytes": 1024 * 1024, "log.cleaner.backoff.ms": 100}
"""Settings with which logs roll after a few batches and the cleaner runs at once."""

VALUE = bytes(300_000)

SERVED_SECONDS = 1.0
"""Seconds in which one of several new clients must be served, as the machine may be busy."""


@contextlib.contextmanager
def closing() -> Iterator[Callable[[LimitedBroker, int], list[socket.socket]]]:
    """Yield a function that connects to a broker; close its connections at the end."""
    made: list[socket.socket] = []

    def connect(broker: LimitedBroker, count: int) -> list[socket.socket]:
        sockets = [socket.create_connection(broker.address, 10) for _ in range(count)]
        made.extend(sockets)
        return sockets

    try:
        yield connect
    finally:
        for sock in made:
            sock.close()


def request(message: wire.Request[wire.Response], version: int) -> bytes:
    parts = wire.encode_request(message, version=version, correlation_id=1, client_id="t")
    return b"".join(bytes(part) for part in parts)


METADATA = request(wire.MetadataRequest(topics=[]), 9)


def answered(sock: socket.socket) -> bool:
    """Whether a whole response arrives; False if the connection is closed first or times out."""
    try:
        (size,) = struct.unpack(">i", receive(sock, 4))
        receive(sock, size)
    except (ConnectionError, TimeoutError):
        return False
    return True


def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def served_within(broker: LimitedBroker, seconds: float) -> bool:
    """Whether a new client's first request gets its response within `seconds`."""
    began = time.monotonic()
    try:
        with socket.create_connection(broker.address, 10) as sock:
            sock.settimeout(10)
            sock.sendall(METADATA)
            return answered(sock) and time.monotonic() - began < seconds
    except ConnectionError:
        return False


def serves_new_clients(broker: LimitedBroker) -> bool:
    return any(served_within(broker, SERVED_SECONDS) for _ in range(5))


def sound(broker: LimitedBroker) -> None:
    """Check that the broker runs and has logged no traceback."""
    assert broker.is_running
    assert "Traceback" not in broker.errors(), broker.errors()


@everywhere
@every_limit
async def test_twice_as_many_idle_connections_as_descriptors_stop_nobody(
    tmp_path: Path, how: str, loop: str, limit: int
) -> None:
    """Idle connections, as of a leaking pool or a thousand sidecars, must not end the broker.

    Regression: the cleaner's first run imported a module without a free descriptor, which ended
    the broker.
    """
    with limited_broker(tmp_path, how, loop, limit, **AT_WORK) as broker, closing() as connect:
        async with (
            aiokq.Admin(broker.bootstrap_servers) as admin,
            aiokq.Producer(broker.bootstrap_servers) as producer,
        ):
            await admin.create_topics(
                "compacted", num_partitions=1, configs={"cleanup.policy": "compact"},
                raise_errors=True,
            )  # fmt: skip
            sent = 0

            async def work() -> None:
                nonlocal sent
                key = b"%d" % (sent % 7)
                result = await producer.send("compacted", VALUE, key=key, partition=0)
                assert result.offset == sent
                sent += 1

            idle = []
            for _ in range(2 * limit // 16):
                idle += await asyncio.to_thread(connect, broker, 16)
                await work()
            assert await asyncio.to_thread(serves_new_clients, broker)
            for _ in range(16):  # a busy client is still served, and its log rolls
                await work()
            # Metadata and a new partition need files of their own.
            await admin.create_topics("late", num_partitions=2, raise_errors=True)
            result = await producer.send("late", b"value", partition=1)
            assert result.offset == 0
            if how == "embedded":
                snapshot = tmp_path / "snapshot"
                assert await asyncio.to_thread(broker.ask, f"snapshot {snapshot}") == "taken"
                assert (snapshot / "late-1").is_dir()
        segments = sorted((tmp_path / "data" / "compacted-0").glob("*.log"))
        assert int(segments[-1].stem) > 0, "the log has rolled"
        closed = [sock for sock in idle if is_closed(sock)]
        assert len(closed) >= len(idle) - limit
        assert is_closed(idle[0]), "the one that was idle longest"
        assert not is_closed(idle[-1])
        assert broker.descriptors() <= limit
        assert serves_new_clients(broker)
        sound(broker)
        lines = [line for line in broker.errors().splitlines() if "out of descriptors" in line]
        assert 1 <= len(lines) <= 2, broker.errors()


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker closed the connection, on which nothing was sent."""
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


FETCH = request(
    wire.FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=[
            wire.FetchTopic(
                topic="t",
                partitions=[
                    wire.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                ],
            )
        ],
    ),
    11,
)


@everywhere
@every_limit
async def test_clients_at_work_are_not_closed_for_others_and_those_cost_little(
    tmp_path: Path, how: str, loop: str, limit: int
) -> None:
    """Consumers that wait for records are not idle; a new client without room is refused at once.

    Regression: asyncio's accept loop used half a core meanwhile.
    """
    with limited_broker(tmp_path, how, loop, limit) as broker, closing() as connect:
        async with aiokq.Admin(broker.bootstrap_servers) as admin:
            await admin.create_topics("t", num_partitions=1, raise_errors=True)
        waiting: list[socket.socket] = []
        for _ in range(2 * limit):
            [sock] = connect(broker, 1)
            with contextlib.suppress(ConnectionError):
                sock.sendall(FETCH)
            waiting.append(sock)
        [last] = connect(broker, 1)
        last.settimeout(10)
        assert was_closed(last)  # so the broker has handled all earlier connections
        busy = [sock for sock in waiting if not is_closed(sock)]
        assert limit // 4 < len(busy) < limit
        assert any(is_idle_while_refusing(broker, connect) for _ in range(10))
        assert not any(is_closed(sock) for sock in busy)
        sound(broker)
        # Waiting consumers get the new record, and then have to make room for new clients.
        async with contextlib.AsyncExitStack() as stack:
            for sock in busy[: len(busy) // 2]:
                sock.close()
            producer = await stack.enter_async_context(aiokq.Producer(broker.bootstrap_servers))
            await producer.send("t", b"value", partition=0)
        for sock in busy[len(busy) // 2 :]:
            sock.settimeout(10)
            assert answered(sock)
        assert serves_new_clients(broker)
        sound(broker)


def is_idle_while_refusing(
    broker: LimitedBroker, connect: Callable[[LimitedBroker, int], list[socket.socket]]
) -> bool:
    """Whether refusing some connections leaves most of the CPU idle.

    A new broker also imports modules for a second or two, so several tries are allowed. A broker
    that retries accept() without pause is idle in none of them.
    """
    before = broker.cpu_seconds()
    for _ in range(5):
        [sock] = connect(broker, 1)
        sock.settimeout(10)
        assert was_closed(sock)
        time.sleep(0.08)
    return broker.cpu_seconds() - before < 0.1


def was_closed(sock: socket.socket) -> bool:
    """Whether the broker closes the connection before the socket's timeout."""
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


@everywhere
def test_more_logs_than_descriptors_are_written_and_new_clients_are_served(
    tmp_path: Path, how: str, loop: str
) -> None:
    """Regression: each partition's newest segment kept a file open until no descriptor was left."""
    partitions = 60

    async def main(broker: LimitedBroker) -> None:
        address = "{}:{}".format(*broker.address)
        async with aiokq.Admin(address) as admin:
            await admin.create_topics("t", num_partitions=partitions, raise_errors=True)
        async with aiokq.Producer(address, linger_ms=0) as producer:
            for offset in range(2):
                sent = [producer.send("t", b"x", partition=n) for n in range(partitions)]
                assert {each.offset for each in await asyncio.gather(*sent)} == {offset}

    with limited_broker(tmp_path, how, loop, 64) as broker:
        asyncio.run(main(broker))
        assert serves_new_clients(broker)
        sound(broker)
