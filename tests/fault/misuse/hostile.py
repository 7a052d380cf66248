"""Hostile peers, one coroutine per kind: garbage, half messages, unknown requests, crowds.

They connect to the broker directly, not through the proxy. The broker may treat them as it likes
but must continue to serve other clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

from tests.fault.misuse.world import World

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _connected(world: World, talk: Peer) -> None:
    """Open a connection and run `talk` on it; errors of the connection are ignored."""
    with contextlib.suppress(OSError, EOFError):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.broker.port)
        try:
            await talk(reader, writer)
        finally:
            writer.transport.abort()


def _header(api: int, version: int, correlation_id: int = 7, client: bytes = b"hostile") -> bytes:
    return struct.pack(">hhih", api, version, correlation_id, len(client)) + client


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def _answered(reader: asyncio.StreamReader, seconds: float = 0.5) -> None:
    """Read a response if one arrives in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await reader.read(65_536)


async def garbage(world: World, random: Random, lasts: float) -> None:
    """Send random bytes and messages of other protocols."""
    for _ in range(random.randint(3, 20)):
        data = random.choice(
            [
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                random.randbytes(random.randint(1, 5000)),
                _frame(random.randbytes(random.randint(0, 300))),
                struct.pack(">i", -1) + b"x",
                struct.pack(">i", 0) * 10,
                struct.pack(">i", -(2**31)),
            ]
        )

        async def talk(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = data
        ) -> None:
            writer.write(data)
            await writer.drain()
            await _answered(reader)

        await _connected(world, talk)


async def half_messages(world: World, random: Random, lasts: float) -> None:
    """Send parts of requests, and keep the connections open."""
    messages = []
    for _ in range(random.randint(3, 20)):
        body = _header(random.choice([0, 1, 3, 11, 18]), random.randint(0, 12)) + b"\x00" * 40
        messages.append(_frame(body)[: random.randint(1, len(body))])

    async def talk(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = b""
    ) -> None:
        writer.write(messages.pop())
        await writer.drain()
        await asyncio.sleep(lasts)

    await asyncio.gather(*(_connected(world, talk) for _ in list(messages)))


async def unknown_apis(world: World, random: Random, lasts: float) -> None:
    """Send requests with known and unknown API keys and versions, with meaningless bodies."""
    for _ in range(random.randint(5, 40)):
        api = random.choice([random.randint(0, 92), random.randint(-5, 2000), 32_767, -1])
        version = random.choice([random.randint(0, 18), -1, 32_767])
        body = random.choice([b"", b"\x00" * 60, b"\xff" * 60, b"\x7f" * 60, random.randbytes(100)])

        async def talk(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            data: bytes = _frame(_header(api, version) + body),
        ) -> None:
            writer.write(data)
            await writer.drain()
            await _answered(reader, 0.2)

        await _connected(world, talk)


async def oversized(world: World, random: Random, lasts: float) -> None:
    """Send requests larger than allowed, or of the largest size and without content."""

    async def claim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = random.choice([2**31 - 1, 100 * 1024 * 1024 + 1, 100 * 1024 * 1024])
        writer.write(struct.pack(">i", size) + _header(0, 9))
        await writer.drain()
        await _answered(reader, lasts)

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = random.choice([1, 5, 20]) * 1024 * 1024
        body = _header(random.choice([0, 3, 8]), random.choice([8, 9])) + bytes(size)
        writer.write(_frame(body))
        await writer.drain()
        await _answered(reader, 1.0)

    await asyncio.gather(*(_connected(world, random.choice([claim, send])) for _ in range(4)))


async def crowd(world: World, random: Random, lasts: float) -> None:
    """Open thousands of connections at a time."""
    async with connections(world, random.choice([200, 1000, 2500])):
        await asyncio.sleep(lasts)


@contextlib.asynccontextmanager
async def connections(world: World, count: int) -> AsyncIterator[None]:
    """Keep `count` silent connections open while the block runs."""
    leave = asyncio.Event()

    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await leave.wait()

    tasks = [asyncio.ensure_future(_connected(world, stay)) for _ in range(count)]
    try:
        yield
    finally:
        leave.set()
        _, late = await asyncio.wait(tasks, timeout=2)
        for task in late:
            task.cancel()  # it may wait for a broker that accepts no connection
        await asyncio.gather(*tasks, return_exceptions=True)


HOSTILE = {
    "garbage": garbage,
    "half_messages": half_messages,
    "unknown_apis": unknown_apis,
    "oversized": oversized,
    "connections": crowd,
}
