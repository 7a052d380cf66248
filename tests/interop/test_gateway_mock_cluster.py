"""The gateway against librdkafka's mock cluster of several brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from aiokq.gateway import Gateway, GatewaySettings
from aiokq.gateway.engine import TopicState
from aiokq.wire import ProduceRequest
from tests.fault.gateway_support import Rig, configuration, directory, message, records_of
from tests.peers.mock_cluster import MockCluster, mock_cluster

pytest.importorskip("confluent_kafka")

PRODUCE = ProduceRequest.API_KEY


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster(brokers=3) as running:
        yield running


@pytest.fixture
def kafka(cluster: MockCluster, topic: str) -> Iterator[MockCluster]:
    """The mock cluster with an empty `topic` of four partitions, led by brokers 1, 2, 3, 1."""
    cluster.create_topic(topic, 4, 3)
    for partition in range(4):
        cluster.set_leader(topic, partition, 1 + partition % 3)
    yield cluster
    cluster.clear_errors(PRODUCE)
    for node_id in (1, 2, 3):
        cluster.set_up(node_id)


QUICK = {"pause_initial_ms": 100, "min_pause_ms": 50, "max_failed_delivery_attempts": 1000}


@asynccontextmanager
async def gateway(servers: str, engine: str = "producer") -> AsyncIterator[Rig]:
    """A gateway that refreshes its metadata often."""
    with directory() as path:
        values = {
            "delivery": {"engine": engine, **(QUICK if engine == "bruce" else {})},
            "kafka": {
                "bootstrap_servers": servers,
                "metadata_max_age_ms": 500,
                "reconnect_backoff_ms": 50,
            },
            "batching": {"time_ms": 1},
        }
        settings: GatewaySettings = configuration(path, values)
        async with Gateway(settings) as made:
            r = Rig(None, None, made, path)  # type: ignore[arg-type]
            try:
                yield r
            finally:
                r.close()


async def partitions_of(servers: str, topic: str) -> dict[bytes | None, int]:
    """Return the partition of each value."""
    return {record.value: record.partition for record in await records_of(servers, topic)}


@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_point_18_only_the_partition_without_a_leader_is_skipped(
    kafka: MockCluster, topic: str, engine: str
) -> None:
    """Its messages go to the next partition, those of other keys stay; and they return."""
    async with gateway(kafka, engine) as r:
        kafka.set_leader(topic, 1, -1)
        await r.send(*(message(topic, b"a%d" % key, partition_key=key) for key in range(8)))
        await r.settled(8)
        kafka.set_leader(topic, 1, 3)
        await r.until(lambda: all(t.usable is None for t in topics_of(r)))
        await r.send(*(message(topic, b"b%d" % key, partition_key=key) for key in range(8)))
        snapshot = await r.settled(16)
        assert snapshot.total.acked == 16
    found = await partitions_of(kafka, topic)
    for key in range(8):
        assert found[b"a%d" % key] == (2 if key % 4 == 1 else key % 4)
        assert found[b"b%d" % key] == key % 4


def topics_of(r: Rig) -> list[TopicState]:
    """Return the topics of the gateway, with their current partitions."""
    topics = list(r.gateway.router.topics.values())
    for topic in topics:
        r.gateway.router.update(topic)
    return topics


@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_point_41_traffic_follows_leaders_while_brokers_fail(
    kafka: MockCluster, topic: str, engine: str
) -> None:
    """Leaders move, a broker goes down and comes back: nothing is lost, doubled or reordered.

    The engine `bruce` promises only that nothing is lost.
    """
    async with gateway(kafka, engine) as r:
        opened = r.socket()
        for n in range(0, 4000, 10):
            for i in range(n, n + 10):
                opened.send(message(topic, b"%d" % i, partition_key=i % 4))
            await asyncio.sleep(0.001)
            if n == 1000:
                for partition in range(4):
                    kafka.set_leader(topic, partition, 1 + (partition + 1) % 3)
            elif n == 2000:
                kafka.set_down(3)
            elif n == 3000:
                for partition in range(4):
                    kafka.set_leader(topic, partition, 1 + partition % 2)
                kafka.set_up(3)
        snapshot = await r.settled(4000)
        assert snapshot.total.acked == 4000
    records = await records_of(kafka, topic)
    if engine == "bruce":
        # Nor does a key keep its partition while the broker that leads it is away.
        assert {record.value for record in records} == {b"%d" % n for n in range(4000)}
        return
    for partition in range(4):
        values = [record.value for record in records if record.partition == partition]
        assert values == [b"%d" % n for n in range(partition, 4000, 4)]


@pytest.mark.parametrize("code", [5, 6, 7, 19, 20, 56])
async def test_retriable_errors_are_retried(kafka: MockCluster, topic: str, code: int) -> None:
    """The codes after which Bruce pauses, and those that it did not know yet."""
    async with gateway(kafka) as r:
        kafka.push_errors(PRODUCE, code, code)
        await r.send(message(topic, b"a", partition_key=0))
        snapshot = await r.settled(1)
        assert snapshot.total.acked == 1
    assert set(await partitions_of(kafka, topic)) == {b"a"}


@pytest.mark.parametrize("code", [29, 99])
async def test_a_final_error_costs_no_other_message(
    kafka: MockCluster, topic: str, code: int
) -> None:
    """The next message is delivered."""
    async with gateway(kafka) as r:
        await r.send(message(topic, b"first", partition_key=0))
        await r.settled(1)
        kafka.push_errors(PRODUCE, code)
        await r.send(message(topic, b"bad", partition_key=0))
        await r.settled(2)
        await r.send(message(topic, b"good", partition_key=0))
        snapshot = await r.settled(3)
        assert snapshot.total.document()["discarded"] == {"error_ack": 1}
    assert set(await partitions_of(kafka, topic)) == {b"first", b"good"}
