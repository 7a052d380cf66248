"""aiokq's producer on Apache Kafka, one node; other clients read what it wrote."""

from __future__ import annotations

import asyncio
import time

import pytest

import aiokq
from aiokq import errors
from aiokq.fastpath import partition_for_key
from aiokq.records.compression import CODEC_NAMES
from tests.interop.apache.support import (
    BASE_TIME,
    create_topic,
    led,
    logged_batches,
    value,
)
from tests.peers.other_clients import (
    confluent_message,
    confluent_messages,
    java_partitions,
)

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def test_every_way_of_sending_tells_the_offset_that_the_log_has(apache, topic):
    """Other clients find each record at its acknowledged offset, whichever call wrote it."""
    await create_topic(apache, topic)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        metas = [await producer.send(topic, b"send", key=b"k", partition=0)]
        metas.append(await producer.send_nowait(topic, b"send_nowait", partition=0))
        metas.append(await (await producer.enqueue(topic, b"enqueue", partition=0)))
        many = await producer.send_many(topic, [(b"k", b"many"), (None, None)], partition=0)
        metas += await many
        batch = producer.create_batch()
        batch.append(key=None, value=b"batch 0")
        batch.append(key=b"k", value=b"batch 1")
        metas += await (await producer.send_batch(batch, topic, partition=0))
        assert await producer.partitions_for(topic) == {0}
    assert [(meta.topic, meta.partition) for meta in metas] == [(topic, 0)] * 7
    found = {m.offset(): m for m in confluent_messages(apache.bootstrap_servers, topic, 7)}
    contents = [confluent_message(found[meta.offset]) for meta in metas]
    assert [(c.key, c.value) for c in contents] == [
        (b"k", b"send"),
        (None, b"send_nowait"),
        (None, b"enqueue"),
        (b"k", b"many"),
        (None, None),
        (None, b"batch 0"),
        (b"k", b"batch 1"),
    ]
    assert [c.timestamp_ms for c in contents] == [meta.timestamp_ms for meta in metas]


@pytest.mark.parametrize("codec", CODECS)
async def test_each_codec_with_and_without_idempotence(apache, topic, codec):
    """Kafka stores aiokq's batches unchanged: codec, producer id and sequences are in its log."""
    await create_topic(apache, topic, 2)
    for partition, idempotent in enumerate((True, False)):
        async with aiokq.Producer(
            apache.bootstrap_servers,
            compression_type=codec,
            enable_idempotence=idempotent,
            batch_size=20_000,
        ) as producer:
            records = [(b"k%d" % n, value(n, 500)) for n in range(300)]
            metas = await (await producer.send_many(topic, records, partition=partition))
        assert [meta.offset for meta in metas] == list(range(300))
        batches = logged_batches(apache, topic, partition)
        assert len(batches) > 3
        assert {CODEC_NAMES[batch.codec] for batch in batches} == {codec}
        if idempotent:
            assert {batch.producer_id >= 0 for batch in batches} == {True}
            assert [b.base_sequence for b in batches] == [b.base_offset for b in batches]
        else:
            assert {batch.producer_id for batch in batches} == {-1}
        messages = confluent_messages(apache.bootstrap_servers, topic, 300, partition=partition)
        assert [m.value() for m in messages] == [value(n, 500) for n in range(300)]


async def test_keys_go_to_the_partitions_that_java_gives_them(apache, topic):
    """Otherwise a key of a compacted topic would be in two partitions if both clients wrote it."""
    await create_topic(apache, topic, 7)
    keys = [bytes(range(n % 251, n % 251 + n % 9 + 1)) * (1 + n % 3) for n in range(200)]
    keys += ["schlüssel".encode(), b"\xff" * 33, b"\0"]
    expected = await asyncio.to_thread(java_partitions, apache.bootstrap_servers, topic, keys)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        metas = await (await producer.send_many(topic, [(key, b"v") for key in keys]))
    assert [meta.partition for meta in metas] == expected
    assert [partition_for_key(key, 7) for key in keys] == expected


async def test_records_keep_headers_timestamps_and_absent_parts(apache, topic):
    """An empty value differs from an absent one, and header names may repeat."""
    headers = [("h", b"1"), ("h", None), ("größe", b""), ("", b"\xff")]
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        await producer.send(topic, b"v", b"k", 0, BASE_TIME, headers)
        await producer.send(topic, None, b"k", 0, BASE_TIME + 5)
        await producer.send(topic, b"", b"", 0, BASE_TIME - 5)
        before = int(time.time() * 1000)
        meta = await producer.send(topic, b"now", partition=0)
    assert before <= meta.timestamp_ms <= int(time.time() * 1000)
    messages = confluent_messages(apache.bootstrap_servers, topic, 4)
    assert [confluent_message(m) for m in messages] == [
        (b"k", b"v", tuple(headers), BASE_TIME),
        (b"k", None, (), BASE_TIME + 5),
        (b"", b"", (), BASE_TIME - 5),
        (None, b"now", (), meta.timestamp_ms),
    ]


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_each_kind_of_acknowledgement(apache, topic, acks):
    """acks=0 has no response and so no offset; the records arrive all the same."""
    await create_topic(apache, topic)
    async with aiokq.Producer(apache.bootstrap_servers, acks=acks) as producer:
        for n in range(20):
            meta = await producer.send(topic, value(n), partition=0)
            assert meta.offset == (-1 if acks == 0 else n)
    messages = confluent_messages(apache.bootstrap_servers, topic, 20)
    assert [m.value() for m in messages] == [value(n) for n in range(20)]


async def test_a_topic_that_does_not_exist_is_made_on_first_use(apache, topic):
    """A topic is auto-created; records wait for its leader."""
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        deliveries = [producer.send_nowait(topic, value(n)) for n in range(10)]
        assert sorted([(await each).offset for each in deliveries]) == list(range(10))


async def test_a_topic_that_may_not_be_made_fails_within_max_block(apache, topic):
    """An unknown topic gives a typed error in time, and delays no other topic."""
    await create_topic(apache, topic)
    async with aiokq.Producer(
        apache.bootstrap_servers, allow_auto_create_topics=False, max_block_ms=1500
    ) as producer:
        started = time.monotonic()
        missing = producer.send_nowait(f"{topic}-missing", b"v")
        await producer.send(topic, b"v")
        assert time.monotonic() - started < 1
        with pytest.raises(errors.UnknownTopicOrPartition, match=f"{topic}-missing"):
            await missing
        assert 1 < time.monotonic() - started < 4
        with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 1"):
            await producer.send(topic, b"v", partition=1)
        with pytest.raises(errors.InvalidTopic):
            await producer.send("no/such name", b"v")


async def test_a_batch_over_the_topics_limit_is_split_and_nothing_is_lost(apache, topic):
    """On MESSAGE_TOO_LARGE the producer halves the batch until the topic accepts it, in order."""
    await create_topic(apache, topic, max_message_bytes=9_000)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        many = await producer.send_many(topic, [(None, value(n, 1000)) for n in range(200)])
        metas = await many
    assert [meta.offset for meta in metas] == list(range(200))
    messages = confluent_messages(apache.bootstrap_servers, topic, 200)
    assert [m.value() for m in messages] == [value(n, 1000) for n in range(200)]
    assert max(batch.size for batch in logged_batches(apache, topic)) <= 9_000


async def test_one_record_over_the_topics_limit_fails_alone(apache, topic):
    """Other records of the batch are delivered, and the sequence continues after the gap."""
    await create_topic(apache, topic, max_message_bytes=9_000)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        sizes = [100, 5000, 20_000, 5000, 100, 100]
        deliveries = [producer.send_nowait(topic, value(n, s)) for n, s in enumerate(sizes)]
        with pytest.raises(errors.RecordTooLarge):
            await deliveries[2]
        rest = deliveries[:2] + deliveries[3:]
        assert [(await each).offset for each in rest] == list(range(5))
        assert (await producer.send(topic, b"after")).offset == 5
    messages = confluent_messages(apache.bootstrap_servers, topic, 6)
    assert [m.value() for m in messages] == [
        *(value(n, s) for n, s in enumerate(sizes) if n != 2),
        b"after",
    ]


async def test_records_up_to_the_request_size(apache, topic):
    """A record of a megabyte is accepted; larger ones are rejected before they are accepted."""
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        large = bytes(1_040_000)
        metas = [await producer.send(topic, large, partition=0) for _ in range(3)]
        with pytest.raises(errors.RecordTooLarge, match="max_request_size"):
            producer.send_nowait(topic, bytes(1_100_000))
    assert [meta.offset for meta in metas] == [0, 1, 2]
    messages = confluent_messages(apache.bootstrap_servers, topic, 3)
    assert [len(m.value()) for m in messages] == [1_040_000] * 3


async def test_a_topic_that_stamps_by_arrival_tells_its_own_time(apache, topic):
    """With LogAppendTime the acknowledged timestamp is the broker's, as readers see it."""
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

    await create_topic(apache, topic, message_timestamp_type="LogAppendTime")
    async with aiokq.Producer(apache.bootstrap_servers, compression_type="gzip") as producer:
        metas = await (
            await producer.send_many(topic, [(None, b"v", None, BASE_TIME + n) for n in range(5)])
        )
    [message, *_] = confluent_messages(apache.bootstrap_servers, topic, 5)
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert {meta.timestamp_ms for meta in metas} == {timestamp_ms}
    assert abs(timestamp_ms - time.time() * 1000) < 60_000


async def test_a_codec_that_the_topic_forces_does_not_disturb(apache, topic):
    """The broker recompresses (compression.type=zstd): offsets and content are unchanged."""
    await create_topic(apache, topic, compression_type="zstd")
    async with aiokq.Producer(apache.bootstrap_servers, compression_type="gzip") as producer:
        metas = await (await producer.send_many(topic, [(None, value(n)) for n in range(50)]))
    assert [meta.offset for meta in metas] == list(range(50))
    assert {CODEC_NAMES[batch.codec] for batch in logged_batches(apache, topic)} == {"zstd"}
    messages = confluent_messages(apache.bootstrap_servers, topic, 50)
    assert [m.value() for m in messages] == [value(n) for n in range(50)]


async def test_what_a_topic_refuses_fails_typed_and_the_producer_goes_on(apache, topic):
    """A compacted topic rejects records without a key; the next batch is in sequence."""
    await create_topic(apache, topic, cleanup_policy="compact")
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        await producer.send(topic, b"v", b"k")
        with pytest.raises(errors.InvalidRecord):
            await producer.send(topic, b"v")
        for n in range(5):
            assert (await producer.send(topic, b"v", b"k")).offset == 1 + n


async def test_a_topic_deleted_and_made_again_while_producing(apache, topic):
    """Produce 13 uses topic ids: later records must reach the new topic."""
    await create_topic(apache, topic)
    async with (
        aiokq.Cluster(apache.bootstrap_servers) as cluster,
        cluster.producer() as producer,
        cluster.admin() as admin,
    ):
        for n in range(3):
            assert (await producer.send(topic, value(n))).offset == n
        await admin.delete_topics(topic, raise_errors=True)
        await admin.create_topics(topic, num_partitions=1, raise_errors=True)
        assert (await asyncio.wait_for(producer.send(topic, b"anew"), 20)).offset == 0
    [message] = confluent_messages(apache.bootstrap_servers, topic, 1)
    assert message.value() == b"anew"


async def test_closing_sends_what_lingers(apache, topic):
    """close() does not wait for a linger of 20 s, and loses no record (kafka4net's case 8)."""
    started = time.monotonic()
    async with aiokq.Producer(apache.bootstrap_servers, linger_ms=20_000) as producer:
        deliveries = [producer.send_nowait(topic, value(n), partition=0) for n in range(100)]
    assert time.monotonic() - started < 10
    assert [each.result().offset for each in deliveries] == list(range(100))


async def test_two_producers_of_one_cluster_and_order_by_key(apache, topic):
    """They share connections; each key's records stay in order (kafka4net's cases 10 and 21)."""
    await create_topic(apache, topic, 4)
    async with aiokq.Cluster(apache.bootstrap_servers) as cluster:
        async with cluster.producer() as first, cluster.producer(linger_ms=0) as second:

            async def send(producer: aiokq.Producer, name: str) -> None:
                for n in range(500):
                    await producer.enqueue(topic, b"%d" % n, f"{name} {n % 10}".encode())
                await producer.flush()

            await asyncio.gather(send(first, "first"), send(second, "second"))
        found: dict[bytes, list[int]] = {}
        for partition in range(4):
            async for batch in cluster.read((topic, partition)):
                for record in batch:
                    found.setdefault(record.key, []).append(int(record.value))
    assert len(found) == 20
    for key, numbers in found.items():
        assert numbers == list(range(int(key.split()[1]), 500, 10))


async def test_a_thousand_tasks_each_awaiting_its_own(apache, topic):
    """As in a web service: many tasks await their sends, and each record is written once."""
    await create_topic(apache, topic, 3)
    async with aiokq.Producer(apache.bootstrap_servers, compression_type="lz4") as producer:
        metas = await asyncio.gather(*(producer.send(topic, value(n)) for n in range(1000)))
    places = {(meta.partition, meta.offset) for meta in metas}
    assert len(places) == 1000
    found = 0
    async with aiokq.Cluster(apache.bootstrap_servers) as cluster:
        for partition in range(3):
            end = await cluster.offsets((topic, partition), "latest")
            assert end is not None
            found += end.offset
    assert found == 1000


@pytest.mark.parametrize("codec", CODECS)
async def test_single_requests_are_stored_unchanged(apache, topic, codec):
    """Cluster.produce needs no producer id; Kafka names the records of a compacted topic that it
    refuses (KIP-467)."""
    await create_topic(apache, topic, 2)
    await led(apache.bootstrap_servers, topic, 2)
    async with aiokq.Cluster(apache.bootstrap_servers) as cluster:
        await cluster.refresh(topic)
        batch = cluster.create_batch(compression_type=codec)
        for n in range(100):
            assert batch.append(value(n, 500), key=b"k%d" % n)
        results = await cluster.produce(
            {(topic, 0): batch, (topic, 1): batch}, node=(topic, 0), timeout_ms=5000
        )
        assert [result.error for result in results.values()] == [None, None]
        again = await cluster.produce({(topic, 0): batch}, node=(topic, 0), acks=1)
        assert again[topic, 0].base_offset == 100
        assert again[topic, 0].log_start_offset == 0
    batches = logged_batches(apache, topic, 0)
    assert {(CODEC_NAMES[each.codec], each.producer_id) for each in batches} == {(codec, -1)}
    messages = confluent_messages(apache.bootstrap_servers, topic, 200)
    assert [m.value() for m in messages] == 2 * [value(n, 500) for n in range(100)]


async def test_the_records_that_kafka_refuses_are_named(apache, topic):
    """A compacted topic refuses records without a key; the others can be sent again."""
    async with aiokq.Admin(apache.bootstrap_servers) as admin:
        await admin.create_topics(topic, configs={"cleanup.policy": "compact"})
    await led(apache.bootstrap_servers, topic, 1)
    async with aiokq.Cluster(apache.bootstrap_servers) as cluster:
        await cluster.refresh(topic)
        batch = cluster.create_batch()
        for n in range(5):
            batch.append(b"v%d" % n, key=None if n in (1, 3) else b"k")
        result = (await cluster.produce({(topic, 0): batch}, node=(topic, 0)))[topic, 0]
        assert isinstance(result.error, errors.InvalidRecord)
        assert set(result.record_errors) == {1, 3}
        assert all("without key" in str(text) for text in result.record_errors.values())
