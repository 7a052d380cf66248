"""Topics whose records are recorded for `aiokq.testing.check`: filled, and read to their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import aiokq
from aiokq.admin.topics import NewTopic
from aiokq.testing import Copy, Isolation, Recorder, Report, check

__all__ = ["checked_copy", "create_topics", "fill", "judged", "read_to_end"]


async def create_topics(servers: str, *topics: str, partitions: int) -> None:
    async with aiokq.Admin(servers) as admin:
        await admin.create_topics([NewTopic(t, partitions) for t in topics], raise_errors=True)


async def fill(
    servers: str, recorder: Recorder, topic: str, values: Iterable[str], *, partitions: int
) -> None:
    """Send values in turn to each partition, without a transaction; the key is the value."""
    async with aiokq.Producer(servers) as producer:
        recorded = recorder.producer(producer, f"filler of {topic}")
        await asyncio.gather(
            *(
                recorded.send(topic, v.encode(), key=v.encode(), partition=number % partitions)
                for number, v in enumerate(values)
            )
        )


async def read_to_end(
    cluster: aiokq.Cluster, recorder: Recorder, topic: str, *, partitions: int
) -> list[str]:
    """Read what is committed, twice; record the polls and the ends; return the values in order."""
    values: list[str] = []
    for partition in range(partitions):
        for process in ("final-1", "final-2"):
            async with cluster.consumer(
                isolation_level="read_committed", auto_offset_reset="earliest"
            ) as consumer:
                consumer.assign([(topic, partition)])
                reader = recorder.consumer(consumer, process, isolation=Isolation.READ_COMMITTED)
                end = (await consumer.end_offsets([(topic, partition)]))[topic, partition]
                while await consumer.position((topic, partition)) < end:
                    records = await reader.poll(timeout=0.2)
                    if process == "final-1":
                        values += [(record.value or b"").decode() for record in records]
        await recorder.finish(cluster, topic, partition)
    return values


async def judged(
    servers: str, recorder: Recorder, topics: Sequence[str], *, partitions: int
) -> tuple[Report, dict[str, list[str]]]:
    """Read topics to their ends; return the checker's report and the values of each topic."""
    async with aiokq.Cluster(servers) as cluster:
        found = {
            topic: await read_to_end(cluster, recorder, topic, partitions=partitions)
            for topic in topics
        }
    return check(recorder.history), found


async def checked_copy(
    servers: str,
    recorder: Recorder,
    source: str,
    target: str,
    values: Sequence[str],
    *,
    partitions: int,
) -> None:
    """Assert that a copier copied exactly `values`, and that the checker condemns nothing."""
    recorder.add(Copy(source, target))
    report, found = await judged(servers, recorder, [source, target], partitions=partitions)
    assert report.ok, report
    assert sorted(found[source]) == sorted(values)
    assert sorted(found[target]) == sorted(values)
