"""Logs with offsets that have no records: compacted, aborted, or transaction markers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka

import aiokq
from tests.spark.logs import places
from tests.spark.streams import PATIENCE
from tests.spark.topics import Topics


def compact(topics: Topics, topic: str) -> None:
    """Compact a topic of one partition until most records are gone; then switch it off."""
    topics.create(
        topic,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="300",
        max_compaction_lag_ms="500",
    )
    written = 0
    deadline = time.monotonic() + PATIENCE
    # Appends roll segments, so records are appended until most of the log is gone.
    while written < 60 or len(places(topics, topic)) > 40:
        assert time.monotonic() < deadline, "it is not compacted"

        async def write(cluster: aiokq.Cluster) -> None:
            async with cluster.producer() as producer:
                for n in range(20):
                    await producer.enqueue(topic, b"v", key=b"%d" % (n % 7), partition=0)

        topics.run(write)
        written += 20
        time.sleep(0.4)
    topics.run(lambda cluster: _configure(cluster, topic, "cleanup.policy", "delete"))


async def _configure(cluster: aiokq.Cluster, topic: str, name: str, value: str) -> None:
    async with cluster.admin() as admin:
        resource = aiokq.ConfigResource(aiokq.ConfigResourceType.TOPIC, topic)
        await admin.alter_configs({resource: {name: value}}, raise_errors=True)


class Transactions:
    """Transactions by confluent-kafka in partition 0 of a topic."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.topic = topic
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": topics.bootstrap_servers, "transactional.id": topic}
        )
        self.producer.init_transactions(60)

    @contextmanager
    def open(self, count: int, prefix: str) -> Iterator[Any]:
        self.producer.begin_transaction()
        for number in range(count):
            self.producer.produce(self.topic, f"{prefix}:{number}", partition=0)
        assert self.producer.flush(60) == 0
        yield self.producer

    def commit(self, count: int) -> None:
        with self.open(count, "committed") as producer:
            producer.commit_transaction(60)

    def abort(self, count: int) -> None:
        with self.open(count, "aborted") as producer:
            producer.abort_transaction(60)
