"""TLS of aiokq beside the loop's own TLS and plain TCP, between two processes over loopback.

    python -m benchmarks.micro.tls [speed|memory|handshakes ...] [--loop asyncio|uvloop]

`speed`: frames of 1 MB in each direction, and round trips of 100 bytes. CPU time is that of the
client's process plus that of the server's. `memory`: resident memory that a server needs for each
of 1,000 connections that have stopped at a step of the handshake or after it. `handshakes`:
complete handshakes per second of one server.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

from aiokq.connection.frame_pool import FramePool
from aiokq.connection.framing import FrameReader
from aiokq.connection.listener import TcpListener, bind
from aiokq.connection.network import TcpNetwork
from aiokq.connection.strangers import Strangers
from aiokq.connection.transport import FrameTransport
from aiokq.connection.turn import Turn
from aiokq.core.descriptor_reserve import DescriptorReserve
from aiokq.core.descriptors import Descriptors
from aiokq.core.environment import Address, SocketOptions
from aiokq.core.errors import KafkaError
from tests.peers.pki import Pki

MB = 1_000_000
FRAMES = 1_500
ROUND_TRIPS = 10_000
CONNECTIONS = 1_000
HANDSHAKES = 1_000
KINDS = ("plain", "loop", "aiokq")
STEPS = ("connected", "half of the first message", "first message sent", "handshake done")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class End:
    """One end of a connection.

    The server's end answers `get N` with N frames of 1 MB, and any other frame below 1,000 bytes
    with its first 100 bytes.
    """

    def __init__(self, answers: bool, pool: FramePool, scratch: bytearray | None) -> None:
        self._answers = answers
        self.frames = 0
        self.wanted = 0
        self.arrived = asyncio.Event()
        self.transport = FrameTransport(self, FrameReader(pool=pool, scratch=scratch))
        self._block = bytes(MB)

    def connected(self) -> None:
        pass

    def bytes_received(self) -> None:
        pass

    def frames_received(self, frames: list[memoryview]) -> None:
        self.frames += len(frames)
        for frame in frames:
            if self._answers and bytes(frame[:4]) == b"get ":
                self._left = int(bytes(frame[4:]))
                self._send()
            elif self._answers and (len(frame) < 1000 or frame[0] == 1):
                self.send(bytes(frame[:100]))
        if self.frames >= self.wanted:
            self.arrived.set()

    def _send(self) -> None:
        while self._left and not self.transport.writing_paused:
            self.send(self._block)
            self._left -= 1
        if self._left:
            asyncio.get_running_loop().call_soon(self._send)

    def send(self, payload: bytes) -> None:
        size = len(payload).to_bytes(4, "big")
        self.transport.write([size, payload], 4 + len(payload))

    async def receive(self, frames: int) -> None:
        self.wanted = self.frames + frames
        self.arrived.clear()
        await self.arrived.wait()

    def invalid_received(self, error: KafkaError) -> None:
        raise error

    def lost(self, error: KafkaError) -> None:
        self.arrived.set()


class Acceptor:
    leaving = 0

    def __init__(self) -> None:
        self._pool = FramePool()
        self._scratch = bytearray(65536)
        self.ends: list[End] = []
        self.strangers = Strangers(Turn(), time.monotonic)

    def accept(self, peer: Address, *, make_room: object) -> FrameTransport:
        end = End(True, self._pool, self._scratch)
        self.ends.append(end)
        return end.transport

    def refused(self, peer: Address) -> None: ...

    def idle_since(self, behind: int) -> None:
        return None

    def make_room(self) -> bool:
        return False


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def serve(loop: str, kind: str, directory: str, pipe: Pipe) -> None:
    """Run the server: send its port, and answer with its CPU time and resident memory."""

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{directory}/node.pem")
        acceptor = Acceptor()
        if kind == "loop":
            server = await asyncio.get_running_loop().create_server(
                lambda: acceptor.accept(Address("", 0), make_room=None),
                "127.0.0.1",
                0,
                ssl=context,
                backlog=2000,
                ssl_handshake_timeout=600,
            )
            port = server.sockets[0].getsockname()[1]
        else:
            listener = TcpListener(
                await bind("127.0.0.1", 0, SocketOptions()),
                acceptor,
                reserve=DescriptorReserve(Descriptors()),
                tls=None if kind == "plain" else lambda: context,
                backlog=2000,
            )
            await listener.start_serving()
            port = listener.port
        pipe.send(port)
        asked: asyncio.Queue[str] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(pipe.fileno(), lambda: asked.put_nowait(pipe.recv()))
        while await asked.get() != "stop":
            gc.collect()
            pipe.send((time.process_time(), rss(), len(acceptor.ends)))
        os._exit(0)

    resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


class Served:
    def __init__(self, loop: str, kind: str, directory: str) -> None:
        self.pipe, theirs = get_context("spawn").Pipe()
        self._process = get_context("spawn").Process(
            target=serve, args=(loop, kind, directory, theirs)
        )
        self._process.start()
        self.port: int = self.pipe.recv()

    def look(self) -> tuple[float, int, int]:
        self.pipe.send("look")
        found: tuple[float, int, int] = self.pipe.recv()
        return found

    def stop(self) -> None:
        self.pipe.send("stop")
        self._process.join()


def client_context(directory: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=f"{directory}/ca.pem")


async def connect(kind: str, port: int, directory: str) -> End:
    end = End(False, FramePool(), None)
    context = None if kind == "plain" else client_context(directory)
    if kind == "loop":
        await asyncio.get_running_loop().create_connection(
            lambda: end.transport, "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
    else:
        await TcpNetwork().connect(
            lambda: end.transport,
            Address("127.0.0.1", port),
            ssl=context,
            server_hostname=None if context is None else "localhost",
        )
    return end


async def speed(loop: str, kind: str, directory: str) -> None:
    server = Served(loop, kind, directory)
    end = await connect(kind, server.port, directory)
    rows = []
    for what in ("receive", "receive", "send", "round trips"):
        wall, cpu, far = time.perf_counter(), time.process_time(), server.look()[0]
        if what == "receive":
            end.send(b"get %d" % FRAMES)
            await end.receive(FRAMES)
        elif what == "send":
            block = bytes(MB)
            for _ in range(FRAMES):
                end.send(block)
                await end.transport.drain()
            end.send(b"end")
            await end.receive(1)
        else:
            for _ in range(ROUND_TRIPS):
                end.send(b"x" * 100)
                await end.receive(1)
        wall = time.perf_counter() - wall
        rows.append((what, wall, time.process_time() - cpu, server.look()[0] - far))
    for what, wall, cpu, far in rows[1:]:
        if what == "round trips":
            unit = 1e6 / ROUND_TRIPS
            text = f"{wall * unit:7.1f} us, CPU {cpu * unit:6.1f} + {far * unit:6.1f} us"
        else:
            size = FRAMES * MB / 1e9
            text = f"{size * 1000 / wall:7.0f} MB/s, CPU {cpu / size:6.3f} + {far / size:6.3f} s/GB"
        print(f"{loop:8} {kind:6} {what:12} {text}", flush=True)
    end.transport.close()
    server.stop()


def memory(loop: str, directory: str) -> None:
    hello = _hello(directory)
    plain = None
    for kind in KINDS:
        for step in STEPS if kind != "plain" else STEPS[:1]:
            server = Served(loop, kind, directory)
            sockets: list[socket.socket] = []
            _one(step, server.port, hello, directory, sockets)  # imports, and shared buffers
            time.sleep(0.3)
            before = server.look()[1]
            for _ in range(CONNECTIONS):
                _one(step, server.port, hello, directory, sockets)
            time.sleep(1.5)
            _, after, connections = server.look()
            each = (after - before) / CONNECTIONS / 1024
            plain = each if plain is None else plain
            print(
                f"{loop:8} {kind:6} {step if kind != 'plain' else '':26} {each:7.1f} KiB, "
                f"{each - plain:7.1f} beyond plain ({connections} connections)",
                flush=True,
            )
            server.stop()
            for each_socket in sockets:
                each_socket.close()


def _one(step: str, port: int, hello: bytes, directory: str, sockets: list[socket.socket]) -> None:
    sock = socket.create_connection(("127.0.0.1", port))
    sockets.append(sock)
    if step == STEPS[1]:
        sock.sendall(hello[: len(hello) // 2])
    elif step == STEPS[2]:
        sock.sendall(hello)
    elif step == STEPS[3]:
        sockets[-1] = client_context(directory).wrap_socket(sock, server_hostname="localhost")


def _hello(directory: str) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = client_context(directory).wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def handshakes(loop: str, directory: str) -> None:
    context = client_context(directory)
    for kind in KINDS[1:]:
        server = Served(loop, kind, directory)
        wall, far = time.perf_counter(), server.look()[0]
        for _ in range(HANDSHAKES):
            sock = socket.create_connection(("127.0.0.1", server.port))
            context.wrap_socket(sock, server_hostname="localhost").close()
        wall, far = time.perf_counter() - wall, server.look()[0] - far
        print(
            f"{loop:8} {kind:6} {HANDSHAKES / wall:6.0f} handshakes/s, "
            f"CPU of the server {far / HANDSHAKES * 1000:.2f} ms each",
            flush=True,
        )
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["speed", "memory", "handshakes"])
    parser.add_argument("--loop", choices=list(LOOPS), action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--rsa", action="store_true", help="an RSA key instead of P-256")
    arguments = parser.parse_args()
    pki = Pki()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "ca.pem").write_text(pki.trusted)
        pki.issue(uses_rsa=arguments.rsa).write(Path(directory), "node")
        for loop in arguments.loop or LOOPS:
            if "speed" in arguments.parts:
                for kind in arguments.kind or KINDS:
                    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                        runner.run(speed(loop, kind, directory))
            if "memory" in arguments.parts:
                memory(loop, directory)
            if "handshakes" in arguments.parts:
                handshakes(loop, directory)


if __name__ == "__main__":
    main()
