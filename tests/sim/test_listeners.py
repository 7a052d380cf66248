"""A node with two listeners in virtual time: they are opened and closed together."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from aiokq.broker.config.listeners import ListenerFailed, configured_listeners
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.broker.node import BrokerNode
from aiokq.client.cluster import Cluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import ConfigError, KafkaError
from aiokq.producer.producer import Producer
from tests.sim.harness.network import Always
from tests.sim.harness.simulation import Simulation, run

BROKER, WRITER, READER = "10.0.0.1", "10.0.0.2", "10.0.0.3"
SETTINGS = {
    "listeners": f"PLAINTEXT://{BROKER}:9092,INNER://{BROKER}:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://outer:9092,INNER://inner:9094",
}


def node(world: Simulation) -> BrokerNode:
    settings = broker_settings(SETTINGS, profile="dev")
    return BrokerNode(
        settings,
        world.environment(BROKER),
        data_dir="/data",
        listeners=configured_listeners(settings),
    )


def test_clients_stay_on_the_listener_that_they_connected_to() -> None:
    """A producer uses one listener, a consumer the other one, and the records are the same."""

    async def main(world: Simulation) -> list[bytes]:
        broker = node(world)
        await broker.start()
        world.network.name("outer", BROKER)
        world.network.name("inner", BROKER)
        got = []
        async with Producer("outer:9092", _environment=world.environment(WRITER)) as producer:
            await producer.send("t", b"1")
        async with Consumer(
            "t",
            bootstrap_servers="inner:9094",
            auto_offset_reset="earliest",
            _environment=world.environment(READER),
        ) as consumer:
            async for record in consumer:
                got.append(record.value)
                break
        for name, port in (("outer", 9092), ("inner", 9094)):
            async with Cluster(f"{name}:{port}", _environment=world.environment(READER)) as cluster:
                metadata = await cluster.refresh()
                assert [(b.host, b.port) for b in metadata.brokers.values()] == [(name, port)]
        await broker.close()
        return got

    assert run(1, main).value == [b"1"]


def test_a_second_listener_that_cannot_open_closes_the_first() -> None:
    """Then no listener is open, and the data directory can be opened again."""

    async def main(world: Simulation) -> None:
        network = world.environment(BROKER).network
        taken = await network.listen(Always(asyncio.Protocol), BROKER, 9094)
        broker = node(world)
        with pytest.raises(ListenerFailed) as caught:
            await broker.start()
        assert str(caught.value.endpoint) == f"INNER://{BROKER}:9094"
        assert f"INNER://{BROKER}:9094" in str(caught.value)
        free = await network.listen(Always(asyncio.Protocol), BROKER, 9092)  # it was closed
        for listener in (taken, free):
            listener.close()
            await listener.wait_closed()
        again = node(world)
        await again.start()
        await again.close()

    run(1, main)


def test_an_embedded_cluster_has_the_address_of_each_listener() -> None:
    """The first listener's address is bootstrap_servers."""

    async def main(world: Simulation) -> None:
        settings = {**SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0"}
        del settings["advertised.listeners"]
        cluster = EmbeddedCluster(settings=settings, environment=world.environment(BROKER))
        async with cluster:
            outer, inner = cluster.bootstrap_servers, cluster.bootstrap_servers_of("inner")
            assert outer != inner
            assert cluster.bootstrap_servers_of("PLAINTEXT") == outer
            with pytest.raises(ConfigError, match="the advertised listeners are PLAINTEXT, INNER"):
                cluster.bootstrap_servers_of("OTHER")
            async with Cluster(inner, _environment=world.environment(BROKER)) as client:
                metadata = await client.refresh()
                assert [f"{b.host}:{b.port}" for b in metadata.brokers.values()] == [inner]

    run(1, main)


def test_an_embedded_cluster_names_the_listener_whose_port_is_in_use() -> None:
    """With several listeners the port alone does not say which setting to change."""

    async def main(world: Simulation) -> None:
        environment = world.environment(BROKER)
        taken = await environment.network.listen(Always(asyncio.Protocol), "127.0.0.1", 9094)
        settings = {**SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:9094"}
        cluster = EmbeddedCluster(settings=settings, environment=environment)
        with pytest.raises(ConfigError, match="port 9094 of listener INNER is in use"):
            await cluster.start()
        taken.close()
        await taken.wait_closed()
        await cluster.start()
        await cluster.close()

    run(1, main)


def test_a_listener_on_all_interfaces_advertises_the_host_name(monkeypatch) -> None:
    """As in Kafka; the name is looked up once, in an executor, not for each response."""
    looked_up = []

    def getfqdn() -> str:
        looked_up.append(1)
        return "kafka.example"

    monkeypatch.setattr("socket.getfqdn", getfqdn)

    async def main(world: Simulation) -> list[str]:
        settings = broker_settings({"listeners": "PLAINTEXT://:0"}, profile="dev")
        broker = BrokerNode(
            settings,
            world.environment(BROKER),
            data_dir="/data",
            listeners=configured_listeners(settings),
        )
        await broker.start()
        port = broker.servers.listening()[0].port
        found = [str(one) for one in broker.servers.all_advertised()]
        assert [(one.host, one.port) for one in broker.brokers()] == [("kafka.example", port)]
        await broker.close()
        assert port != 0
        return [name.replace(str(port), "PORT") for name in found]

    assert run(1, main).value == ["PLAINTEXT://kafka.example:PORT"]
    assert looked_up == [1]


def test_a_shutdown_with_fetches_waiting_on_both_listeners_is_quick() -> None:
    """The fetches are answered at once, so neither listener waits for its drain timeout of 5 s."""

    async def main(world: Simulation) -> float:
        broker = node(world)
        await broker.start()
        world.network.name("outer", BROKER)
        world.network.name("inner", BROKER)

        async def read(server: str) -> None:
            async with Consumer(
                "t",
                bootstrap_servers=server,
                fetch_max_wait_ms=60_000,
                _environment=world.environment(READER),
            ) as consumer:
                with contextlib.suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(5):
                        async for _ in consumer:
                            pass

        readers = [asyncio.ensure_future(read(server)) for server in ("outer:9092", "inner:9094")]
        await asyncio.sleep(2)
        before = asyncio.get_running_loop().time()
        await broker.close()
        seconds = asyncio.get_running_loop().time() - before
        await asyncio.gather(*readers)
        return seconds

    assert run(1, main).value < 1
