"""TLS of a server over real sockets, on both event loops: hostile, wrong and slow clients, renewal.

The scenarios are those of Kafka's SslTransportLayerTest that need sockets; those about stores,
names and cipher suites are in tests/unit/connection/tls.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from aiokq.connection.network import system_environment
from aiokq.connection.request_context import RequestContext
from aiokq.connection.server import Server, ServerLimits
from aiokq.connection.server_security import PLAINTEXT_SERVER, ServerSecurity
from aiokq.connection.tls.contexts import server_context
from aiokq.connection.tls.principal_rules import PrincipalRules
from aiokq.connection.tls.tls_contexts import TlsContexts
from aiokq.connection.tls.tls_settings import TlsSettings
from aiokq.core.counters import BrokerCounters
from tests.fault.support import LoopFactory, both_loops, run
from tests.peers.pki import Identity, Pki
from tests.peers.tls_messages import first_message

PKI = Pki(intermediate=True)
STRANGER = Pki("stranger")
NODE = PKI.issue()


class Echo:
    """Answers with the principal and the request; "wait" is answered after a while."""

    async def handle(self, context: RequestContext, frame: memoryview) -> Sequence[bytes]:
        answer = f"{context.session.principal} {context.is_tls} ".encode() + frame
        return [len(answer).to_bytes(4, "big"), answer]


def contexts(**settings: object) -> TlsContexts:
    values: dict[str, object] = {
        "keystore_type": "PEM",
        "keystore_key": NODE.key,
        "keystore_certificate_chain": NODE.chain,
        "truststore_type": "PEM",
        "truststore_certificates": PKI.trusted,
        **settings,
    }
    return TlsContexts(server_context, TlsSettings(**values), "listener SSL")  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def serving(
    tls: TlsContexts | None = None,
    *,
    rules: str = "DEFAULT",
    timeout: float = 30.0,
    limits: ServerLimits | None = None,
    failed: Callable[[RequestContext, str, str], None] | None = None,
) -> AsyncIterator[Server]:
    environment = system_environment()
    security = ServerSecurity(
        tls=tls or contexts(),
        principal_of=PrincipalRules(rules).principal_of,
        handshake_timeout=timeout,
        offload=environment.offload,
        failed=failed,
    )
    server = Server(
        environment.network,
        "127.0.0.1",
        0,
        Echo(),
        clock=environment.clock,
        counters=BrokerCounters(),
        limits=limits,
        security=security,
        listener="SSL",
    )
    await server.start()
    try:
        yield server
    finally:
        await server.close(drain=1.0)
        environment.offload.close()


def client_context(
    identity: Identity | None = None, directory: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=PKI.trusted)
    if identity is not None:
        assert directory is not None
        context.load_cert_chain(identity.write(directory, "client"))
    return context


async def ask(server: Server, context: ssl.SSLContext, request: bytes = b"hello") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    try:
        writer.write(len(request).to_bytes(4, "big") + request)
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def gone(server: Server) -> None:
    """Wait until the server has no connection."""
    while server.connections:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)


# -- wrong peers


@both_loops
@pytest.mark.parametrize("start", [b"\0\0\0\x14\0\x12\0\x04", b"GET / HTTP/1.1\r\n\r\n", b"\x80"])
def test_plain_bytes_on_a_tls_port_end_the_connection_without_a_byte(
    loop_factory: LoopFactory, start: bytes
) -> None:
    """As Apache Kafka does."""

    async def main() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(start)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            await gone(server)
            assert await ask(server, client_context()) == b"User:ANONYMOUS True hello"

    run(loop_factory, main)


@both_loops
def test_tls_on_a_plain_port_ends_the_connection_without_a_byte(loop_factory: LoopFactory) -> None:
    """The first bytes of TLS, read as a size, are above any limit."""

    async def main() -> None:
        environment = system_environment()
        server = Server(
            environment.network,
            "127.0.0.1",
            0,
            Echo(),
            clock=environment.clock,
            counters=BrokerCounters(),
            security=PLAINTEXT_SERVER,
        )
        await server.start()
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, first_message())
            with contextlib.suppress(ConnectionResetError):
                assert await loop.sock_recv(sock, 100) == b""
        await gone(server)
        await server.close()

    run(loop_factory, main)


@both_loops
def test_a_client_that_closes_during_the_handshake_leaves_nothing(
    loop_factory: LoopFactory,
) -> None:
    """SslTransportLayerTest.testCloseSsl and testIOExceptionsDuringHandshake, at each byte."""

    async def main() -> None:
        hello = first_message()
        async with serving() as server:
            for sent in (0, 1, 5, 100, len(hello)):
                with socket.create_connection(("127.0.0.1", server.port)) as sock:
                    sock.sendall(hello[:sent])
                    await asyncio.sleep(0.01)
            await gone(server)
            assert await ask(server, client_context()) == b"User:ANONYMOUS True hello"

    run(loop_factory, main)


@both_loops
def test_a_client_that_is_slow_with_its_handshake_is_disconnected(
    loop_factory: LoopFactory,
) -> None:
    """At each step; `handshake.timeout.ms`. Connected clients are not concerned."""

    async def main() -> None:
        hello = first_message()
        async with serving(timeout=0.3) as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=client_context()
            )
            slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
            slow[1].sendall(hello[:50])
            slow[2].sendall(hello)
            while server.connections < 4:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            while server.connections > 1:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            for sock in slow:
                sock.close()
            await asyncio.sleep(0.5)
            writer.write(b"\0\0\0\x02hi")
            assert (await reader.readexactly(4)) == b"\0\0\0\x16"
            writer.close()

    run(loop_factory, main)


@both_loops
def test_closing_the_server_ends_handshakes(loop_factory: LoopFactory) -> None:
    """It does not wait for clients that send nothing."""

    async def main() -> None:
        async with serving() as server:
            silent = socket.create_connection(("127.0.0.1", server.port))
            half = socket.create_connection(("127.0.0.1", server.port))
            half.sendall(first_message())
            while server.connections < 2:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            async with asyncio.timeout(2):
                await server.close(drain=1.0)
            silent.close()
            half.close()

    run(loop_factory, main)


@both_loops
def test_damaged_handshakes_end_only_their_connection(loop_factory: LoopFactory) -> None:
    """Changed, cut and random bytes at each point; a working client is served meanwhile."""

    async def main() -> None:
        chance = random.Random(18)
        hello = first_message()
        async with serving(contexts(client_auth="requested"), timeout=2.0) as server:
            good, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=client_context()
            )
            for n in range(300):
                sent = bytearray(hello)
                for _ in range(chance.randrange(1, 4)):
                    sent[chance.randrange(len(sent))] = chance.randrange(256)
                if n % 3 == 1:
                    del sent[chance.randrange(len(sent)) :]
                elif n % 3 == 2:
                    sent += chance.randbytes(chance.randrange(3000))
                with socket.create_connection(("127.0.0.1", server.port)) as sock:
                    with contextlib.suppress(OSError):
                        sock.sendall(sent)
                    if n % 10 == 0:
                        writer.write(b"\0\0\0\x02hi")
                        await good.readexactly(4 + 22)
                    await asyncio.sleep(0.001)
            while server.connections > 1:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            writer.close()
            await gone(server)

    run(loop_factory, main)


@both_loops
def test_connections_that_stop_in_their_handshake_make_room(loop_factory: LoopFactory) -> None:
    """Regression: without descriptors, they kept everybody out until `handshake.timeout.ms`."""

    async def main() -> None:
        async with serving() as server:
            silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
            silent[1].sendall(first_message())
            while server.connections < 2:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            assert not server.make_room()
            await asyncio.sleep(1.1)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=client_context()
            )
            assert server.make_room()
            assert server.make_room()
            while server.connections > 1:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            assert server.counters.connections_closed_for_room == 2
            writer.write(b"\0\0\0\x02hi")
            assert (await reader.readexactly(4)) == b"\0\0\0\x16"
            for sock in silent:
                sock.close()
            writer.close()

    run(loop_factory, main)


# -- client certificates


@both_loops
@pytest.mark.parametrize(
    ("auth", "name", "rules", "principal"),
    [
        ("none", "alice", "DEFAULT", "User:ANONYMOUS"),
        ("requested", None, "DEFAULT", "User:ANONYMOUS"),
        ("requested", "alice", "DEFAULT", "User:CN=alice"),
        ("required", "alice", "RULE:^CN=(.*)$/$1/U", "User:ALICE"),
        ("required", "a, b", "DEFAULT", "User:CN=a\\, b"),
        ("required", "alice", "RULE:^CN=bob$/bob/", None),
        ("required", None, "DEFAULT", None),
        ("required", "stranger", "DEFAULT", None),
        ("requested", "stranger", "DEFAULT", None),
    ],
)
def test_the_principal_is_that_of_the_certificate(
    loop_factory: LoopFactory,
    tmp_path: Path,
    auth: str,
    name: str | None,
    rules: str,
    principal: str | None,
) -> None:
    """A certificate of a stranger, and a name without a rule, end the connection."""
    identity = None if name is None else PKI.issue(name, "client.example")
    if name == "stranger":
        identity = STRANGER.issue(name, "client.example")
    context = client_context(identity, tmp_path)

    async def main() -> None:
        async with serving(contexts(client_auth=auth), rules=rules) as server:
            if principal is None:
                with pytest.raises((OSError, asyncio.IncompleteReadError)):
                    await ask(server, context)
            else:
                assert await ask(server, context) == f"{principal} True hello".encode()
            await gone(server)

    run(loop_factory, main)


def connected(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[bytes, ssl.SSLSession | None, bool]:
    """Return the answer to a request, the session, and whether it was resumed; blocks."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as sock,
        context.wrap_socket(sock, server_hostname="localhost", session=session) as tls,
    ):
        answer = b""
        with contextlib.suppress(ConnectionError):
            tls.sendall(b"\0\0\0\x02hi")
            answer = tls.recv(1000)
        kept, resumed = tls.session, bool(tls.session_reused)
        with contextlib.suppress(OSError):
            tls.unwrap()  # OpenSSL forgets a session whose connection ends without this
        return answer, kept, resumed


@both_loops
@pytest.mark.parametrize("tickets", [True, False])
def test_a_session_of_tls_1_2_ends_with_the_certificate_of_its_client(
    loop_factory: LoopFactory, tmp_path: Path, tickets: bool
) -> None:
    """OpenSSL verifies no certificate when it resumes a session, by a ticket or from its cache."""
    reasons: list[str] = []

    async def main() -> None:
        tls = contexts(client_auth="required")
        async with serving(tls, failed=lambda *what: reasons.append(what[2])) as server:
            ends = time.time() + 3
            context = client_context(PKI.issue("alice", days=3 / 86_400), tmp_path)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            if not tickets:
                context.options |= ssl.OP_NO_TICKET
            answer, session, resumed = await asyncio.to_thread(connected, server.port, context)
            assert answer.endswith(b"User:CN=alice True hi")
            assert not resumed
            again = await asyncio.to_thread(connected, server.port, context, session)
            assert again[0] == answer
            assert again[2], "the session was not resumed, so this test shows nothing"
            await asyncio.sleep(ends + 1 - time.time())
            answer, _, resumed = await asyncio.to_thread(
                connected, server.port, context, again[1] or session
            )
            assert resumed
            assert answer == b""
            with pytest.raises(OSError):
                await ask(server, context)
            await gone(server)

    run(loop_factory, main)
    assert reasons == [
        "TLS handshake failed: the client's certificate has expired since its session began",
        "TLS handshake failed: the certificate was refused: certificate has expired",
    ]


# -- renewal


@both_loops
def test_a_renewed_certificate_is_shown_without_dropping_connections(
    loop_factory: LoopFactory, tmp_path: Path
) -> None:
    """Requests go on on the old connection while the files change, a broken file between them."""
    store = NODE.write(tmp_path, "node")
    renewed = PKI.issue(days=60)

    async def main() -> None:
        tls = contexts(
            keystore_location=str(store), keystore_key=None, keystore_certificate_chain=None
        )
        tls.check_seconds = 0.02
        async with serving(tls) as server:
            gauge = server.counters.certificate_expiry_timestamp_seconds
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=client_context()
            )

            async def round_trip() -> None:
                writer.write(b"\0\0\0\x02hi")
                await reader.readexactly(4 + 22)

            await round_trip()
            former = gauge.read()[("SSL",)]
            store.write_text(renewed.key)
            await asyncio.sleep(0.1)
            await round_trip()
            assert gauge.read()[("SSL",)] == former
            store.write_text(renewed.key + renewed.chain)
            while gauge.read()[("SSL",)] == former:
                await round_trip()
                await asyncio.sleep(0.01)
            _, other = await asyncio.open_connection("127.0.0.1", server.port, ssl=client_context())
            shown = other.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert shown == renewed.der
            await round_trip()
            other.close()
            writer.close()
        assert gauge.read() == {}

    run(loop_factory, main)


# -- memory and limits


_MEMORY = """
import asyncio, resource, socket, ssl, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.fault.test_tls_faults import contexts
from aiokq.connection.network import system_environment
from aiokq.connection.server import Server
from aiokq.connection.server_security import PLAINTEXT_SERVER, ServerSecurity
from aiokq.core.counters import BrokerCounters
from tests.fault.test_tls_faults import Echo
from tests.peers.tls_messages import (
    CHANGE_CIPHER_SPEC, certificate_announced, first_message, message_start, record, retry_wanted
)

COUNT = {count}
resource.setrlimit(resource.RLIMIT_NOFILE, (4 * COUNT + 200, 4 * COUNT + 200))

def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

async def main(step):
    environment = system_environment()
    auth = "required" if step == "certificate" else "none"
    security = (
        PLAINTEXT_SERVER if step == "plain" else ServerSecurity(tls=contexts(client_auth=auth))
    )
    server = Server(environment.network, "127.0.0.1", 0, Echo(), clock=environment.clock,
                    counters=BrokerCounters(), security=security)
    await server.start()
    hello = first_message()
    second = CHANGE_CIPHER_SPEC + record(message_start(1, 130_000))
    start = {{"plain": b"", "connected": b"", "half": hello[:100], "hello": hello,
              "second": retry_wanted() + second, "certificate": certificate_announced()}}[step]
    is_answered = step in ("hello", "second", "certificate")
    sockets = []
    async def one():
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.sendall(start)
        sockets.append(sock)
        if not is_answered:
            while server.connections < len(sockets):
                await asyncio.sleep(0)
            return
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_recv(sock, 65536)
    for _ in range(20):
        await one()
    await asyncio.sleep(0.2)
    before = rss()
    for _ in range(COUNT):
        await one()
    await asyncio.sleep(0.5)
    print((rss() - before) // COUNT)

asyncio.run(main(sys.argv[1]))
"""


def memory_of(step: str, count: int = 500) -> int:
    """Return the bytes of resident memory for each connection that has stopped at a step."""
    program = textwrap.dedent(_MEMORY).format(root=os.getcwd(), count=count)
    done = subprocess.run(
        [sys.executable, "-c", program, step], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_connection_that_stops_in_its_handshake_needs_little_memory() -> None:
    """asyncio's TLS takes 256 KiB for each at once. Without a first message TLS adds nothing."""
    plain = memory_of("plain")
    assert memory_of("connected") - plain < 8 * 1024
    assert memory_of("half") - plain < 8 * 1024
    assert memory_of("hello") - plain < 64 * 1024
    # OpenSSL would allocate the announced size of a second ClientHello, 130,000 bytes.
    assert memory_of("second") - plain < 64 * 1024
    # OpenSSL allocates the announced 100,000 bytes, so fewer clients may be in this state.
    assert memory_of("certificate", 1000) - plain < 64 * 1024
