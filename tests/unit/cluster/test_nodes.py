"""Closing the nodes of a cluster: all of them, concurrently, whatever happens in between."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiokq import wire
from aiokq.cluster.addresses import BootstrapAddress
from aiokq.cluster.metadata import BrokerInfo
from aiokq.cluster.nodes import Nodes
from aiokq.connection.node import Node, Purpose
from aiokq.core.errors import ConnectionLost
from tests.sim.harness.simulation import Simulation, run
from tests.unit.cluster.scripted import Mood, ScriptedCluster, make_engine, simulate
from tests.unit.connection.support import BROKER, World, one_broker, produce


def nodes_of(world: World) -> Nodes:
    def make(node_id: int, host: str, port: int) -> Node:
        return world.node(host, port, node_id=node_id)

    return Nodes(make, random=random.Random(1))


async def stall(simulation: Simulation, nodes: list[Node]) -> None:
    """Put megabytes in flight to each node, then power off their machine."""
    connections = [await node.connection(Purpose.PRODUCE) for node in nodes]
    simulation.network.power_off(BROKER)
    for connection in connections:
        for _ in range(4):
            connection.send_no_reply(produce(1_000_000))


def test_closing_waits_for_all_silent_nodes_at_the_same_time() -> None:
    """When a data centre was down, close() took a second for each of its brokers."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, node):
            nodes = nodes_of(world)
            await stall(simulation, [nodes.get(BrokerInfo(n, BROKER, node.port)) for n in range(5)])
            started = world.loop.time()
            await nodes.close()
            assert world.loop.time() - started <= 1.1
            assert world.counters.connections.read() == 0

    run(1, main)


def test_bootstrap_connections_are_closed_although_close_seeds_was_cancelled() -> None:
    """When the cluster was closed right after bootstrapping, some bootstrap connections leaked."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, _, node):
            nodes = nodes_of(world)
            simulation.network.name("alias", BROKER)
            addresses = [BootstrapAddress(host, node.port) for host in (BROKER, "alias")]
            await stall(simulation, nodes.seeds(addresses))
            closing = asyncio.create_task(nodes.close_seeds())
            await asyncio.sleep(0.1)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await nodes.close()
            await asyncio.sleep(2)
            assert world.counters.connections.read() == 0

    run(1, main)


def test_a_closing_cluster_makes_no_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a node was slow to close, the next metadata refresh opened connections that leaked."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        cluster.handlers[wire.MetadataRequest] = lambda *request: None
        engine.refresher.soon([])
        await asyncio.sleep(0.5)
        close = engine.nodes.close

        async def slow() -> None:
            await close()
            await asyncio.sleep(1)

        monkeypatch.setattr(engine.nodes, "close", slow)
        await engine.close()
        await asyncio.sleep(0.1)
        assert not any(broker.transports for broker in cluster.brokers.values())

    simulate(main)


def test_a_broker_whose_address_has_spoken_kafka_is_not_considered_too_old() -> None:
    """The broker restarts behind its proxy after the bootstrap connection was closed. Only the
    bootstrap node had received ApiVersions, so requests failed for good instead of being
    retried.
    """

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        cluster.brokers[1].die(Mood.CLOSING)
        for _ in range(4):
            with pytest.raises(ConnectionLost, match="ApiVersions") as caught:
                await engine.request(wire.MetadataRequest(topics=[]), node=1, timeout=5)
            assert caught.value.retriable
        cluster.brokers[1].revive()
        await engine.request(wire.MetadataRequest(topics=[]), node=1, timeout=5)
        await engine.close()

    simulate(main, brokers=1)
