"""Peers that are not a usable broker: a web server, a silent peer, one that resets, one too old.

Each is a context manager that yields "host:port" and serves from a thread of its own, so that
clients on the caller's loop and commands in other processes can both connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.peers.scripted import ScriptedCluster, ScriptedTopic

Answer = Callable[[socket.socket], None]
"""Handles a connection, which is closed afterwards."""


@contextmanager
def listener(answer: Answer) -> Iterator[str]:
    """Accept connections and pass each to `answer`, in a thread of its own."""
    with contextlib.ExitStack() as open_sockets:
        server = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        accepted: list[socket.socket] = []

        def treat(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                answer(connection)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # the listener was shut down below
                    return
                accepted.append(connection)
                threading.Thread(target=treat, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for connection in accepted:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def web_server() -> contextlib.AbstractContextManager[str]:
    """Answers everything with an HTTP error, as web servers do for other protocols."""

    def answer(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    return listener(answer)


def another_protocol() -> contextlib.AbstractContextManager[str]:
    """Sends a greeting first, as SMTP and SSH servers do."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
        while connection.recv(1000):
            pass

    return listener(answer)


def silence() -> contextlib.AbstractContextManager[str]:
    """Reads everything and never responds."""

    def answer(connection: socket.socket) -> None:
        while connection.recv(1000):
            pass

    return listener(answer)


def resetter() -> contextlib.AbstractContextManager[str]:
    """Resets each connection after the first request."""

    def answer(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return listener(answer)


def kafka_0_9() -> contextlib.AbstractContextManager[str]:
    """Closes the connection on an unknown API; ApiVersions came with 0.10."""

    def answer(connection: socket.socket) -> None:
        connection.recv(1000)

    return listener(answer)


ONLY_0_10 = {0: (0, 2), 1: (0, 2), 2: (0, 0), 3: (0, 1), 18: (0, 0)}
"""Version ranges of Kafka 0.10.0, for the APIs with which a client starts."""

ONLY_KAFKA_9 = {0: (90, 99), 1: (90, 99), 2: (90, 99), 3: (90, 99), 18: (0, 4)}
"""Version ranges of a broker that has dropped every current version."""


@contextmanager
def scripted_kafka(versions: dict[int, tuple[int, int]]) -> Iterator[str]:
    """A node on a loop of its own that serves Metadata and has only these versions."""
    started: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with ScriptedCluster() as kafka:
            kafka.topics["orders"] = ScriptedTopic(leaders=[1])
            kafka[1].versions = versions
            kafka[1].names_range = False
            started.append(kafka.bootstrap_servers)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
