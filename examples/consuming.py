"""The ways to consume: records, batches, parallel streams: `python examples/consuming.py`."""

from __future__ import annotations

import asyncio

import aiokq

RECORDS = 1_000


async def fill(cluster: aiokq.Cluster) -> None:
    async with cluster.admin() as admin:
        await admin.create_topics("clicks", num_partitions=4, raise_errors=True)
    async with cluster.producer() as producer:
        records = [(b"user-%d" % (number % 50), b"click %d" % number) for number in range(RECORDS)]
        await (await producer.send_many("clicks", records))


async def record_by_record(cluster: aiokq.Cluster) -> None:
    seen = 0
    async with cluster.consumer("clicks", auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            assert record.value is not None
            seen += 1
            if seen == RECORDS:
                break
    print(f"record by record: {seen}")


async def batch_by_batch(cluster: aiokq.Cluster) -> None:
    seen = 0
    async with cluster.consumer("clicks", auto_offset_reset="earliest") as consumer:
        async for batch in consumer.batches():
            seen += len(batch)
            if seen == RECORDS:
                break
    print(f"batch by batch: {seen}")


async def in_parallel(cluster: aiokq.Cluster) -> None:
    """Read with four tasks; exactly one task reads each partition, so keys stay in order."""
    counts = [0] * 4
    done = asyncio.Event()

    async with cluster.consumer("clicks", auto_offset_reset="earliest") as consumer:

        async def work(number: int, stream: aiokq.Stream) -> None:
            async for _ in stream:
                counts[number] += 1
                if sum(counts) == RECORDS:
                    done.set()

        async with asyncio.TaskGroup() as group:
            streams = consumer.streams(4)
            tasks = [group.create_task(work(n, stream)) for n, stream in enumerate(streams)]
            await done.wait()
            for task in tasks:
                task.cancel()
    print(f"in parallel: {sum(counts)}, shared as {counts}")


async def from_a_time(cluster: aiokq.Cluster) -> None:
    """Read assigned partitions from the offsets of a given time."""
    async with cluster.consumer() as consumer:
        partition = aiokq.TopicPartition("clicks", 0)
        consumer.assign([partition])
        found = await consumer.offsets_for_times({partition: 0})
        first = found[partition]
        assert first is not None
        consumer.seek(partition, first.offset)
        record = await consumer.getone()
        print(f"from a time: offset {record.offset} of {partition}")


async def main() -> None:
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Cluster(kafka.bootstrap_servers) as cluster,
    ):
        await fill(cluster)
        await record_by_record(cluster)
        await batch_by_batch(cluster)
        await in_parallel(cluster)
        await from_a_time(cluster)


if __name__ == "__main__":
    asyncio.run(main())
