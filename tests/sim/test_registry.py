"""The registry view of a cluster in memory: reading nodes, and changes reported by watches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.client.cluster import Cluster
from aiokq.client.registry import RegistryChangeKind, RegistryWatch
from aiokq.core.errors import Closed, NoNode
from tests.sim.harness.simulation import run

CREATED, DELETED, DATA, CHILDREN = RegistryChangeKind


async def told(watch: RegistryWatch, seconds: float = 20.0) -> list[RegistryChangeKind]:
    """Return the kinds of changes until none arrives for `seconds`."""
    kinds = []
    while True:
        try:
            async with asyncio.timeout(seconds):
                kinds.append((await anext(watch)).kind)
        except TimeoutError:
            return kinds


def test_a_topic_is_watched_from_its_creation_to_its_deletion() -> None:
    """Each change is reported once, to waiting and to late readers."""

    async def main(world: Any) -> None:
        environment = world.environment()
        async with (
            EmbeddedCluster(environment=world.environment()) as kafka,
            Cluster(kafka.bootstrap_servers, _environment=environment) as cluster,
            cluster.admin() as admin,
        ):
            registry = cluster.registry
            async with (
                await registry.watch("/brokers/topics") as topics,
                await registry.watch("/brokers/topics/t", interval=1) as topic,
                await registry.watch("/brokers/topics/t/partitions/1/state") as state,
            ):
                assert topic.node is None
                assert await told(topic, 10) == []
                # Reading a node does not create the topic, although the broker would.
                await admin.create_topics("t", num_partitions=1, raise_errors=True)
                assert await told(topic) == [CREATED]
                assert topic.node is not None
                await admin.create_partitions({"t": 2})
                assert await told(topic) == [DATA]
                assert await told(state) == [CREATED]
                await admin.delete_topics("t")
                assert await told(topic) == [DELETED]
                assert await told(state) == [DELETED]
                assert CHILDREN in await told(topics)
                assert await registry.children("/brokers/topics") == []
                with pytest.raises(NoNode, match="there is no /brokers/topics/t"):
                    await registry.get("/brokers/topics/t")

    run(1, main)


def test_a_group_is_watched_by_polling() -> None:
    """The caller sets the interval; of several changes in between only the last is reported."""

    async def main(world: Any) -> None:
        async with (
            EmbeddedCluster(environment=world.environment()) as kafka,
            Cluster(kafka.bootstrap_servers, _environment=world.environment()) as cluster,
            cluster.admin() as admin,
        ):
            await kafka.create_topic("t", 2)
            registry = cluster.registry
            async with (
                await registry.watch("/consumers", interval=0.5) as groups,
                await registry.watch("/consumers/g/offsets/t/0", interval=0.5) as offset,
            ):
                for at in (0, 1, 2):
                    await admin.alter_group_offsets("g", {("t", 0): at}, raise_errors=True)
                assert (await anext(offset)).kind is CREATED
                assert offset.node is not None
                assert offset.node.data == "2"
                change = await anext(groups)
                assert change.node is not None
                assert (change.kind, change.node.children) == (CHILDREN, ("g",))
                await admin.alter_group_offsets("g", {("t", 0): 7}, raise_errors=True)
                assert await told(offset) == [DATA]
                await admin.delete_groups("g", raise_errors=True)
                assert await told(offset) == [DELETED]
                assert await told(groups) == [CHILDREN]
                assert not await registry.exists("/consumers/g")
            with pytest.raises(ValueError, match="interval"):
                await registry.watch("/consumers", interval=0)

    run(2, main)


def test_lost_connections_change_no_node() -> None:
    """A watch survives lost connections, because it reports changes of the cluster."""

    async def main(world: Any) -> None:
        async with (
            EmbeddedCluster(environment=world.environment(), port=9092) as kafka,
            Cluster(kafka.bootstrap_servers, _environment=world.environment()) as cluster,
            cluster.admin() as admin,
        ):
            async with (
                await cluster.registry.watch("/brokers/ids/0", interval=1) as broker,
                await cluster.registry.watch("/brokers/topics", interval=1) as topics,
            ):
                for connection in world.network.connections("127.0.0.1", 9092):
                    connection.cut()
                assert await told(broker) == []
                await admin.create_topics("t", num_partitions=1)
                assert await told(topics) == [CHILDREN]
            assert [change async for change in broker] == []

    run(3, main)


def test_watches_end_with_their_cluster() -> None:
    """`async for` must not wait for ever after the cluster is closed."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            cluster = Cluster(kafka.bootstrap_servers, _environment=world.environment())
            await cluster.start()
            assert not await cluster.registry.exists("/consumers/g")  # creates __consumer_offsets
            watches = [
                await cluster.registry.watch(path, interval=interval)
                for path in ("/brokers/ids", "/brokers/topics", "/consumers", "/consumers/g")
                for interval in (None, 0.01)
            ]
            waiting = [asyncio.ensure_future(anext(watch)) for watch in watches]
            await asyncio.sleep(1)
            await cluster.close()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(each) for each in done} == {StopAsyncIteration}
            assert all(watch.closed for watch in watches)
            with pytest.raises(Closed):
                await cluster.registry.get("/brokers/ids")

    run(4, main)
