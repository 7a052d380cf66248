"""Hostile clients before a login: frames, fuzzing, stalled logins, and guesses of passwords."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from contextlib import suppress

import pytest

from aiokq import Cluster, EmbeddedCluster, wire
from tests.peers.memory import resident_bytes

USERS = {"alice": "alice-secret"}
SETTINGS = {"connection.failed.authentication.delay.ms": "100"}


def request(message, version: int, correlation_id: int = 1) -> bytes:
    fragments = wire.encode_request(
        message, version=version, correlation_id=correlation_id, client_id="x"
    )
    return b"".join(map(bytes, fragments))


def sized(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def address(kafka: EmbeddedCluster) -> tuple[str, int]:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    return host, int(port)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


HANDSHAKE = request(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
GUESS = request(wire.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)


async def ended(kafka: EmbeddedCluster, data: bytes, timeout: float = 5.0) -> tuple[bytes, float]:
    """Send bytes; return what is received until the connection ends, and the seconds."""
    reader, writer = await asyncio.open_connection(*address(kafka))
    began = time.monotonic()
    try:
        writer.write(data)
        async with asyncio.timeout(timeout):
            try:
                received = await reader.read()
            except ConnectionResetError:
                received = b""
        return received, time.monotonic() - began
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "is_delayed"),
    [
        (sized(b"x" * 10), False),
        (sized(b"\0\3\0\x0c\0\0\0\1\0\0"), False),  # Metadata before the login
        (sized(b""), False),
        (struct.pack(">i", -1), True),
        (struct.pack(">i", 524_289), True),
        (struct.pack(">i", 2**31 - 1), True),
        (HANDSHAKE + struct.pack(">i", 524_289), True),
    ],
)
async def test_frames_that_are_no_login_end_the_connection(data: bytes, is_delayed: bool) -> None:
    """As in Apache Kafka: at once, or after the delay of a failed login if the size is wrong."""
    async with EmbeddedCluster(users=USERS, settings=SETTINGS) as kafka:
        received, seconds = await ended(kafka, data)
        assert len(received) == (0 if not data.startswith(HANDSHAKE) else len(received))
        assert (seconds >= 0.1) is is_delayed


async def test_a_wrong_password_is_answered_after_the_delay_and_nothing_else_is_read() -> None:
    """Requests behind the guess are dropped."""
    async with EmbeddedCluster(users=USERS, settings=SETTINGS) as kafka:
        received, seconds = await ended(kafka, HANDSHAKE + GUESS + HANDSHAKE * 100)
        assert seconds >= 0.1
        handshake_size = struct.unpack(">i", received[:4])[0] + 4
        (size,) = struct.unpack_from(">i", received, handshake_size)
        assert len(received) == handshake_size + 4 + size
        _, answer = wire.decode_response(
            wire.SaslAuthenticateResponse, received[handshake_size + 4 :], 2
        )
        assert answer.error_code == 58


BEARER = wire.SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer a.b.c\x01\x01")


@pytest.mark.parametrize("end", ["closed", "reset", "timeout", "limit", "shutdown"])
async def test_a_refused_token_is_counted_however_the_connection_ends(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client does not end the exchange. It is in the audit log once, too."""
    listeners = "ADMIN://127.0.0.1:0,CLIENTS://127.0.0.1:0"
    settings = {
        "listeners": listeners,
        "listener.security.protocol.map": "ADMIN:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "ADMIN",
        "max.connections": "1",
        "handshake.timeout.ms": "1000" if end == "timeout" else "600000",
    }
    caplog.set_level("WARNING", "aiokq.audit.login")
    async with EmbeddedCluster(authenticate=lambda *given: None, settings=settings) as kafka:
        counters = kafka.node.counters
        ports = {one.name: one.port for one in kafka.node.servers.opened()}
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["CLIENTS"])
        writer.write(request(wire.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1))
        await read_frame(reader)
        writer.write(request(BEARER, 2))
        _, refusal = wire.decode_response(
            wire.SaslAuthenticateResponse, await read_frame(reader), 2
        )
        assert refusal.auth_bytes == b'{"status":"invalid_token"}'
        other = None
        match end:
            case "closed":
                writer.close()
            case "reset":
                writer.transport.abort()
            case "limit":
                _, other = await asyncio.open_connection("127.0.0.1", ports["ADMIN"])
            case "shutdown":
                await kafka.close()
        async with asyncio.timeout(30):
            if end not in ("closed", "reset"):
                assert await reader.read() == b""
            while counters.connections.value > (end == "limit"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert counters.connections_closed_for_room == (end == "limit")
        writer.close()
        if other is not None:
            other.close()
        assert counters.failed_logins == {"OAUTHBEARER": 1}
        (line,) = [one for one in caplog.records if one.name == "aiokq.audit.login"]
        assert line.audit["reason"] == "authenticate() has refused the token"
        assert line.audit["mechanism"] == "OAUTHBEARER"


async def test_connections_that_stop_before_or_in_a_login_cost_little_memory() -> None:
    """500 connections at four points: nothing sent, a size, half a token, and after a handshake."""
    async with EmbeddedCluster(users=USERS, settings=SETTINGS) as kafka:
        host, port = address(kafka)
        token = sized(b"\0\x24\0\2" + bytes(400_000))
        starts = [b"", struct.pack(">i", 524_288), HANDSHAKE + token[:5000], HANDSHAKE]
        before = resident_bytes()
        writers = []
        for number in range(500):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(starts[number % len(starts)])
            writers.append(writer)
        await asyncio.sleep(0.5)
        after = resident_bytes()
        # Both ends are in this process: asyncio's streams at the client's end cost about 40 KB.
        assert (after - before) / len(writers) < 120_000
        async with (
            Cluster(**kafka.client_settings("alice", mechanism="PLAIN")) as cluster,
            cluster.producer() as producer,
        ):
            await producer.send("t", b"v")
        for writer in writers:
            writer.close()
        async with asyncio.timeout(10):
            while sum(one.connections for _, one in kafka.node.servers._opened):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def fuzz(kafka: EmbeddedCluster, source: random.Random) -> None:
    """Send one connection's worth of mutated login requests."""
    good = [
        request(wire.ApiVersionsRequest(), 3),
        request(wire.SaslHandshakeRequest(mechanism=source.choice(["PLAIN", "SCRAM-SHA-256"])), 1),
        request(wire.SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0),
        request(wire.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2),
        GUESS,
        sized(b"n,,n=alice,r=abc"),
        sized(b"n,a=x,\x01auth=Bearer a.b.c\x01\x01"),
    ]
    data = bytearray(b"".join(source.choices(good, k=source.randint(1, 5))))
    for _ in range(source.randint(0, 4)):
        at = source.randrange(len(data))
        match source.randrange(4):
            case 0:
                data[at] = source.randrange(256)
            case 1:
                del data[at : at + source.randint(1, 8)]
            case 2:
                data[at:at] = source.randbytes(source.randint(1, 8))
            case 3:
                data[at : at + 4] = struct.pack(">I", source.choice([0, 1, 2**31 - 1, 2**32 - 1]))
        if not data:
            break
    reader, writer = await asyncio.open_connection(*address(kafka))
    try:
        writer.write(bytes(data))
        if source.random() < 0.5:
            writer.write_eof()
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.3):
                await reader.read()
    finally:
        writer.transport.abort()


async def test_fuzzed_logins_change_nothing_and_a_working_client_is_served() -> None:
    """No message logs anybody in, no connection and no task is left, and no bug is logged."""
    source = random.Random(18)
    async with EmbeddedCluster(users=USERS, settings=SETTINGS) as kafka:
        async with (
            Cluster(**kafka.client_settings("alice", mechanism="PLAIN")) as cluster,
            cluster.producer(linger_ms=0) as producer,
        ):
            await producer.send("t", b"first")
            tasks = len(asyncio.all_tasks())
            deadline = time.monotonic() + 4
            sent = 0
            while time.monotonic() < deadline:
                fuzzing = asyncio.gather(*(fuzz(kafka, source) for _ in range(30)))
                await producer.send("t", b"v")
                sent += 1
                await fuzzing
            async with asyncio.timeout(10):
                while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert sent
        counters = kafka.node.counters
        assert set(counters.logins) == {"PLAIN"}
        assert counters.failed_logins


async def test_many_failed_logins_do_not_hold_the_loop() -> None:
    """A guess costs the broker a few HMACs at most, and its connection waits without a thread."""
    async with EmbeddedCluster(users=USERS, settings=SETTINGS) as kafka:
        slowest = 0.0
        stop = False

        async def heartbeat() -> None:
            nonlocal slowest
            while not stop:
                began = time.monotonic()
                await asyncio.sleep(0.005)
                slowest = max(slowest, time.monotonic() - began - 0.005)

        beating = asyncio.ensure_future(heartbeat())
        began = time.monotonic()
        for _ in range(5):
            results = await asyncio.gather(
                *(ended(kafka, HANDSHAKE + GUESS, timeout=20) for _ in range(100))
            )
            assert all(len(received) > 40 for received, _ in results)
        stop = True
        await beating
        assert kafka.node.counters.failed_logins["PLAIN"] == 500
        assert slowest < 1.0
        assert time.monotonic() - began < 20
