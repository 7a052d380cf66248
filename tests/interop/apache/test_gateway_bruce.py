"""The engine `bruce` on Apache Kafka, one node: what it writes, and what Kafka refuses."""

from __future__ import annotations

from collections import Counter

import pytest

import aiokq
from aiokq.gateway.bruce.error_tables import ERROR_TABLES
from tests.interop import test_gateway_bruce_points as points
from tests.interop.apache.support import create_topic, logged_batches
from tests.peers.bruce_engine import engine
from tests.peers.other_clients import confluent_messages

pytestmark = pytest.mark.kafka


async def test_batches_are_read_by_other_clients(apache, topic):
    """Points 19 and 21: whole batches by turns, in order per partition, with keys of two kinds."""
    await create_topic(apache, topic, 4)
    async with engine(apache.bootstrap_servers, topic) as w:
        w.topic(topic, messages=10, compression="zstd")
        for n in range(40):
            w.send(topic, *(b"%02d.%d" % (n, part) for part in range(10)))
            await w.drained()
        for n in range(20):
            w.send(topic, b"key %02d" % n, key=0xFFFFFFFF)  # 4294967295 % 4 = 3
        await w.drained()
        assert w.totals() == (420, {}, 0)
    counts = Counter()
    for partition in range(4):
        count = 100 + (20 if partition == 3 else 0)
        messages = confluent_messages(apache.bootstrap_servers, topic, count, partition=partition)
        values = [m.value() for m in messages]
        anywhere = [value for value in values if not value.startswith(b"key")]
        assert anywhere == sorted(anywhere)
        assert [v for v in values if v.startswith(b"key")] == (
            [b"key %02d" % n for n in range(20)] if partition == 3 else []
        )
        for batch in logged_batches(apache, topic, partition):
            counts[batch.codec, batch.producer_id] += 1
    assert counts.keys() == {(4, -1)}


@pytest.mark.parametrize("table", ERROR_TABLES)
async def test_named_records_cost_no_other_record(apache, topic, table):
    """A compacted topic refuses the one record without a key of 5,000."""
    async with aiokq.Admin(apache.bootstrap_servers) as admin:
        await admin.create_topics(topic, configs={"cleanup.policy": "compact"})
    async with engine(apache.bootstrap_servers, topic, table=table) as w:
        w.topic(topic, messages=5000)
        for n in range(5000):
            w.feed(topic, b"%04d" % n, key_bytes=b"" if n == 1234 else b"%d" % n)
        w.pump(w.topics[topic])
        await w.drained()
        assert w.totals() == (4999, {"error_ack": 1}, 0)
    messages = confluent_messages(apache.bootstrap_servers, topic, 4999)
    assert [m.value() for m in messages] == [b"%04d" % n for n in range(5000) if n != 1234]


async def test_point_33_messages_of_a_deleted_topic_are_bad(apache, topic):
    """Kafka answers UNKNOWN_TOPIC_ID, and the next metadata lacks the topic."""
    await create_topic(apache, topic)
    async with (
        aiokq.Admin(apache.bootstrap_servers) as admin,
        engine(apache.bootstrap_servers, topic, table="seed") as w,
    ):
        w.send(topic, b"a")
        await w.drained()
        await admin.delete_topics(topic)
        w.send(topic, b"b", b"c")
        await w.drained()
        assert w.totals() == (1, {"bad_topic": 2}, 0)


async def test_point_25_sets_that_are_too_large_are_split(apache, topic):
    """The table modern: each message that fits by itself is delivered."""
    async with aiokq.Admin(apache.bootstrap_servers) as admin:
        await admin.create_topics(topic, configs={"max.message.bytes": "1000"})
    async with engine(apache.bootstrap_servers, topic) as w:
        w.topic(topic, messages=9)
        w.send(topic, *(b"%d" % n * (2000 if n == 5 else 200) for n in range(9)))
        await w.drained()
        assert w.totals() == (8, {"error_ack": 1}, 0)
    messages = confluent_messages(apache.bootstrap_servers, topic, 8)
    assert {m.value()[:1] for m in messages} == {b"%d" % n for n in range(9) if n != 5}


@pytest.mark.parametrize(
    "point",
    [
        points.test_point_20_a_request_has_one_partition_per_topic,
        points.test_point_24_a_combined_batch_mixes_topics_and_one_of_a_topic_does_not,
        points.test_point_25_the_data_of_a_request_is_limited,
    ],
)
async def test_points_20_24_and_25_through_a_gateway(apache, topic, point, monkeypatch):
    """The tests with the mock cluster, whose partitions 8 and 9 are led by one broker, too."""
    for name in (topic, f"{topic}-other", f"{topic}-own"):
        await create_topic(apache, name, 10)
    monkeypatch.setattr(points, "create", lambda *_: None)
    await point(apache.bootstrap_servers, topic)
