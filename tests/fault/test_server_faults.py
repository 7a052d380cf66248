"""Servers whose clients have a bad network, over real sockets and on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiokq import wire
from aiokq.connection import listener
from aiokq.connection.accepted_connection import AcceptedConnection
from aiokq.connection.network import system_environment
from aiokq.connection.server import RequestContext, Server, ServerLimits
from aiokq.connection.server_security import PLAINTEXT_SERVER, ServerSecurity
from aiokq.connection.tls.tls_contexts import TlsContexts
from aiokq.core.counters import BrokerCounters
from aiokq.core.descriptor_reserve import PROCESS
from aiokq.core.descriptors import Descriptors
from aiokq.core.errors import Closed
from aiokq.core.files import File, FileRange
from tests.fault.proxy import FaultProxy
from tests.fault.support import LoopFactory, both_loops, client_tls, open_sockets, run, server_tls

MIB = 1024 * 1024

# Larger than any socket buffer, so that sending it blocks.
SIZE = 24 * MIB


class FileServer:
    """A handler that answers "get POSITION LENGTH" with head, file range and tail; else an echo."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.handled = 0

    async def handle(
        self, context: RequestContext, frame: memoryview
    ) -> Sequence[wire.Fragment] | None:
        self.handled += 1
        words = bytes(frame).split()
        if words[:1] == [b"get"]:
            position, length = int(words[1]), int(words[2])
            size = (8 + length + 4).to_bytes(4, "big")
            return [size + b"--head--", FileRange(self.file, position, length), b"tail"]
        return [len(frame).to_bytes(4, "big"), frame]


@asynccontextmanager
async def serving(
    path: Path,
    *,
    limits: ServerLimits | None = None,
    tls: bool = False,
) -> AsyncIterator[tuple[Server, FileServer]]:
    environment = system_environment()
    file = environment.files.open(os.fspath(path))
    handler = FileServer(file)
    server = Server(
        environment.network,
        "127.0.0.1",
        0,
        handler,
        clock=environment.clock,
        counters=BrokerCounters(),
        limits=limits,
        security=ServerSecurity(tls=TlsContexts.fixed(server_tls())) if tls else PLAINTEXT_SERVER,
    )
    await server.start()
    try:
        yield server, handler
    finally:
        await server.close(drain=1.0)
        file.close()


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which every range is different."""
    path = tmp_path_factory.mktemp("log") / "00000000000000000000.log"
    block = hashlib.shake_256(b"aiokq").digest(MIB)
    with path.open("wb") as file:
        for n in range(SIZE // MIB):
            file.write(n.to_bytes(8, "big") + block[8:])
    return path


def request(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


async def receive(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


@both_loops
@pytest.mark.parametrize("tls", [False, True], ids=["sendfile", "tls"])
def test_file_ranges_arrive_whole_between_other_responses(
    loop_factory: LoopFactory, segment: Path, tls: bool
) -> None:
    """Large and small fetches are pipelined with short requests: nothing is mixed up or lost."""
    content = segment.read_bytes()

    async def main() -> None:
        async with serving(segment, tls=tls) as (server, _):
            context: ssl.SSLContext | None = client_tls() if tls else None
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            ranges = [(0, 10), (5, SIZE - 5), (MIB, 3 * MIB), (7, 20_000), (SIZE - 1, 1)]
            for position, length in ranges:
                writer.write(request(b"get %d %d" % (position, length)) + request(b"echo"))
            for position, length in ranges:
                expected = b"--head--" + content[position : position + length] + b"tail"
                assert await receive(reader) == expected
                assert await receive(reader) == b"echo"
            writer.close()
            await writer.wait_closed()

    run(loop_factory, main)


@both_loops
def test_a_reader_that_stops_is_given_up_and_leaves_nothing_open(
    loop_factory: LoopFactory, segment: Path
) -> None:
    """A consumer is stopped in a debugger during a fetch: socket and memory are released."""

    async def main() -> None:
        async with serving(segment, limits=ServerLimits(write_stall=0.3)) as (server, _):
            before = open_sockets()
            client = connected(server.port)
            client.sendall(request(b"get 0 %d" % SIZE))
            await gone(server)
            assert open_sockets() == before + 1  # the client's own
            client.close()

    run(loop_factory, main)


@both_loops
def test_a_slow_reader_is_kept_while_it_takes_anything(
    loop_factory: LoopFactory, segment: Path
) -> None:
    """Progress counts, not the duration of a response, which is ten times the stall limit here."""
    content = segment.read_bytes()[: 6 * MIB]

    async def main() -> None:
        async with serving(segment, limits=ServerLimits(write_stall=0.2)) as (server, _):
            client = connected(server.port)
            client.setblocking(False)
            client.send(request(b"get 0 %d" % len(content)))
            loop = asyncio.get_running_loop()
            received = bytearray()
            while len(received) < len(content) + 16:
                piece = await loop.sock_recv(client, 200_000)
                assert piece, "the server gave up"
                received += piece
                await asyncio.sleep(0.05)
            assert received[12:-4] == content
            client.close()

    run(loop_factory, main)


@both_loops
def test_clients_that_reset_during_a_response_harm_nobody(
    loop_factory: LoopFactory, segment: Path
) -> None:
    """Fifty consumers die in the middle of a fetch, while another one reads correct data.

    The system reuses descriptors at once: a file sent to a descriptor number that now belongs to
    another connection would reach the wrong client.
    """
    content = segment.read_bytes()

    async def main() -> None:
        async with serving(segment) as (server, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for n in range(50):
                client = connected(server.port)
                client.sendall(request(b"get 0 %d" % SIZE))
                writer.write(request(b"get %d 1000000" % n))
                await asyncio.sleep(0.005)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                assert await receive(reader) == b"--head--" + content[n : n + 1_000_000] + b"tail"
            writer.close()
            await writer.wait_closed()
            await gone(server, 51)

    run(loop_factory, main)


@both_loops
@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENOTCONN])
def test_a_peer_whose_machine_died_is_no_bug_of_the_handler(
    loop_factory: LoopFactory,
    segment: Path,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Keepalive reports it with errors other than ConnectionError, which log no traceback."""

    def lost(*args: object) -> int:
        raise OSError(number, os.strerror(number))

    async def main() -> None:
        async with serving(segment) as (server, _):
            monkeypatch.setattr("os.sendfile", lost)
            client = connected(server.port)
            client.sendall(request(b"get 0 %d" % SIZE))
            await gone(server)
            client.close()

    run(loop_factory, main)
    assert "handler failed" not in caplog.text


@both_loops
def test_a_client_behind_a_bad_line_gets_its_bytes(
    loop_factory: LoopFactory, segment: Path
) -> None:
    """Requests arrive byte by byte, and responses leave in small pieces."""
    content = segment.read_bytes()

    async def main() -> None:
        async with serving(segment) as (server, _), FaultProxy("127.0.0.1", server.port) as proxy:
            proxy.to_server.piece = 1
            proxy.to_client.piece = 5000
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            for n in range(3):
                writer.write(request(b"get %d 2000000" % n))
                assert await receive(reader) == b"--head--" + content[n : n + 2_000_000] + b"tail"
            writer.close()
            await writer.wait_closed()

    run(loop_factory, main)


@both_loops
def test_half_a_request_is_given_up(loop_factory: LoopFactory, segment: Path) -> None:
    """The client's machine is gone while it sends a request."""

    async def main() -> None:
        limits = ServerLimits(read_stall=0.3)
        async with serving(segment, limits=limits) as (server, handler):
            client = connected(server.port)
            client.sendall((5_000_000).to_bytes(4, "big") + bytes(100_000))
            await gone(server)
            assert server.budget.used == 0
            assert handler.handled == 0
            client.close()

    run(loop_factory, main)


@both_loops
def test_a_segment_cut_under_a_response_ends_the_connection(
    loop_factory: LoopFactory, tmp_path: Path
) -> None:
    """A truncation during a fetch: the announced bytes cannot come, so the connection is closed."""
    path = tmp_path / "log"
    path.write_bytes(bytes(MIB))

    async def main() -> None:
        async with serving(path) as (server, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request(b"get 0 %d" % (2 * MIB)))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await receive(reader)
            writer.close()
            await gone(server)

    run(loop_factory, main)


@both_loops
def test_a_file_closed_under_a_response_gives_nothing_of_another(
    loop_factory: LoopFactory, segment: Path, tmp_path: Path
) -> None:
    """The reader of a deleted topic is slow; its descriptor's number is another topic's by then."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret" * SIZE)

    async def main() -> None:
        async with serving(segment) as (server, handler):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**16)
            writer.write(request(b"get 0 %d" % SIZE))
            received = await reader.readexactly(100)
            await asyncio.sleep(0.1)  # until the socket buffers are full
            number = handler.file.fileno()
            handler.file.close()
            with secret.open("rb") as other:
                assert other.fileno() == number
                while part := await reader.read(2**20):
                    received += part
            assert b"secret" not in received
            assert len(received) < SIZE
            writer.close()
            await gone(server)

    run(loop_factory, main)


@both_loops
def test_connections_that_come_and_go_leave_nothing(
    loop_factory: LoopFactory, segment: Path
) -> None:
    """Two hundred connections, as of a port scanner and a health check, some with garbage."""

    async def main() -> None:
        async with serving(segment) as (server, _):
            before = open_sockets()
            for n in range(200):
                client = connected(server.port)
                if n % 4 == 1:
                    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                if n % 4 == 2:
                    client.sendall(request(b"echo")[: n % 8 + 1])
                if n % 4 == 3:
                    client.sendall(request(b"get 0 1000000"))
                client.close()
                await asyncio.sleep(0)
            await gone(server, 200)
            await asyncio.sleep(0.05)
            assert open_sockets() == before
            assert server.budget.used == 0
            assert server.counters.connections.read() == 0

    run(loop_factory, main)


@both_loops
def test_closing_cuts_off_a_reader_that_stopped(loop_factory: LoopFactory, segment: Path) -> None:
    """Shutdown waits for its drain time only, even for a client that reads nothing."""

    async def main() -> None:
        async with serving(segment) as (server, _):
            client = connected(server.port)
            client.sendall(request(b"get 0 %d" % SIZE))
            await asyncio.sleep(0.2)
            async with asyncio.timeout(3):
                await server.close(drain=0.3)
            assert server.connections == 0
            client.close()

    run(loop_factory, main)


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 5)
    client.settimeout(5)
    return client


async def gone(server: Server, made: int = 1) -> None:
    """Wait until the server has accepted `made` connections and all are closed."""
    async with asyncio.timeout(10):
        while server.connections or server.counters.connections_accepted < made:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.02)


async def idle(server: Server) -> AcceptedConnection:
    """Return the server's connection once it waits for a request."""
    while not server.idle:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)
    (connection,) = server.idle
    return connection


@both_loops
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_request_that_the_system_has_is_not_lost_for_a_descriptor(
    loop_factory: LoopFactory, segment: Path, tls: bool
) -> None:
    """With acks=0 such a request counts as sent: its connection is not idle."""

    async def main() -> None:
        async with serving(segment, tls=tls) as (server, _):
            context: ssl.SSLContext | None = client_tls() if tls else None
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.write(request(b"first"))
            assert await receive(reader) == b"first"
            transport = (await idle(server)).transport
            writer.write(request(b"second"))
            while not transport.unread:
                pass  # no iteration of the loop, in which the server would receive the request
            assert not server.make_room()
            assert await receive(reader) == b"second"
            await idle(server)
            assert server.make_room()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    run(loop_factory, main)


@both_loops
def test_a_client_that_is_slow_with_its_handshake_is_served_after_it(
    loop_factory: LoopFactory, segment: Path
) -> None:
    """The server has no transport for it yet, which must not look like a closed connection."""

    async def main() -> None:
        async with serving(segment, tls=True) as (server, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            while not server.connections:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            (connection,) = server._connections
            connection.check(asyncio.get_running_loop().time() + 1)
            await writer.start_tls(client_tls(), server_hostname="localhost")
            writer.write(request(b"hello"))
            assert await receive(reader) == b"hello"
            writer.close()

    run(loop_factory, main)


@both_loops
def test_a_connection_that_is_ended_during_its_handshake_is_closed_after_it(
    loop_factory: LoopFactory, segment: Path
) -> None:
    """Before that there is no transport to abort; the connection would stay open and unserved."""

    async def main() -> None:
        async with serving(segment, tls=True) as (server, handler):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            while not server.connections:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            (connection,) = server._connections
            connection.transport.fail(Closed("by a test"))
            with contextlib.suppress(ConnectionError):
                await writer.start_tls(client_tls(), server_hostname="localhost")
                writer.write(request(b"hello"))
                assert await reader.read() == b""
            writer.close()
            while server.connections:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            assert handler.handled == 0

    run(loop_factory, main)


class OneShort(Descriptors):
    """The process's descriptors, with as many of the reserve missing as the test sets."""

    short = 0

    def missing(self) -> int:
        return self.short


@both_loops
@pytest.mark.parametrize("elsewhere", [False, True], ids=["this loop", "another loop"])
def test_a_server_without_idle_connections_gets_the_descriptor_of_another_servers(
    loop_factory: LoopFactory, segment: Path, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the limit is per process, and the second server refused all clients for good."""
    count = OneShort()
    monkeypatch.setattr(PROCESS, "descriptors", count)
    monkeypatch.setattr(listener, "_WATCH_SECONDS", 1e6)
    ready, over = threading.Event(), threading.Event()
    servers: list[Server] = []

    async def idle_server() -> None:
        async with serving(segment) as (server, _):
            servers.append(server)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await idle(server)
            ready.set()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            await asyncio.to_thread(over.wait)

    async def main() -> None:
        async with asyncio.TaskGroup() as group, serving(segment) as (server, _):
            if elsewhere:
                group.create_task(asyncio.to_thread(_run_on, loop_factory, idle_server))
            else:
                group.create_task(idle_server())
            try:
                await asyncio.to_thread(ready.wait, 10)
                count.short = 1
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(request(b"hello"))
                assert await receive(reader) == b"hello"
                writer.close()
                while servers[0].connections:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
                assert servers[0].counters.connections_closed_for_room == 1
                assert server.counters.connections_closed_for_room == 0
            finally:
                count.short = 0
                over.set()

    run(loop_factory, main)


def _run_on(loop_factory: LoopFactory, main: Callable[[], Coroutine[object, object, None]]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
