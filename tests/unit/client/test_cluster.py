"""The Cluster facade: clients that share a cluster, their settings, and low-level calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import aiokq
from aiokq import wire
from aiokq.client.cluster import Cluster
from aiokq.core.errors import Closed, ConfigError, RequestTimeout
from tests.unit.cluster.scripted import ScriptedCluster, simulate
from tests.unit.cluster.scripted_log import ScriptedLogs


def make(cluster: ScriptedCluster, **overrides: Any) -> Cluster:
    return Cluster(cluster.bootstrap_servers, _environment=cluster.environment, **overrides)


def test_settings_can_be_positional_keywords_or_an_object():
    """All three give the same frozen object."""
    assert Cluster("a:1").settings.bootstrap_servers == ("a:1",)
    assert Cluster(["a:1", "b:2"]).settings.bootstrap_servers == ("a:1", "b:2")
    assert Cluster(bootstrap_servers="a:1").settings.bootstrap_servers == ("a:1",)
    settings = aiokq.ClusterSettings(bootstrap_servers="a:1", client_id="me")
    assert Cluster(settings=settings).settings is settings
    changed = Cluster("b:1", settings=settings).settings
    assert (changed.bootstrap_servers, changed.client_id) == (("b:1",), "me")
    with pytest.raises(ConfigError, match="twice"):
        Cluster("a:1", bootstrap_servers="b:1")
    with pytest.raises(ConfigError, match="request_timeout_ms"):
        Cluster("a:1", request_timeout=3)  # type: ignore[call-arg]


def test_clients_take_the_clusters_settings():
    """For example a producer uses the Cluster's request timeout."""
    cluster = Cluster("a:1", request_timeout_ms=1_234, client_id="me")
    producer = cluster.producer(linger_ms=50)
    assert (producer.settings.request_timeout_ms, producer.settings.client_id) == (1_234, "me")
    assert producer.settings.linger_ms == 50
    assert cluster.admin().settings.client_id == "me"


def test_settings_of_another_client_are_refused_with_the_right_class():
    """Such settings raised an AttributeError about batch_size, or were partly ignored."""
    for wrong in (aiokq.ConsumerSettings(), aiokq.ClusterSettings(), {"linger_ms": 5}):
        with pytest.raises(ConfigError, match="settings must be ProducerSettings, not "):
            aiokq.Producer("a:1", settings=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="settings must be ProducerSettings, not "):
            Cluster("a:1").producer(settings=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ConsumerSettings, not ProducerSettings"):
        aiokq.Consumer("orders", settings=aiokq.ProducerSettings())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ClusterSettings has no linger_ms"):
        Cluster("a:1", settings=aiokq.ProducerSettings(linger_ms=1))
    assert Cluster("a:1", settings=aiokq.ProducerSettings(client_id="me")).settings.client_id


def test_a_setting_of_another_client_says_whose_it_is():
    """`Cluster(linger_ms=5)` is a likely mistake."""
    with pytest.raises(ConfigError, match="'linger_ms' is a setting of ProducerSettings, not of "):
        Cluster("a:1", linger_ms=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="'linger_ms' is a setting of ProducerSettings"):
        Cluster("a:1").consumer("orders", linger_ms=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_a_setting_of_the_cluster_is_refused_elsewhere(kind: str):
    """A setting given to one client must neither affect all clients nor be ignored."""
    cluster = Cluster("a:1")
    with pytest.raises(ConfigError, match="request_timeout_ms is a setting of the Cluster"):
        getattr(cluster, kind)(request_timeout_ms=1)
    settings = {
        "producer": aiokq.ProducerSettings,
        "consumer": aiokq.ConsumerSettings,
        "admin": aiokq.AdminSettings,
    }[kind](client_id="other")
    with pytest.raises(ConfigError, match="client_id is a setting of the Cluster"):
        getattr(cluster, kind)(settings=settings)


def test_clients_of_a_cluster_share_its_metadata():
    """Three clients need one connection for metadata."""

    async def main(scripted: ScriptedCluster) -> None:
        scripted.add_topic("t", [1])
        async with make(scripted) as cluster:
            async with cluster.admin() as admin, cluster.admin() as other:
                await admin.list_topics()
                await other.list_topics()
            metadata = await cluster.refresh("t")
            assert metadata is cluster.metadata
            assert metadata.topics["t"].partitions[0].leader == 1
            assert sum(b.connections for b in scripted.brokers.values()) <= 3

    simulate(main)


def test_closing_the_cluster_closes_its_clients():
    """A client that was not closed must not hang on closed connections."""

    async def main(scripted: ScriptedCluster) -> None:
        cluster = make(scripted)
        await cluster.start()
        admin = cluster.admin()
        await admin.start()
        producer = cluster.producer()
        await producer.start()
        await asyncio.gather(cluster.close(), cluster.close())
        with pytest.raises(Closed):
            await admin.list_topics()
        with pytest.raises(Closed):
            producer.send_nowait("t", b"v")
        with pytest.raises(Closed):
            await cluster.fetch(("t", 0), 0)
        await asyncio.sleep(0.1)
        assert not any(broker.transports for broker in scripted.brokers.values())

    simulate(main)


def test_a_client_closed_by_itself_leaves_the_cluster_open():
    """`async with cluster.producer()` may end and another one begin."""

    async def main(scripted: ScriptedCluster) -> None:
        async with make(scripted) as cluster:
            async with cluster.producer():
                pass
            async with cluster.admin() as admin:
                await admin.list_topics()
            assert cluster.health().ok

    simulate(main)


def test_requests_go_to_their_target():
    """A node id, the controller, or a partition's leader."""

    async def main(scripted: ScriptedCluster) -> None:
        scripted.add_topic("t", [3])
        scripted.controller_id = 2
        scripted.handlers[wire.DescribeClusterRequest] = lambda broker, r, v: (
            wire.DescribeClusterResponse(cluster_id="c", controller_id=broker.node_id)
        )
        async with make(scripted) as cluster:
            for node, expected in ((1, 1), ("controller", 2), (("t", 0), 3)):
                response = await cluster.request(wire.DescribeClusterRequest(), node=node)
                assert response.controller_id == expected
            response = await cluster.request(wire.DescribeClusterRequest())
            assert response.controller_id in (1, 2, 3)

    simulate(main)


def test_low_level_reading_takes_tuples():
    """fetch, read and offsets work like the old SimpleConsumer."""

    async def main(scripted: ScriptedCluster) -> None:
        scripted.add_topic("t", [1])
        logs = ScriptedLogs(scripted)
        logs.log("t", 0).append(b"a", b"b")
        logs.log("t", 0).append(b"c")
        async with make(scripted) as cluster:
            got = await cluster.fetch(("t", 0), 1, 1_000_000)
            assert [r.value for r in got] == [b"b", b"c"]
            assert got.next_offset == 3
            values = [
                [r.value for r in batch]
                async for batch in cluster.read(("t", 0), 0, 3, max_bytes=1)
            ]
            assert values == [[b"a", b"b"], [b"c"]]
            latest = await cluster.offsets(aiokq.TopicPartition("t", 0), "latest")
            assert latest is not None
            assert latest.offset == 3
            assert await cluster.offsets(("t", 0), 99_000) is None

    simulate(main)


def test_health_names_the_failed_brokers_and_partitions():
    """Readiness probes use `ok`, users the details."""

    async def main(scripted: ScriptedCluster) -> None:
        scripted.add_topic("t", [1])
        async with make(scripted) as cluster:
            await cluster.refresh("t")
            await cluster.request(wire.MetadataRequest(topics=[]), node=1)
            health = cluster.health()
            assert health.ok
            assert health.metadata_age_ms is not None
            assert health.metadata_age_ms < 100
            scripted.brokers[1].die()
            await asyncio.sleep(0.5)
            health = cluster.health()
            assert not health.ok
            assert set(health.brokers_down) == {1}
            assert health.partitions_failed == {("t", 0): "CONNECTION_LOST"}

    simulate(main)


@pytest.mark.parametrize("topics", [(), ("t",)])
def test_refresh_ends_after_its_timeout(topics: tuple[str, ...]) -> None:
    """Regression: the timeout limited only the wait for the topics to exist."""

    async def main(scripted: ScriptedCluster) -> None:
        loop = asyncio.get_running_loop()
        scripted.add_topic("t", [1])
        async with make(scripted, default_api_timeout_ms=7000) as cluster:
            await cluster.refresh("t")
            for broker in scripted.brokers.values():
                broker.die()
            for timeout, expected in ((2.5, 2.5), (None, 7.0)):
                began = loop.time()
                with pytest.raises(RequestTimeout, match="no broker returned metadata"):
                    await cluster.refresh(*topics, timeout=timeout)
                assert loop.time() - began == pytest.approx(expected, abs=0.1)

    simulate(main)


def test_events_returns_the_events_of_the_engine():
    """`cluster.events()` subscribes at the call."""

    async def main(scripted: ScriptedCluster) -> None:
        async with make(scripted) as cluster:
            events = cluster.events()
            first = await anext(events)
            assert isinstance(first, aiokq.BrokerUp)
            await events.aclose()

    simulate(main)


def test_a_cluster_left_open_warns():
    """Its sockets would stay open until the process ends."""

    async def main(scripted: ScriptedCluster) -> None:
        cluster = make(scripted)
        await cluster.start()
        engine = cluster._engine
        with pytest.warns(ResourceWarning, match="was not closed"):
            del cluster
        await engine.close()

    simulate(main)


def test_invalid_partitions_and_requests_are_refused_with_the_fix():
    """A bare "orders" raised an error about __new__, or about an existing partition."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("orders", [1])
        async with make(cluster) as ours:
            wrong: Any
            for wrong in ("orders", ("orders", "0"), ("orders",), 0):
                with pytest.raises(TypeError, match=r"write \(topic, number\)"):
                    await ours.offsets(wrong, "latest")
                with pytest.raises(TypeError, match=r"write \(topic, number\)"):
                    await ours.fetch(wrong, 0)
            wrong = "metadata"
            with pytest.raises(TypeError, match=r"request classes are in aiokq\.wire"):
                await ours.request(wrong)
            wrong = "leader"
            with pytest.raises(ConfigError, match="'controller', or a partition"):
                await ours.request(wire.MetadataRequest(), node=wrong)

    simulate(main)


@pytest.mark.parametrize("client", [aiokq.Cluster, aiokq.Producer, aiokq.Admin])
def test_a_second_positional_argument_is_refused(client: Any) -> None:
    """For example confluent-kafka's dict of settings, or a second address."""
    with pytest.raises(
        ConfigError, match=r"only the address is positional, not \{'linger.ms': 5\}"
    ):
        client("h:1", {"linger.ms": 5})
