"""Clients that mean no good, in a process of their own, and a broker with all kinds of listeners.

    python -m tests.peers.hostile_clients KIND PORTS COUNT RATE [yields]

The process prints "ready" when it has begun, and its counts as JSON when its standard input ends.

`stopped` keeps COUNT connections that have stopped at some step, or go on a byte at a time; those
that the broker closes connect again, except those that do not read. `drips` sends single bytes of
endless requests, RATE a second, on COUNT connections in turn. `questions` keeps COUNT connections
that ask as fast as they are answered. `guesses` and `scram-guesses` log in with wrong passwords
RATE times a second. `handshakes` completes RATE TLS handshakes a second; 0 for as many as possible.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aiokq import wire
from tests.peers.broker_process import BrokerProcess
from tests.peers.memory import peak_bytes, resident_bytes
from tests.peers.ports import free_ports
from tests.peers.tls_messages import (
    CHANGE_CIPHER_SPEC,
    certificate_announced,
    first_message,
    message_start,
    record,
    retry_wanted,
)

__all__ = ["LISTENERS", "PASSWORD", "SecuredBroker", "connections_to", "secured_broker", "storm"]

LISTENERS: Final = {
    "OPEN": "PLAINTEXT",
    "LOGIN": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "BOTH": "SASL_SSL",
    "MUTUAL": "SSL",
}
PASSWORD: Final = "alice-secret"

PROPERTIES: Final = """
node.id=1
process.roles=broker,controller
listeners={listeners}
listener.security.protocol.map={protocols}
inter.broker.listener.name=OPEN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
{logins}
ssl.keystore.type=PEM
ssl.keystore.location={store}
listener.name.mutual.ssl.client.auth=required
listener.name.mutual.ssl.truststore.type=PEM
listener.name.mutual.ssl.truststore.location={trusted}
num.partitions=1
"""
LOGINS: Final = """
listener.name.{name}.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required \\
  user_alice="{password}";
listener.name.{name}.scram-sha-256.sasl.jaas.config={modules}.scram.ScramLoginModule required;
"""
MODULES: Final = "org.apache.kafka.common.security"

TICK: Final = 0.01
PAUSE: Final = 1.0
"""Seconds between two bytes of a slow client, and until a client that was closed returns."""

THREADS: Final = 16
"""Number of TLS handshakes that are under way at a time."""


# --- the broker


class SecuredBroker(BrokerProcess):
    """A broker process with a listener of each kind.

    Attributes:
        ports: the port of each listener.
        authority: file with the certificate that signed the broker's.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        from tests.peers.pki import Pki

        names = list(LISTENERS)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        pki = Pki()
        self.authority = directory / "authority.pem"
        self.authority.write_text(pki.trusted)
        text = PROPERTIES.format(
            listeners=",".join(f"{name}://127.0.0.1:{self.ports[name]}" for name in names),
            protocols=",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            logins="".join(
                LOGINS.format(name=name.lower(), modules=MODULES, password=PASSWORD)
                for name in ("LOGIN", "BOTH")
            ),
            store=pki.issue().write(directory, "node"),
            trusted=self.authority,
        )
        config = directory / "server.properties"
        config.write_text(text)
        super().__init__(
            directory / "data", "--config", str(config), *arguments, port=self.ports["OPEN"]
        )

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def client_settings(self, listener: str) -> dict[str, object]:
        """Return the settings of a client, which logs in as alice."""
        protocol = LISTENERS[listener]
        found: dict[str, object] = {
            "bootstrap_servers": self.address(listener),
            "security_protocol": protocol,
        }
        if protocol.startswith("SASL"):
            found |= {
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "alice",
                "sasl_plain_password": PASSWORD,
            }
        if protocol.endswith("SSL"):
            found["ssl_cafile"] = str(self.authority)
        return found

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def sockets(self) -> int:
        """The number of open sockets."""
        directory, count = f"/proc/{self.pid}/fd", 0
        for descriptor in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                count += os.readlink(f"{directory}/{descriptor}").startswith("socket:")
        return count

    @property
    def peak_bytes(self) -> int:
        """The largest resident memory so far."""
        return peak_bytes(self.pid)

    @property
    def resident_bytes(self) -> int:
        """The resident memory."""
        return resident_bytes(self.pid)


@contextmanager
def secured_broker(directory: Path, *arguments: str) -> Iterator[SecuredBroker]:
    """Run a broker with a listener of each kind while the block runs."""
    broker = SecuredBroker(directory, *arguments)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def connections_to(
    port: int, count: int, start: bytes = b"", *, over_tls: bool = False
) -> list[socket.socket]:
    """Open connections that send some bytes and stop.

    Args:
        over_tls: whether the TLS handshake is complete before, and the bytes are sent over TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opened = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), 10)
        if over_tls:
            one = context.wrap_socket(one)
        one.setblocking(False)
        _send(one, start)
        opened.append(one)
    return opened


@contextmanager
def storm(
    kind: str,
    broker: SecuredBroker,
    *,
    count: int = 1000,
    rate: float = 1000.0,
    yields: bool = False,
) -> Iterator[Counter[str]]:
    """Let hostile clients go on while the block runs; the counts are filled at its end.

    Args:
        count: how many at a time, or in all; depends on the kind.
        rate: attacks a second, for the kinds that have a rate.
        yields: whether they use only the CPU time that no other process wants.
    """
    command = [sys.executable, "-m", "tests.peers.hostile_clients", kind]
    process = subprocess.Popen(
        [*command, json.dumps(broker.ports), str(count), str(rate), *(["yields"] * yields)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    counts: Counter[str] = Counter()
    try:
        assert process.stdout.readline() == "ready\n"
        yield counts
    finally:
        process.stdin.close()
        text = process.stdout.read()
        process.stdout.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        counts.update(json.loads(text or "{}"))


# --- what hostile clients send


def request(message: wire.Request[wire.Response], version: int) -> bytes:
    """Return a request with its size."""
    return b"".join(
        map(bytes, wire.encode_request(message, version=version, correlation_id=1, client_id="x"))
    )


HANDSHAKE: Final = request(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
SCRAM_HANDSHAKE: Final = request(wire.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
GUESS: Final = request(wire.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
SCRAM_FIRST: Final = request(wire.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2)
VERSIONS: Final = request(wire.ApiVersionsRequest(), 3)


def steps() -> dict[str, list[tuple[str, bytes]]]:
    """Return, for each listener, the steps at which a client stops: a name and what it has sent."""
    hello = first_message()
    second = CHANGE_CIPHER_SPEC + record(message_start(1, 130_000))
    half = struct.pack(">ihh", 512 * 1024, 36, 2) + bytes(256 * 1024)
    return {
        "OPEN": [
            ("nothing sent", b""),
            ("half a size", b"\0\0"),
            ("half a request", struct.pack(">ihh", 1024 * 1024, 0, 9) + bytes(300 * 1024)),
            ("answers that are not read", VERSIONS * 200),
        ],
        "LOGIN": [
            ("nothing sent", b""),
            ("a size", struct.pack(">i", 512 * 1024)),
            ("after ApiVersions", VERSIONS),
            ("after SaslHandshake", HANDSHAKE),
            ("within a token", HANDSHAKE + half),
            ("within a login by SCRAM", SCRAM_HANDSHAKE + SCRAM_FIRST),
        ],
        "TLS": [
            ("nothing sent", b""),
            ("half of the first message", hello[: len(hello) // 2]),
            ("first message", hello),
            ("much behind the first message", hello + bytes(300 * 1024)),
            ("a large second ClientHello announced", retry_wanted() + second),
        ],
        "MUTUAL": [
            ("first message", hello),
            ("a large Certificate announced", certificate_announced()),
        ],
    }


ENDLESS: Final = struct.pack(">ihhi", 100_000, 18, 3, 1) + bytes(100_000)
"""A request that a slow client sends byte by byte."""

GARBAGE: Final = (struct.pack(">i", 2**31 - 1), struct.pack(">i", -1), b"GET / HTTP/1.1\r\n\r\n")


def _send(sock: socket.socket, data: bytes) -> int:
    """Send what the system takes; return the number of bytes."""
    try:
        return sock.send(data) if data else 0
    except OSError:
        return 0


class Stopper:
    """A connection that sends its start, and then nothing, or a byte from time to time."""

    def __init__(self, port: int, start: bytes, *, slow: bool, reads: bool) -> None:
        self.port = port
        self.start = start
        self.slow = slow
        self.reads = reads
        self.connections = 0
        self.sock: socket.socket | None = None
        self.left = b""

    def go_on(self) -> None:
        """Connect if the broker has closed the connection; send what fits."""
        if self.sock is None:
            try:
                self.sock = socket.create_connection(("127.0.0.1", self.port), 5)
            except OSError:
                return
            self.sock.setblocking(False)
            self.left = self.start
            self.connections += 1
        if self.slow:
            self.left = self.left[_send(self.sock, self.left[:1]) :]
        else:
            self.left = self.left[_send(self.sock, self.left) :]
        if self.reads and self._is_closed(self.sock):
            self.sock.close()
            self.sock = None

    @staticmethod
    def _is_closed(sock: socket.socket) -> bool:
        try:
            return not sock.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            return True


async def stopped(ports: dict[str, int], count: int, rate: float, ready: Callable[[], None],
                  over: asyncio.Future[str]) -> Counter[str]:  # fmt: skip
    starts = [
        (ports[name], start, False, "not read" not in step)
        for name, found in steps().items()
        for step, start in found
    ]
    starts += [(ports[name], ENDLESS, True, True) for name in ("OPEN", "LOGIN")]
    starts += [(ports["LOGIN"], one, False, True) for one in GARBAGE]
    clients = []
    for number in range(count):
        port, start, slow, reads = starts[number % len(starts)]
        clients.append(Stopper(port, start, slow=slow, reads=reads))
    for client in clients:
        client.go_on()
    ready()
    while not over.done():
        began = time.monotonic()
        for n, client in enumerate(clients):
            client.go_on()
            if n % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.wait([over], timeout=max(0.0, PAUSE - (time.monotonic() - began)))
    return Counter(connections=sum(client.connections for client in clients))


UNKNOWN_VERSION: Final = struct.pack(">ihhihB", 11, 18, 99, 1, -1, 0)
"""A request ApiVersions of a version that no broker knows; a client may repeat it."""


def _stranger(ports: dict[str, int], start: bytes) -> socket.socket | None:
    """Return a connection that has sent its start; None if it cannot be opened."""
    try:
        sock = socket.create_connection(("127.0.0.1", ports["LOGIN"]), 5)
    except OSError:
        return None
    sock.setblocking(False)
    _send(sock, start)
    return sock


async def drips(ports: dict[str, int], count: int, rate: float, ready: Callable[[], None],
                over: asyncio.Future[str]) -> Counter[str]:  # fmt: skip
    clients = [_stranger(ports, ENDLESS[:4]) for _ in range(count)]
    ready()
    counts = Counter(connections=count)
    began = time.monotonic()
    while not over.done():
        due = int((time.monotonic() - began) * rate)
        for _ in range(min(due - counts["bytes"], 1000)):
            number = counts["bytes"] % count
            counts["bytes"] += 1
            client = clients[number]
            try:
                if client is not None:
                    client.send(b"\0")
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            clients[number] = _stranger(ports, ENDLESS[:4])
            counts["connections"] += 1
        counts["bytes"] = max(counts["bytes"], due - 2000)
        await asyncio.sleep(0.001)
    return counts


class Questioner(asyncio.Protocol):
    """A connection that sends four requests, and two more whenever answers arrive."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.counts["connections"] += 1
        transport.write(UNKNOWN_VERSION * 4)

    def data_received(self, data: bytes) -> None:
        self.counts["answers"] += 1
        self.transport.write(UNKNOWN_VERSION * 2)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def questions(ports: dict[str, int], count: int, ready: Callable[[], None],
                    over: asyncio.Future[str]) -> Counter[str]:  # fmt: skip
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()

    async def ask() -> None:
        while True:
            try:
                _, client = await loop.create_connection(
                    lambda: Questioner(counts), "127.0.0.1", ports["LOGIN"]
                )
            except OSError:
                await asyncio.sleep(PAUSE)
            else:
                await client.lost.wait()

    tasks = [asyncio.create_task(ask()) for _ in range(count)]
    ready()
    await over
    for task in tasks:
        task.cancel()
    return counts


class Guess(asyncio.Protocol):
    """A login with a wrong password."""

    def __init__(self, counts: Counter[str], *, uses_scram: bool) -> None:
        self.counts = counts
        self.uses_scram = uses_scram
        self.received = b""
        self.answers = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.counts["begun"] += 1
        transport.write(SCRAM_HANDSHAKE + SCRAM_FIRST if self.uses_scram else HANDSHAKE + GUESS)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            end = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < end:
                return
            frame, self.received = self.received[4:end], self.received[end:]
            self.answers += 1
            if self.uses_scram and self.answers == 2:
                _, answer = wire.decode_response(wire.SaslAuthenticateResponse, frame, 2)
                nonce = bytes(answer.auth_bytes).partition(b"r=")[2].partition(b",")[0]
                proof = base64.b64encode(bytes(32))
                final = b"c=biws,r=" + nonce + b",p=" + proof
                self.transport.write(request(wire.SaslAuthenticateRequest(auth_bytes=final), 2))

    def connection_lost(self, exc: Exception | None) -> None:
        self.counts["refused" if self.answers == 2 + self.uses_scram else "lost"] += 1


async def guesses(ports: dict[str, int], rate: float, ready: Callable[[], None],
                  over: asyncio.Future[str], *, uses_scram: bool) -> Counter[str]:  # fmt: skip
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()
    tasks: set[asyncio.Task[object]] = set()
    ready()
    began = loop.time()
    made = 0

    async def guess() -> None:
        with contextlib.suppress(OSError):
            await loop.create_connection(
                lambda: Guess(counts, uses_scram=uses_scram), "127.0.0.1", ports["LOGIN"]
            )

    while not over.done():
        due = int((loop.time() - began) * rate)
        for _ in range(min(due - made, 100)):
            task: asyncio.Task[object] = asyncio.create_task(guess())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            made += 1
        made = max(made, due - 200)  # what the machine cannot do is not made up for
        await asyncio.wait([over], timeout=TICK)
    await asyncio.sleep(0.5)
    return counts


async def handshakes(ports: dict[str, int], rate: float, ready: Callable[[], None],
                     over: asyncio.Future[str]) -> Counter[str]:  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    ended = threading.Event()
    made = [0] * THREADS

    def connect(number: int) -> None:
        next_at = time.monotonic()
        while not ended.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", ports["TLS"]), 10) as plain,
                context.wrap_socket(plain),
            ):
                made[number] += 1
            if rate:
                next_at += THREADS / rate
                ended.wait(max(next_at - time.monotonic(), 0.0))

    threads = [threading.Thread(target=connect, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    ready()
    await over
    seconds = time.monotonic() - began
    ended.set()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    return Counter(handshakes=sum(made), milliseconds=int(seconds * 1000))


def _limit_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def main(kind: str, ports: dict[str, int], count: int, rate: float) -> None:
    over: asyncio.Future[str] = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))

    def ready() -> None:
        print("ready", flush=True)

    if kind == "stopped":
        counts = await stopped(ports, count, rate, ready, over)
    elif kind == "drips":
        counts = await drips(ports, count, rate, ready, over)
    elif kind == "questions":
        counts = await questions(ports, count, ready, over)
    elif kind == "handshakes":
        counts = await handshakes(ports, rate, ready, over)
    else:
        counts = await guesses(ports, rate, ready, over, uses_scram=kind == "scram-guesses")
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    _limit_descriptors()
    if "yields" in sys.argv[5:]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
