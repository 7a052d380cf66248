"""What is in a topic, read by this library's own client, without Spark."""

from __future__ import annotations

from typing import NamedTuple

import aiokq
from tests.spark.topics import Topics


class Logged(NamedTuple):
    """A record of a log."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def log(topics: Topics, topic: str) -> list[Logged]:
    """All records, partition by partition, each in order of its offsets."""

    async def work(cluster: aiokq.Cluster) -> list[Logged]:
        metadata = await cluster.refresh(topic)
        found: list[Logged] = []
        for partition in sorted(metadata.topics[topic].partitions):
            place = aiokq.TopicPartition(topic, partition)
            offset = 0
            while records := await cluster.fetch(place, offset):
                found += [
                    Logged(
                        partition,
                        record.key,
                        record.value,
                        tuple(record.headers),
                        record.timestamp_ms,
                    )
                    for record in records
                ]
                offset = records.next_offset
        return found

    return topics.run(work)


def values(topics: Topics, topic: str) -> list[str]:
    """Only the values, as text."""
    return [(record.value or b"").decode() for record in log(topics, topic)]
