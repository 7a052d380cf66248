"""Connection limits across several listeners, on a virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet

import pytest

from aiokq.connection.connection_counts import ConnectionCounts
from aiokq.connection.server import Server
from aiokq.connection.server_limits import ServerLimits
from aiokq.core.counters import BrokerCounters
from aiokq.core.environment import Address
from tests.sim.harness.simulation import Simulation, run
from tests.unit.connection.test_server import Client, Handler

SERVER, PEER, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3"
PORTS = {"INNER": 9092, "ADMIN": 9093, "OUTER": 9094}


class Node:
    """Servers that share one connection count."""

    def __init__(
        self, simulation: Simulation, limits: ServerLimits, protected: AbstractSet[str]
    ) -> None:
        self.simulation = simulation
        self.counters = BrokerCounters()
        environment = simulation.environment(SERVER)
        self.counts = counts = ConnectionCounts(
            limits, now=environment.clock.monotonic, protected=protected
        )
        self.handler = Handler()
        self.servers = {
            name: Server(
                environment.network,
                SERVER,
                port,
                self.handler,
                clock=environment.clock,
                counters=self.counters,
                limits=limits,
                listener=name,
                counts=counts,
            )
            for name, port in PORTS.items()
        }

    async def client(self, listener: str, host: str = PEER) -> Client:
        network = self.simulation.environment(host).network
        _, client = await network.connect(Client, Address(SERVER, PORTS[listener]))
        assert isinstance(client, Client)
        return client

    async def refused(self, listener: str, host: str = PEER) -> bool:
        """Return whether a new connection is closed at once."""
        client = await self.client(listener, host)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await client.lost.wait()
        return client.lost.is_set()


@contextlib.asynccontextmanager
async def node(
    simulation: Simulation,
    protected: AbstractSet[str] = frozenset(),
    **limits: int | Mapping[str, int],
) -> AsyncIterator[Node]:
    made = Node(simulation, ServerLimits(**limits), protected)  # type: ignore[arg-type]
    for server in made.servers.values():
        await server.start()
    try:
        yield made
    finally:
        for server in made.servers.values():
            await server.close()


def test_the_limit_of_the_node_counts_both_listeners() -> None:
    """max.connections applies to the whole broker."""

    async def main(simulation: Simulation) -> None:
        async with node(simulation, max_connections=2) as n:
            first = await n.client("INNER")
            await n.client("OUTER")
            assert await n.refused("INNER")
            assert await n.refused("OUTER")
            first.transport.close()
            await asyncio.sleep(1)
            assert not await n.refused("OUTER")
            assert n.counters.connections_refused == 2

    run(1, main)


def test_the_limit_of_a_listener_leaves_the_other_alone() -> None:
    """listener.name.outer.max.connections applies to one listener."""

    async def main(simulation: Simulation) -> None:
        async with node(simulation, max_connections_of_listener={"OUTER": 1}) as n:
            assert not await n.refused("OUTER")
            assert await n.refused("OUTER")
            for _ in range(3):
                assert not await n.refused("INNER")

    run(1, main)


def test_limits_that_change_apply_to_new_connections() -> None:
    """Kafka, too, leaves open connections alone when max.connections is lowered."""

    async def main(simulation: Simulation) -> None:
        async with node(simulation, max_connections=2) as n:
            clients = [await n.client("INNER"), await n.client("OUTER")]
            n.counts.limit(ServerLimits(max_connections=3))
            assert not await n.refused("OUTER")
            assert await n.refused("OUTER")
            n.counts.limit(ServerLimits(max_connections=1))
            assert await n.refused("OUTER")
            assert not any(client.lost.is_set() for client in clients)

    run(1, main)


@pytest.mark.parametrize("overridden", [1, 3])
def test_an_address_has_one_limit_over_both_listeners(overridden: int) -> None:
    """max.connections.per.ip, with overrides below and above it."""

    async def main(simulation: Simulation) -> None:
        limits = {"max_connections_per_ip": 2, "max_connections_of_host": {OTHER: overridden}}
        async with node(simulation, **limits) as n:  # type: ignore[arg-type]
            assert not await n.refused("INNER")
            assert not await n.refused("OUTER")
            assert await n.refused("INNER")
            for _ in range(overridden):
                assert not await n.refused("OUTER", OTHER)
            assert await n.refused("INNER", OTHER)

    run(1, main)


def test_a_broker_connects_at_the_limit_and_an_idle_client_is_closed() -> None:
    """The client of the other listener that has been idle longest is closed."""

    async def main(simulation: Simulation) -> None:
        async with node(simulation, {"INNER"}, max_connections=3) as n:
            clients = []
            for listener in ("INNER", "OUTER", "OUTER"):
                clients.append(await n.client(listener))
                await asyncio.sleep(1)
            clients[1].send(b"x")  # now the last client has been idle longest
            await clients[1].receive(1)
            assert await n.refused("OUTER")
            assert not await n.refused("INNER")
            assert [client.lost.is_set() for client in clients] == [False, False, True]
            assert n.counters.connections_closed_for_room == 1
            assert n.counters.connections.value == 3

    run(1, main)


def test_a_broker_connects_at_the_limit_even_if_no_client_is_idle() -> None:
    """A client with a request in progress is not disconnected."""

    async def main(simulation: Simulation) -> None:
        async with node(simulation, {"INNER"}, max_connections=1) as n:
            held = asyncio.Event()

            async def answer(context: object, data: memoryview) -> list[bytes]:
                await held.wait()
                return await Handler.echo(context, data)  # type: ignore[arg-type,return-value]

            n.handler.answer = answer  # type: ignore[assignment]
            busy = await n.client("OUTER")
            busy.send(b"x")
            await asyncio.sleep(1)
            assert not await n.refused("INNER")
            assert not busy.lost.is_set()
            held.set()
            assert await busy.receive(1) == [b"x"]

    run(1, main)


def test_each_protected_listener_has_a_reserve() -> None:
    """Brokers and administrators connect at the limit, and only idle clients are closed."""

    async def main(simulation: Simulation) -> None:
        async with node(simulation, {"INNER", "ADMIN"}, max_connections=3) as n:
            clients = []
            for listener in ("INNER", "ADMIN", "OUTER"):
                clients.append(await n.client(listener))
                await asyncio.sleep(1)
            assert await n.refused("OUTER")
            for listener in ("ADMIN", "INNER") * 3:
                assert not await n.refused(listener)
            assert [client.lost.is_set() for client in clients] == [False, False, True]

    run(1, main)
