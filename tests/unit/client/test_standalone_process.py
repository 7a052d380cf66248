"""`aiokq.process` has a Cluster of its own, with the settings that it is given."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.client.standalone import process
from aiokq.cluster.settings import ClusterSettings
from aiokq.core.errors import KafkaError

TLS_HANDSHAKE = 0x16


async def test_a_secured_cluster_is_reached_with_settings() -> None:
    """The call had no argument for them."""
    first: list[int] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.extend(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        settings = ClusterSettings(security_protocol="SSL", bootstrap_timeout_ms=100)
        with pytest.raises(KafkaError):
            await process(
                f"127.0.0.1:{port}", ["in"], lambda record: None, group_id="g", settings=settings
            )
    assert set(first) == {TLS_HANDSHAKE}
