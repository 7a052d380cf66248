"""Accepting connections when accept() fails, over real sockets and on both event loops."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import pytest

from aiokq.connection import strangers as strangers_module
from aiokq.connection.listener import TcpListener, bind
from aiokq.connection.network import TcpNetwork
from aiokq.connection.strangers import Strangers
from aiokq.connection.turn import Turn
from aiokq.core.descriptor_reserve import DescriptorReserve
from aiokq.core.descriptors import Descriptors
from aiokq.core.environment import Address, SocketOptions
from tests.fault.support import LoopFactory, both_loops, client_tls, run, server_tls


class Talk(asyncio.BufferedProtocol):
    """An echo protocol."""

    def __init__(self) -> None:
        self.made = False
        self.buffer = memoryview(bytearray(100))
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.made = True

    def handshake_begun(self, transport: asyncio.Transport) -> None:
        pass

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)


class Hall:
    """An acceptor that takes every connection, or none if `accepts` is false."""

    def __init__(self) -> None:
        self.talks: list[Talk] = []
        self.scarce: list[bool] = []
        self.accepts = True
        self.refusals = 0
        self.turn = Turn()
        self.strangers = Strangers(self.turn, time.monotonic)

    def accept(self, peer: Address, *, make_room: Callable[[], bool] | None) -> Talk | None:
        assert peer.host in ("127.0.0.1", "::1")
        self.scarce.append(make_room is not None)
        if not self.accepts:
            return None
        self.talks.append(Talk())
        return self.talks[-1]

    leaving = 0

    def refused(self, peer: Address) -> None:
        self.refusals += 1

    def idle_since(self, behind: int) -> None:
        return None

    def make_room(self) -> bool:
        return False


class Troubled(socket.socket):
    """A listening socket whose accept() raises the given errors first."""

    errors: list[int]

    def accept(self) -> tuple[socket.socket, object]:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()


@asynccontextmanager
async def listening(
    *errors: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[TcpListener, Hall, Troubled]]:
    sock = Troubled(socket.AF_INET, socket.SOCK_STREAM)
    sock.errors = list(errors)
    sock.bind(("127.0.0.1", 0))
    hall = Hall()
    reserve = DescriptorReserve(Descriptors())
    listener = TcpListener(
        [sock],
        hall,
        reserve=reserve,
        tls=None if tls is None else lambda: tls,
        backlog=100,
    )
    await listener.start_serving()
    try:
        yield listener, hall, sock
    finally:
        listener.close()
        for talk in hall.talks:
            if talk.made:
                talk.transport.abort()
            await talk.lost
        await listener.wait_closed()


async def echoes(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a new client is served; False if its connection is closed."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"hello")
        return await reader.read(100) == b"hello"
    except ConnectionError:
        return False
    finally:
        writer.close()


@both_loops
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_a_descriptor_a_connection_takes_the_spare_one(
    loop_factory: LoopFactory, number: int
) -> None:
    """The acceptor learns that descriptors are scarce and may close another connection."""

    async def main() -> None:
        async with listening(number) as (listener, hall, _):
            assert await echoes(listener.port)
            assert await echoes(listener.port)
            assert hall.scarce == [True, False]

    run(loop_factory, main)


@both_loops
def test_without_a_descriptor_an_unwanted_connection_is_closed(loop_factory: LoopFactory) -> None:
    """A connection left in the backlog would wait for its timeout and keep waking the loop."""

    async def main() -> None:
        async with listening(errno.EMFILE) as (listener, hall, _):
            hall.accepts = False
            assert not await echoes(listener.port)
            hall.accepts = True
            assert await echoes(listener.port)

    run(loop_factory, main)


@both_loops
@pytest.mark.parametrize(
    "errors",
    [
        [errno.ENOBUFS],
        [errno.ENOMEM],
        [errno.EMFILE, errno.EMFILE],  # another thread took the descriptor that the spare one left
        [errno.EINVAL, errno.EBADF],
    ],
    ids=lambda numbers: " ".join(errno.errorcode[number] for number in numbers),
)
def test_what_the_system_refuses_is_tried_again_after_a_while(
    loop_factory: LoopFactory, errors: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """No error ends accepting or makes it spin, and one line a minute is logged."""

    async def main() -> None:
        async with listening(*errors) as (listener, _, sock):
            assert await echoes(listener.port)
            sock.errors += [errno.ENOBUFS] * 2
            assert await echoes(listener.port)
            assert not sock.errors

    with caplog.at_level(logging.WARNING, "aiokq.connection"):
        run(loop_factory, main)
    (line,) = [r.getMessage() for r in caplog.records]
    assert line.startswith("cannot accept connections: port=")


@both_loops
def test_a_client_that_was_gone_before_it_was_accepted_delays_nobody(
    loop_factory: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """On Linux accept() returns pending network errors of the new connection."""

    async def main() -> None:
        errors = [errno.ECONNABORTED, errno.EPROTO, errno.EHOSTUNREACH, errno.EPERM]
        async with listening(*errors) as (listener, hall, _):
            assert await echoes(listener.port)
            assert hall.scarce == [False]

    run(loop_factory, main)
    assert not caplog.records


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Limit this process to `count` more descriptors while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filled: list[int] = []
    try:
        highest = max(int(name) for name in os.listdir("/dev/fd"))
        while (number := os.open(os.devnull, os.O_RDONLY)) < highest:  # fill the gaps
            filled.append(number)
        filled.append(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (number + 1 + count, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in filled:
            os.close(number)


@both_loops
def test_with_no_descriptor_at_all_connections_are_refused_at_once(
    loop_factory: LoopFactory,
) -> None:
    """Other code in the process has taken every descriptor, including the broker's reserve."""

    async def main() -> None:
        async with listening() as (listener, hall, _):
            hall.accepts = False
            clients = [socket.socket() for _ in range(5)]
            for client in clients:
                client.settimeout(10)
            with descriptors_left(0):
                with pytest.raises(OSError, match="Too many open files"):
                    os.open(os.devnull, os.O_RDONLY)
                for client in clients:
                    client.connect(("127.0.0.1", listener.port))
                    assert await asyncio.to_thread(client.recv, 1) == b""
            for client in clients:
                client.close()
            assert hall.scarce == [True] * 5
            hall.accepts = True
            assert await echoes(listener.port)

    run(loop_factory, main)


@both_loops
def test_a_client_that_does_not_finish_its_handshake_is_reported_lost(
    loop_factory: LoopFactory,
) -> None:
    """The acceptor has counted the connection, but `connection_made` is never called for it."""

    async def main() -> None:
        async with listening(tls=server_tls()) as (listener, hall, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
            (talk,) = hall.talks
            assert await talk.lost is not None
            assert not talk.made
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", listener.port, ssl=client_tls()
            )
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()

    run(loop_factory, main)


@both_loops
def test_closing_ends_handshakes_that_are_under_way(loop_factory: LoopFactory) -> None:
    """Closing does not wait for a client that sends nothing."""

    async def main() -> None:
        async with listening(tls=server_tls()) as (listener, hall, _):
            client = socket.create_connection(("127.0.0.1", listener.port), 10)
            while not hall.talks:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            listener.close()
            await hall.talks[0].lost
            assert not hall.talks[0].made
            assert await asyncio.to_thread(client.recv, 1) == b""
            client.close()

    run(loop_factory, main)


@both_loops
@pytest.mark.parametrize("host", [None, "localhost", "127.0.0.1"])
def test_all_addresses_of_a_host_have_one_port(loop_factory: LoopFactory, host: str | None) -> None:
    """This holds for port 0 as well."""

    async def main() -> None:
        hall = Hall()
        listener = await TcpNetwork().listen(hall, host, 0)
        assert await echoes(listener.port)
        if host is None and socket.has_ipv6 and _ipv6_works():
            assert await echoes(listener.port, "::1")
        listener.close()
        for talk in hall.talks:
            talk.transport.abort()
            await talk.lost
        await listener.wait_closed()

    run(loop_factory, main)


def _ipv6_works() -> bool:
    with socket.socket(socket.AF_INET6) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            return False
    return True


@both_loops
def test_a_port_that_is_taken_is_an_error_and_leaves_no_socket(loop_factory: LoopFactory) -> None:
    """No socket is left even if the first of two addresses was free."""

    async def main() -> None:
        (taken,) = await bind("127.0.0.1", 0, SocketOptions())
        taken.listen()
        port = taken.getsockname()[1]
        for host in ("127.0.0.1", None):
            with pytest.raises(OSError, match="in use") as refused:
                await TcpNetwork().listen(Hall(), host, port)
            assert refused.value.errno == errno.EADDRINUSE
        for host in ("no-such-host.invalid", "a..b", "a" * 64, "a\0b"):
            with pytest.raises(socket.gaierror):
                await TcpNetwork().listen(Hall(), host, port)
            with pytest.raises(socket.gaierror):
                await TcpNetwork().resolve(host, port)
        taken.close()

    run(loop_factory, main)


def options_of(options: SocketOptions, option: int) -> int:
    async def main() -> int:
        (sock,) = await bind("127.0.0.1", 0, options)
        with sock:
            sock.listen()
            with socket.create_connection(sock.getsockname()):
                accepted, _ = sock.accept()
                with accepted:
                    return accepted.getsockopt(socket.SOL_SOCKET, option)

    return asyncio.run(main())


@pytest.mark.parametrize("option", [socket.SO_SNDBUF, socket.SO_RCVBUF])
def test_connections_have_the_buffers_that_the_listener_was_given(option):
    """socket.send.buffer.bytes and socket.receive.buffer.bytes; Linux doubles the number."""
    small, large = (
        options_of(SocketOptions(send_buffer=size, receive_buffer=size), option)
        for size in (16384, 65536)
    )
    assert small >= 16384
    assert large == 4 * small


def test_a_listener_has_the_backlog_that_it_was_given():
    """socket.listen.backlog.size."""
    asked = []

    class Socket(socket.socket):
        def listen(self, backlog: int = 0) -> None:
            asked.append(backlog)
            super().listen(backlog)

    async def main() -> None:
        sock = Socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.bind(("127.0.0.1", 0))
        reserve = DescriptorReserve(Descriptors())
        listener = TcpListener([sock], Hall(), reserve=reserve, backlog=7)
        await listener.start_serving()
        listener.close()
        await listener.wait_closed()

    asyncio.run(main())
    assert asked == [7]


@both_loops
def test_connections_wait_while_clients_use_the_loop(loop_factory: LoopFactory) -> None:
    """A storm of connections must not take the time of the clients that are connected."""

    async def main() -> None:
        async with listening() as (listener, hall, _):
            hall.accepts = False
            # The time in which other programs use the processor does not count.
            hall.strangers = Strangers(hall.turn, time.thread_time)
            clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(60)]
            used, accepted = time.thread_time(), []
            while time.thread_time() < used + 0.02:
                hall.turn.spend(1)  # a request
                until = time.thread_time() + 0.001
                while time.thread_time() < until:
                    pass
                await asyncio.sleep(0)
                accepted.append(len(hall.scarce))
            assert 1 < accepted[-1] < 55
            for client in clients:
                client.close()
            # Nobody else wants the loop any more.
            while len(hall.scarce) < len(clients):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0)

    run(loop_factory, main)


@both_loops
def test_accepted_sockets_have_the_options_of_the_listening_one(loop_factory: LoopFactory) -> None:
    """Small responses leave at once, and a peer whose machine is gone is noticed."""

    async def main() -> None:
        async with listening() as (listener, hall, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            sock = hall.talks[0].transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            writer.close()

    run(loop_factory, main)


@both_loops
def test_a_listener_that_closes_ends_a_connection_without_a_transport(
    loop_factory: LoopFactory,
) -> None:
    """It is reported lost, so that the acceptor takes it off its counts."""

    async def main() -> None:
        async with listening() as (listener, hall, sock):
            client = socket.create_connection(("127.0.0.1", listener.port), 10)
            while not hall.talks:
                listener._ready(sock)
            listener.close()
            await hall.talks[0].lost
            assert await asyncio.to_thread(client.recv, 1) == b""
            client.close()

    run(loop_factory, main)


@both_loops
def test_connections_of_one_address_do_not_delay_those_of_another(
    loop_factory: LoopFactory,
) -> None:
    """They are accepted as fast as the system queues them, and wait to begin.

    Regression: they waited in the system's queue, in which all addresses are behind each other.
    """

    async def main() -> None:
        async with listening() as (listener, hall, _):
            hall.accepts = False
            begun: list[str] = []
            accept = hall.accept

            def note(peer: Address, *, make_room: Callable[[], bool] | None) -> Talk | None:
                begun.append(peer.host)
                return accept(Address("127.0.0.1", peer.port), make_room=make_room)

            hall.accept = note  # type: ignore[method-assign]
            clients = [connected(listener.port) for _ in range(60)]
            other = connected(listener.port, "127.0.0.2")
            for _ in range(2000):
                hall.turn.spend(1)  # a request
                until = time.perf_counter() + 0.0005
                while time.perf_counter() < until:
                    pass
                await asyncio.sleep(0)
                if "127.0.0.2" in begun:
                    break
            assert begun.count("127.0.0.1") < 30
            listener.close()
            for client in (*clients, other):
                client.settimeout(10)
                try:
                    assert await asyncio.to_thread(client.recv, 1) == b""
                except ConnectionResetError:
                    pass
                client.close()
            assert len(begun) < 61

    run(loop_factory, main)


@both_loops
def test_a_forked_child_closes_the_connections_that_wait_to_begin(
    loop_factory: LoopFactory,
) -> None:
    """In a child, the loop of the parent may go on; a connection that is closed does not begin."""

    async def main() -> None:
        async with listening() as (listener, hall, _):
            client = None
            while not listener._arrived.sockets:
                hall.turn.spend(1)  # a request
                if client is None:
                    hall.strangers.do(lambda: time.sleep(0.01), "127.0.0.1")  # others have to wait
                    client = connected(listener.port)
                elif hall.talks and hall.talks[0].made:  # on a busy machine, the wait was over
                    hall.talks.pop().transport.abort()
                    client.close()
                    client = None
                await asyncio.sleep(0)
            assert client is not None
            listener._arrived.forget()
            assert await asyncio.to_thread(client.recv, 1) == b""
            for _ in range(100):
                await asyncio.sleep(0.001)
            assert not hall.talks
            client.close()

    run(loop_factory, main)


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0))


@both_loops
def test_too_many_connections_of_one_address_are_refused(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as may not wait to begin."""
    monkeypatch.setattr(strangers_module, "MOST_BEGINNINGS", 20)

    async def main() -> None:
        async with listening() as (listener, hall, _):
            hall.accepts = False
            clients = [connected(listener.port) for _ in range(60)]
            while len(hall.scarce) + hall.refusals < 60:
                hall.turn.spend(1)
                until = time.perf_counter() + 0.0005
                while time.perf_counter() < until:
                    pass
                await asyncio.sleep(0)
            assert hall.refusals > 10
            assert len(hall.scarce) >= 20
            for client in clients:
                client.close()

    run(loop_factory, main)
