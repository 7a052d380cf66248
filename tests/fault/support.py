"""Shared by the fault tests: both event loops, a node over real sockets, TLS contexts."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from aiokq.connection.network import system_environment
from aiokq.connection.node import Node
from aiokq.connection.options import ConnectionOptions
from aiokq.core.counters import ClientCounters
from aiokq.core.supervisor import Supervisor

TLS = Path(__file__).parent / "tls"

LIMIT = 30.0
"""Seconds for one test."""

both_loops = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run(loop_factory: LoopFactory, main: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run a test on the given loop; tasks, sockets and errors that it leaves fail it."""
    unseen: list[dict[str, object]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unseen.append(what))
        async with asyncio.timeout(LIMIT):
            await main()
        await asyncio.sleep(0.05)  # transports close in the next iterations of the loop
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    before = open_sockets()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(bounded())
    assert not unseen, [str(what) for what in unseen]
    assert open_sockets() <= before, "sockets were left open"


def open_sockets() -> int:
    """TCP sockets of this process, duplicates included; 0 where they cannot be counted.

    Counts sockets instead of descriptors because uvloop keeps some descriptors of its first loop.
    """
    try:
        table = Path("/proc/self/net/tcp").read_text()
        descriptors = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return 0
    inodes = {line.split()[9] for line in table.splitlines()}
    count = 0
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the descriptor that listdir() itself used
            continue
        count += target.startswith("socket:[") and target[8:-1] in inodes
    return count


@asynccontextmanager
async def node_at(
    host: str, port: int, options: ConnectionOptions | None = None
) -> AsyncIterator[Node]:
    """A node over real sockets."""
    environment = system_environment()
    async with Supervisor("test") as supervisor:
        node = Node(
            1,
            host,
            port,
            options=options or ConnectionOptions(),
            environment=environment,
            supervisor=supervisor,
            counters=ClientCounters(),
        )
        try:
            yield node
        finally:
            await node.close()


def server_tls() -> ssl.SSLContext:
    """Return a context for listeners, with a certificate for localhost and 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    return context


def client_tls(*, trusting: bool = True) -> ssl.SSLContext:
    """Return a context for clients that trusts the tests' authority, or only the system's."""
    return ssl.create_default_context(cafile=str(TLS / "authority.pem") if trusting else None)
