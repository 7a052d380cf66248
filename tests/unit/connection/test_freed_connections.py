"""Connections that have ended are freed without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from aiokq import EmbeddedCluster, wire
from aiokq.connection.accepted_connection import AcceptedConnection
from aiokq.connection.request_context import RequestContext
from aiokq.wire.frames import encode_request


def _frame(request: wire.Request[wire.Response], version: int) -> bytes:
    parts = encode_request(request, version=version, correlation_id=1, client_id="t")
    return b"".join(map(bytes, parts))


HANDSHAKE = _frame(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1)
WRONG = _frame(wire.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
RIGHT = _frame(wire.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def fail(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await _ask(reader, writer, HANDSHAKE)
    await _ask(reader, writer, WRONG)
    assert await reader.read() == b""
    writer.close()


async def log_in(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await _ask(reader, writer, HANDSHAKE)
    await _ask(reader, writer, RIGHT)
    writer.close()


def _alive() -> int:
    kinds = (AcceptedConnection, RequestContext)
    return sum(isinstance(each, kinds) for each in gc.get_objects())


@pytest.mark.parametrize("connect", [fail, log_in])
async def test_a_connection_leaves_no_cycle(connect: Callable[[int], Awaitable[None]]) -> None:
    """Regression: collecting what a storm of logins had left stopped the loop for 100 ms."""
    async with EmbeddedCluster(users={"alice": "secret"}) as cluster:
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        gc.collect()
        gc.disable()
        try:
            before = _alive()
            for _ in range(5):
                await connect(port)
            for _ in range(100):
                if _alive() == before:
                    break
                await asyncio.sleep(0.05)
            assert _alive() == before
        finally:
            gc.enable()
