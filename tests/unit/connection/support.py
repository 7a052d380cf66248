"""Nodes and servers in a simulated world, shared by the tests of this directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiokq import wire
from aiokq.connection.node import Node, NodeState
from aiokq.connection.options import ConnectionOptions
from aiokq.core.counters import ClientCounters
from aiokq.core.observable_map import ObservableMap
from aiokq.core.supervisor import Supervisor
from tests.peers.scripted import ScriptedCluster
from tests.sim.harness.simulation import Simulation

CLIENT = "10.0.0.9"
BROKER = "10.0.0.1"


class World:
    """A client machine in a simulated world, with the parts that its nodes need."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.network = simulation.network
        self.loop = simulation.loop
        self.environment = simulation.environment(CLIENT)
        self.supervisor = Supervisor("test")
        self.counters = ClientCounters()
        self.state: ObservableMap[int, NodeState] = ObservableMap()
        self.states: list[NodeState] = []
        self.state.subscribe(lambda node_id, state: self.states.append(state))

    def node(
        self,
        host: str,
        port: int,
        *,
        node_id: int = 1,
        options: ConnectionOptions | None = None,
        on_throttle: Callable[[Node, float], None] | None = None,
    ) -> Node:
        return Node(
            node_id,
            host,
            port,
            options=options or ConnectionOptions(),
            environment=self.environment,
            supervisor=self.supervisor,
            counters=self.counters,
            state=self.state,
            on_throttle=on_throttle,
        )


@asynccontextmanager
async def client(simulation: Simulation) -> AsyncIterator[World]:
    """Run a client machine."""
    world = World(simulation)
    async with world.supervisor:
        yield world


@asynccontextmanager
async def one_broker(
    simulation: Simulation, options: ConnectionOptions | None = None
) -> AsyncIterator[tuple[World, ScriptedCluster, Node]]:
    """Run a scripted broker on its own machine, and a client node for it."""
    environment = simulation.environment(BROKER)
    async with (
        ScriptedCluster(environment=environment, host=BROKER) as kafka,
        client(simulation) as world,
    ):
        node = world.node(BROKER, kafka[1].port, options=options)
        try:
            yield world, kafka, node
        finally:
            await node.close()


class RawServer(asyncio.Protocol):
    """A server other than Kafka: it responds to the first bytes with fixed ones, or hangs up."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self.received = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.received += data
        if self._answer is None:
            self.transport.close()
        else:
            self.transport.write(self._answer)


def metadata(names: list[str] | None = None) -> wire.MetadataRequest:
    """Return a Metadata request."""
    topics = None if names is None else [wire.MetadataRequestTopic(name=name) for name in names]
    return wire.MetadataRequest(topics=topics)


def produce(size: int) -> wire.ProduceRequest:
    """Return a Produce request with `size` bytes of records for one partition and acks=0."""
    data = wire.PartitionProduceData(index=0, records=bytes(size))
    return wire.ProduceRequest(
        acks=0,
        timeout_ms=1000,
        topic_data=[wire.TopicProduceData(name="t", partition_data=[data])],
    )
