"""aiokafka consuming: `async for`, or `getmany`."""

from __future__ import annotations

import asyncio

import uvloop

from benchmarks.contenders.measure import Load, arguments, measured


async def run(load: Load) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=load.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        await consumer._client._wait_on_metadata(load.topic)
        partitions = consumer.partitions_for_topic(load.topic) or {0, 1, 2, 3}
        assigned = [TopicPartition(load.topic, p) for p in partitions]
        consumer.assign(assigned)
        for partition in assigned:
            consumer.seek(partition, 0)
        size = 0
        seen = 1
        await consumer.getone()
        with measured(load.records):
            if load.shape == "getmany":
                while seen < load.records:
                    batches = await consumer.getmany(timeout_ms=1000)
                    for records in batches.values():
                        for record in records:
                            size += len(record.value)
                        seen += len(records)
            else:
                async for record in consumer:
                    size += len(record.value)
                    seen += 1
                    if seen >= load.records:
                        break
    finally:
        await consumer.stop()


if __name__ == "__main__":
    load = arguments()
    (uvloop.run if load.loop == "uvloop" else asyncio.run)(run(load))
