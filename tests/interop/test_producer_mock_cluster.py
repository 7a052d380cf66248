"""aiokq's producer against librdkafka's mock cluster, read back by librdkafka with CRC checks."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator

import pytest

from aiokq import Cluster, RecordColumns
from aiokq.fastpath import partition_for_key
from aiokq.producer.producer import Producer
from tests.peers.mock_cluster import mock_cluster

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with mock_cluster(brokers=3) as servers:
        yield servers


def read_back(bootstrap: str, topic: str, partitions: int, count: int) -> list[object]:
    """Return what librdkafka reads from the topic, in order per partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "check.crcs": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        messages: list[object] = []
        while len(messages) < count:
            batch = consumer.consume(count - len(messages), timeout=10)
            assert batch, f"{len(messages)} of {count} messages"
            for message in batch:
                assert message.error() is None, message.error()
            messages.extend(batch)
        return messages
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka_reads_what_we_write(bootstrap: str, codec: str) -> None:
    """Every codec, keys and headers, to three brokers."""
    topic = f"written-{codec}"
    sent = [(b"key-%d" % (n % 50), b"value-%05d" % n) for n in range(2000)]
    async with Producer(bootstrap, compression_type=codec, linger_ms=5) as producer:
        deliveries = await producer.send_many(topic, sent)
        last = await producer.send(topic, b"last", key=b"key-0", headers=[("h", b"v"), ("n", None)])
        metas = await deliveries
    assert last.offset >= 0
    places = {(meta.partition, meta.offset) for meta in metas}
    assert len(places) == 2000
    found = {}
    for message in read_back(bootstrap, topic, 4, 2001):
        found[message.partition(), message.offset()] = (message.key(), message.value())
        if message.value() == b"last":
            assert message.headers() == [("h", b"v"), ("n", None)]
    for (key, value), meta in zip(sent, metas, strict=True):
        assert found[meta.partition, meta.offset] == (key, value)
        assert meta.partition == partition_for_key(key, 4)


async def test_the_leader_alone_may_acknowledge(bootstrap: str) -> None:
    """acks=1, which turns idempotence off."""
    async with Producer(bootstrap, acks=1, linger_ms=1) as producer:
        assert not producer.settings.enable_idempotence
        metas = [await producer.send("leader-only", b"%d" % n, partition=0) for n in range(20)]
    assert [meta.offset for meta in metas] == list(range(20))
    messages = read_back(bootstrap, "leader-only", 4, 20)
    assert [message.value() for message in messages] == [b"%d" % n for n in range(20)]


async def test_nobody_has_to_acknowledge(bootstrap: str) -> None:
    """With acks=0 the mock responds all the same, against the protocol (regression)."""
    async with Producer(bootstrap, acks=0, linger_ms=1) as producer:
        for n in range(20):
            assert (await producer.send("nobody", b"%d" % n, partition=0)).offset == -1
        await asyncio.sleep(0.05)  # until the last response has come
        await producer.send("nobody", b"20", partition=0)
        report = await producer.close()
    assert (report.delivered, report.failed) == (21, 0)
    messages = read_back(bootstrap, "nobody", 4, 21)
    assert [message.value() for message in messages] == [b"%d" % n for n in range(21)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka_reads_the_batches_of_produce(bootstrap: str, codec: str) -> None:
    """Single requests to each leader, with records and rows of columns."""
    topic = f"produced-{codec}"
    values = [b"value-%05d" % n for n in range(3000)]
    columns = RecordColumns(
        len(values),
        value=(None, array("i", range(0, 11 * len(values) + 1, 11)), b"".join(values)),
        partition=(None, array("i", (n % 4 for n in range(len(values))))),
    )
    async with Cluster(bootstrap) as cluster:
        async with cluster.producer() as producer:  # creates the topic
            assert await producer.partitions_for(topic) == {0, 1, 2, 3}
        batches = {}
        for partition, rows in columns.rows_by_partition().items():
            batch = cluster.create_batch(compression_type=codec)
            assert batch.append(b"first", key=b"k", headers=[("h", b"v")])
            assert batch.append_columns(columns, rows) == 750
            batches.setdefault(cluster.metadata.leader((topic, partition)), {})[
                topic, partition
            ] = batch
        for node, of_node in batches.items():
            results = await cluster.produce(of_node, node=node)
            assert {result.error for result in results.values()} == {None}
    found: dict[int, list[object]] = {}
    for message in read_back(bootstrap, topic, 4, 3004):
        found.setdefault(message.partition(), []).append(message.value())
    assert found == {p: [b"first", *values[p::4]] for p in range(4)}
