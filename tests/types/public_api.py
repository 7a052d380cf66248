"""How people write against the public API, for `make lint`: mypy must accept each line, and give
each result the type that is stated. Nothing runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import assert_type

import aiokq
from aiokq.errors import NotLeaderOrFollower, TopicExists
from aiokq.wire import MetadataRequest, MetadataResponse


async def produces(cluster: aiokq.Cluster) -> None:
    async with cluster.producer(linger_ms=5, acks="all") as producer:
        headers = [("h", b"v")]
        meta = await producer.send("orders", b"value", key=b"k", headers=headers)
        assert_type(meta, aiokq.RecordMetadata)
        assert_type(producer.send_nowait("orders", b"value"), aiokq.Delivery)
        delivery = await producer.enqueue("orders", b"value", partition=0, timestamp_ms=1)
        assert_type(await delivery, aiokq.RecordMetadata)
        delivery.add_done_callback(lambda done: print(done.result().offset))
        deliveries = await producer.send_many("orders", [(b"k", b"v"), (None, b"v")])
        assert_type(await deliveries, list[aiokq.RecordMetadata])
        print(len(deliveries), await deliveries[0])
        columns = aiokq.RecordColumns(1, value=(None, b"\0\0\0\0\1\0\0\0", b"v"))
        assert_type(await producer.send_columns("orders", columns), aiokq.Deliveries)
        assert_type(producer.send_columns_nowait("orders", columns), aiokq.Deliveries)
        await asyncio.wait_for(delivery, 1)
        await asyncio.gather(delivery, asyncio.shield(delivery))
        batch = producer.create_batch()
        await producer.send_batch(batch, "orders", partition=0)
        assert_type(await producer.partitions_for("orders"), set[int])
        await producer.flush()
        assert_type(await producer.close(timeout=1.0), aiokq.CloseReport)


async def produces_without_a_producer(cluster: aiokq.Cluster) -> None:
    batch = cluster.create_batch(compression_type="zstd", compression_level=3)
    columns = aiokq.RecordColumns(1, value=(None, b"\0\0\0\0\1\0\0\0", b"v"))
    for partition, rows in columns.rows_by_partition().items():
        assert_type(partition, int | None)
        assert_type(batch.append_columns(columns, rows), int)
    results = await cluster.produce({("orders", 0): batch}, node=("orders", 0), acks="all")
    assert_type(results["orders", 0], aiokq.ProduceResult)
    tp = aiokq.TopicPartition("orders", 0)
    by_partition = await cluster.produce({tp: batch}, node=1, acks=0, timeout_ms=100, timeout=1.0)
    print(by_partition[tp].error, by_partition[tp].record_errors.get(0))


async def processes(cluster: aiokq.Cluster) -> None:
    async def totals(record: aiokq.Record) -> aiokq.Outgoing:
        return aiokq.Outgoing("totals", record.value, key=record.key, timestamp_ms=1)

    def several(record: aiokq.Record) -> list[aiokq.Outgoing] | None:
        return [aiokq.Outgoing("a", b"1", headers=[("h", b"v")], partition=0)]

    async def each(batch: aiokq.RecordBatch[aiokq.Record]) -> AsyncIterator[aiokq.Outgoing]:
        for record in batch:
            yield aiokq.Outgoing("totals", record.value)

    report = await cluster.process(
        ["orders"],
        totals,
        group_id="billing",
        guarantee="exactly_once",
        concurrency=16,
        order_by="partition",
    )
    assert_type(report, aiokq.ProcessReport)
    await cluster.process("orders", each, group_id="g", batch=True)
    assert_type(
        await aiokq.process("127.0.0.1:9092", ["orders"], several, group_id="g", retries=3),
        aiokq.ProcessReport,
    )
    await aiokq.process("127.0.0.1:9092", ["orders"], totals)  # type: ignore[call-arg]
    await aiokq.process(
        "127.0.0.1:9092",
        ["orders"],
        totals,
        group_id="g",
        retry=3,  # type: ignore[call-arg]
    )


async def consumes(cluster: aiokq.Cluster) -> None:
    tp = aiokq.TopicPartition("orders", 0)
    async with cluster.consumer("orders", auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            assert_type(record, aiokq.Record)
        async for batch in consumer.batches():
            print(batch.topic, batch.partition, [each.offset for each in batch], batch.to_arrow())
        for stream in consumer.streams(4):
            async for record in stream:
                print(record.key, record.value, record.headers, record.timestamp_ms)
        many = await consumer.getmany(timeout=1.0, max_records=5)
        assert_type(many, dict[aiokq.TopicPartition, list[aiokq.Record]])
        consumer.subscribe(aiokq.TopicFilter("a.*", "ab.*"))
        consumer.assign([("orders", 0), tp])
        consumer.seek(("orders", 0), 5)
        ends = await consumer.end_offsets([tp])
        assert_type(ends, dict[aiokq.TopicPartition, int])
        await consumer.commit(ends)
        await consumer.commit({("orders", 0): 5})
        await consumer.offsets_for_times(ends)
        await consumer.offsets_for_times({("orders", 0): 5, tp: 6})


async def administers(admin: aiokq.Admin) -> None:
    try:
        created = await admin.create_topics([aiokq.NewTopic("orders", 3), "other"])
        print(created["orders"].num_partitions)
    except TopicExists as error:
        print(error.code, error.retriable)
    await admin.alter_configs({"orders": {"retention.ms": 5, "cleanup.policy": None}})
    changes = {"orders": {"retention.ms": "5"}}
    await admin.alter_configs(changes)
    tp = aiokq.TopicPartition("orders", 0)
    await admin.list_offsets({tp: "latest", ("orders", 1): 5})
    await admin.list_offsets({("orders", 1): "earliest"})
    await admin.delete_records({tp: 5})
    offsets = {("orders", 0): 5}
    await admin.delete_records(offsets)
    levels = {"metadata.version": 25}
    updated = await admin.update_features(levels, validate_only=True)
    assert_type(updated["metadata.version"], aiokq.FeatureUpdated)
    await admin.update_features({"group.version": aiokq.FeatureUpdate(0, "safe_downgrade"), "a": 1})


async def reaches_deeper(cluster: aiokq.Cluster) -> None:
    assert_type(await cluster.request(MetadataRequest(), node="any"), MetadataResponse)
    async for batch in cluster.read(("orders", 0), 0, 100, isolation_level="read_committed"):
        print(batch.next_offset)
    await cluster.fetch(aiokq.TopicPartition("orders", 0), 0, 1000)
    found = await cluster.offsets(("orders", 0), 12345)
    assert_type(found, aiokq.OffsetAndTimestamp | None)
    async for event in cluster.events():
        if isinstance(event, aiokq.BrokerUp):
            print(event.node_id)


async def opens() -> None:
    settings = aiokq.ProducerSettings(linger_ms=1, bootstrap_servers="a:1,b:2")
    async with aiokq.Producer(settings=settings, acks=1), aiokq.Admin(["a:1"], client_id="x"):
        pass
    async with aiokq.Consumer("orders", bootstrap_servers="a:1", group_id="billing"):
        pass
    async with aiokq.EmbeddedCluster(brokers=1, settings={"num.partitions": 4}) as kafka:
        assert_type(kafka.bootstrap_servers, str)
    with aiokq.EmbeddedCluster() as kafka:
        kafka.run(kafka.create_topic("orders", partitions=3))
    try:
        pass
    except (NotLeaderOrFollower, aiokq.errors.UnknownTopicOrPartition):
        pass
