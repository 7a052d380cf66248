"""Contents of a topic, read without Spark: by this library's client, or by another one."""

from __future__ import annotations

from typing import NamedTuple

import confluent_kafka

import aiokq
from tests.spark.streams import Row
from tests.spark.topics import Topics


class Logged(NamedTuple):
    """A record of a log."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def log(topics: Topics, topic: str) -> list[Logged]:
    """Return all records, partition by partition, each in order of its offsets."""

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
    """Return the values only, as text."""
    return [(record.value or b"").decode() for record in log(topics, topic)]


def places(topics: Topics, topic: str, isolation_level: str = "read_uncommitted") -> list[Row]:
    """Return partition, offset and value of all records, read by confluent-kafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": topics.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 20,
        }
    )
    found: list[Row] = []
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        unread = set(partitions)
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, p, begin) for p in partitions])
        while unread:
            message = consumer.poll(30)
            assert message is not None, "confluent-kafka gets nothing"
            error = message.error()
            if error is None:
                found.append((message.partition(), message.offset(), message.value().decode()))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
    finally:
        consumer.close()
    return sorted(found)
