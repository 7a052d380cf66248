"""Events of a cluster as typed objects: `python examples/watching.py`."""

from __future__ import annotations

import asyncio

import aiokq


async def main() -> None:
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Cluster(kafka.bootstrap_servers) as cluster,
        cluster.admin() as admin,
        cluster.producer() as producer,
    ):
        events = cluster.events()
        await producer.send("orders", b"makes the topic known")
        await admin.create_partitions({"orders": 3}, raise_errors=True)
        await producer.partitions_for("orders")
        async for event in events:
            print(event)
            if isinstance(event, aiokq.TopicAdded):
                break
        await events.aclose()
        topic = cluster.metadata.topics["orders"]
        print(f"{topic.name} has the leaders {[p.leader for p in topic.partitions.values()]}")


if __name__ == "__main__":
    asyncio.run(main())
