"""A broker, a producer and a consumer in one program: `python examples/quickstart.py`."""

from __future__ import annotations

import asyncio

import aiokq


async def main() -> None:
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Cluster(kafka.bootstrap_servers) as cluster,
    ):
        async with cluster.producer() as producer:
            for number in range(3):
                metadata = await producer.send("greetings", b"hello %d" % number, key=b"k")
                print(f"written to {metadata.topic}-{metadata.partition} at {metadata.offset}")

        async with cluster.consumer("greetings", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                print(f"read {record.value!r} at {record.offset}")
                if record.offset == 2:
                    break


if __name__ == "__main__":
    asyncio.run(main())
