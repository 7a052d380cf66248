"""The engine `bruce` against librdkafka's mock cluster, and against the embedded broker.

The mock brokers refuse and close as librdkafka implements it. The embedded broker refuses what a
topic does not accept, and stops.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from aiokq import Admin, Cluster, Consumer, EmbeddedCluster, TopicPartition
from aiokq.gateway.bruce.error_tables import ERROR_TABLES
from aiokq.wire import ProduceRequest
from tests.peers.bruce_engine import engine
from tests.peers.mock_cluster import MockCluster, mock_cluster

pytest.importorskip("confluent_kafka")

PRODUCE = ProduceRequest.API_KEY


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster(brokers=3) as running:
        yield running


@pytest.fixture
def kafka(cluster: MockCluster, topic: str) -> Iterator[MockCluster]:
    """The mock cluster with an empty `topic` of ten partitions: 3 of broker 1, 7 of broker 2."""
    cluster.create_topic(topic, 10, 3)
    for partition in range(10):
        cluster.set_leader(topic, partition, 1 if partition < 3 else 2)
    yield cluster
    cluster.clear_errors(PRODUCE)
    for node_id in (1, 2, 3):
        cluster.set_up(node_id)
        cluster.set_rtt(node_id, 0)


async def read(servers: str, topic: str) -> dict[int, list[bytes | None]]:
    """Return all values of a topic by partition."""
    found: dict[int, list[bytes | None]] = {}
    async with asyncio.timeout(30), Cluster(servers) as cluster:
        metadata = await cluster.refresh(topic)
        for partition in metadata.topics[topic].partitions:
            tp = TopicPartition(topic, partition)
            async for batch in cluster.read(tp):
                found.setdefault(partition, []).extend(record.value for record in batch)
    return found


async def test_point_19_batches_go_to_brokers_by_the_partitions_they_lead(
    kafka: MockCluster, topic: str
) -> None:
    """100 batches of 2: 30 to the broker with 3 of 10 partitions, 70 to the other."""
    async with engine(kafka, topic) as w:
        w.topic(topic, messages=2)
        for n in range(100):
            w.send(topic, b"%d" % n, b"+%d" % n)
            await w.drained()
        assert w.totals() == (200, {}, 0)
    found = await read(kafka, topic)
    batches = {partition: len(values) // 2 for partition, values in found.items()}
    assert sum(batches[p] for p in range(3)) == 30
    assert sum(batches[p] for p in range(3, 10)) == 70
    assert set(batches.values()) == {10}
    for values in found.values():
        assert values[1::2] == [b"+" + (first or b"") for first in values[::2]]


@pytest.mark.parametrize("table", ERROR_TABLES)
@pytest.mark.parametrize("code", [5, 6, 7])
async def test_point_32_codes_5_6_and_7_deliver_again(
    kafka: MockCluster, topic: str, code: int, table: str
) -> None:
    """One pause, no loss."""
    async with engine(kafka, topic, table=table) as w:
        kafka.push_errors(PRODUCE, code)
        w.send(topic, b"a", key=0)
        await w.drained()
        assert w.totals()[:2] == (1, {})
    assert set((await read(kafka, topic))[0]) == {b"a"}


async def test_point_35_a_discard_does_not_affect_the_next_message(
    kafka: MockCluster, topic: str
) -> None:
    """MESSAGE_TOO_LARGE, UNKNOWN, and a code of later versions."""
    async with engine(kafka, topic) as w:
        for n, code in enumerate((10, -1, 99)):
            kafka.push_errors(PRODUCE, code)
            w.send(topic, b"bad", key=0)
            await w.drained()
            w.send(topic, b"good", key=0)
            await w.drained()
            assert w.totals() == (n + 1, {"error_ack": n + 1}, 0)
    assert await read(kafka, topic) == {0: [b"good"] * 3}


async def test_point_36_the_sixth_failure_discards(kafka: MockCluster, topic: str) -> None:
    """CORRUPT_MESSAGE six times."""
    async with engine(kafka, topic, table="seed") as w:
        kafka.push_errors(PRODUCE, *[2] * 6)
        w.send(topic, b"bad", key=0)
        await w.drained()
        assert w.totals() == (0, {"attempt_limit": 1}, 0)
        w.send(topic, b"good", key=0)
    assert await read(kafka, topic) == {0: [b"good"]}


async def test_point_37_a_connection_that_closes_before_the_answer(
    kafka: MockCluster, topic: str
) -> None:
    """Delivered again, with one possible duplicate."""
    async with engine(kafka, topic) as w:
        kafka.push_errors(PRODUCE, MockCluster.TRANSPORT)
        w.send(topic, b"a", key=0)
        await w.drained()
        assert w.totals() == (1, {}, 1)
    assert set((await read(kafka, topic))[0]) == {b"a"}


async def test_point_41_traffic_follows_leaders_while_brokers_fail(
    kafka: MockCluster, topic: str
) -> None:
    """Leaders move and a broker goes down and comes back: nothing is lost."""
    values = [b"%05d" % n for n in range(2000)]
    async with engine(kafka, topic, attempts=1000) as w:
        w.topic(topic, messages=5)
        for n in range(0, len(values), 5):
            w.send(topic, *values[n : n + 5])
            await asyncio.sleep(0.001)
            if n == 500:
                for partition in range(10):
                    kafka.set_leader(topic, partition, 1 + partition % 3)
            elif n == 1000:
                kafka.set_down(3)
            elif n == 1500:
                for partition in range(10):
                    kafka.set_leader(topic, partition, 1 + partition % 2)
                kafka.set_up(3)
        await w.drained()
        assert w.totals()[:2] == (len(values), {})
    found = Counter(v for each in (await read(kafka, topic)).values() for v in each)
    assert found.keys() == set(values)


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as kafka:
        yield kafka


async def test_point_33_messages_of_a_topic_that_was_deleted_are_bad(
    embedded: EmbeddedCluster,
) -> None:
    """The broker refuses them, and the next metadata lacks the topic."""
    await embedded.create_topic("gone")
    await embedded.create_topic("stays")
    async with Admin(embedded.bootstrap_servers) as admin:
        for n, table in enumerate(("seed", "modern")):
            async with engine(embedded.bootstrap_servers, "gone", "stays", table=table) as w:
                w.send("gone", b"a")
                await w.drained()
                await admin.delete_topics("gone")
                w.send("gone", b"b", b"c")
                w.send("stays", b"%d" % n)
                await w.drained()
                assert w.totals() == (2, {"bad_topic": 2}, 0)
                assert set(w.gone) == {"gone"}
            await embedded.create_topic("gone")
    assert await read(embedded.bootstrap_servers, "stays") == {0: [b"0", b"1"]}


@pytest.mark.parametrize("table", ERROR_TABLES)
async def test_records_that_the_broker_refuses_cost_no_other_record(
    embedded: EmbeddedCluster, table: str
) -> None:
    """A compacted topic takes no records without a key: one of 10,000 is discarded."""
    await embedded.create_topic("compacted", configs={"cleanup.policy": "compact"})
    async with engine(embedded.bootstrap_servers, "compacted", table=table) as w:
        w.topic("compacted", messages=10_000)
        for n in range(10_000):
            w.feed("compacted", b"%05d" % n, key_bytes=b"" if n == 4321 else b"%d" % n)
        w.pump(w.topics["compacted"])
        await w.drained()
        assert w.totals() == (9999, {"error_ack": 1}, 0)
    found = (await read(embedded.bootstrap_servers, "compacted"))[0]
    assert found == [b"%05d" % n for n in range(10_000) if n != 4321]


async def test_sets_that_are_too_large_are_split(embedded: EmbeddedCluster) -> None:
    """The table modern: each message that fits by itself is delivered."""
    await embedded.create_topic("small", configs={"max.message.bytes": "1000"})
    async with engine(embedded.bootstrap_servers, "small") as w:
        w.topic("small", messages=9)
        w.send("small", *(b"%d" % n * (2000 if n == 5 else 200) for n in range(9)))
        await w.drained()
        assert w.totals() == (8, {"error_ack": 1}, 0)
    found = (await read(embedded.bootstrap_servers, "small"))[0]
    assert sorted(found) == sorted(b"%d" % n * 200 for n in range(9) if n != 5)


async def test_sets_of_each_codec_are_read_by_a_consumer(embedded: EmbeddedCluster) -> None:
    """Compression per topic; keys, and times of the client."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        await embedded.create_topic(codec)
        async with engine(embedded.bootstrap_servers, codec) as w:
            w.topic(codec, messages=100, compression=codec)
            values = [b"value %03d" % n for n in range(1000)]
            w.send(codec, *values)
        async with Consumer(
            codec, bootstrap_servers=embedded.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(20):
                records = [await consumer.getone() for _ in values]
        assert [record.value for record in records] == values
        assert {record.key for record in records} == {None}
        assert all(abs(record.timestamp_ms - w.timestamp_ms()) < 60_000 for record in records)
