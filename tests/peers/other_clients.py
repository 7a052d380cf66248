"""Write and read with other clients in one form: `Content` in partition 0.

Each client is a pair of blocking module-level functions `write(...)`, `read(...)` in `CLIENTS`.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.peers.apache_kafka import java_command

PATIENCE = 30.0
"""Seconds until a client that receives nothing is an error."""

JAVA_CLIENT = Path(__file__).parent / "JavaClient.java"


class Content(NamedTuple):
    """The content of a record, without its offset and its writer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


Write = Callable[[str, dict[str, str], Sequence[Content]], None]
"""Arguments: bootstrap servers, codec of each topic, records for each topic."""
Read = Callable[[str, Sequence[str], int], dict[str, list[Content]]]
"""Arguments: bootstrap servers, topics, records wanted of each topic."""


def content(record: Any) -> Content:
    """Convert a record of aiokq."""
    headers = tuple((name, value) for name, value in record.headers)
    return Content(record.key, record.value, headers, record.timestamp_ms)


# confluent-kafka


def confluent_message(message: Any) -> Content:
    """Convert a message of confluent-kafka."""
    _, timestamp_ms = message.timestamp()
    return Content(message.key(), message.value(), tuple(message.headers() or ()), timestamp_ms)


def confluent_messages(bootstrap: str, topic: str, count: int, **settings: object) -> list[Any]:
    """Return the first messages of a partition (`partition=0`), CRC checked; fail on an error."""
    from confluent_kafka import Consumer, TopicPartition

    partition = settings.pop("partition", 0)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    found: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=PATIENCE)
            assert messages, f"only {len(found)} of {count} records came"
            for message in messages:
                # The client looks for a group coordinator that it does not need; a broker without
                # coordinators eventually makes it report an error.
                if message.error() is None:
                    found.append(message)
                else:
                    assert "FindCoordinator" in message.error().str(), message.error()
    finally:
        consumer.close()
    return found


def read_with_confluent(
    bootstrap: str, topics: Sequence[str], count: int
) -> dict[str, list[Content]]:
    return {
        topic: [confluent_message(m) for m in confluent_messages(bootstrap, topic, count)]
        for topic in topics
    }


def write_with_confluent(
    bootstrap: str, codecs: dict[str, str], records: Sequence[Content], **settings: object
) -> None:
    from confluent_kafka import Producer

    for topic, codec in codecs.items():
        errors: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "linger.ms": 50,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=0,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=lambda error, _: errors.append(error) if error else None,  # noqa: B023
            )
        assert producer.flush(PATIENCE) == 0
        assert errors == []


# aiokafka


def read_with_aiokafka(
    bootstrap: str, topics: Sequence[str], count: int
) -> dict[str, list[Content]]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> dict[str, list[Content]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True
        )
        await consumer.start()
        found: dict[str, list[Content]] = {topic: [] for topic in topics}
        try:
            consumer.assign([TopicPartition(topic, 0) for topic in topics])
            for _ in range(count * len(topics)):
                record = await asyncio.wait_for(consumer.getone(), PATIENCE)
                found[record.topic].append(
                    Content(record.key, record.value, tuple(record.headers), record.timestamp)
                )
        finally:
            await consumer.stop()
        return found

    return asyncio.run(main())


def write_with_aiokafka(bootstrap: str, codecs: dict[str, str], records: Sequence[Content]) -> None:
    from aiokafka import AIOKafkaProducer

    async def main() -> None:
        for topic, codec in codecs.items():
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                max_batch_size=1 << 20,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                for each in sent:
                    await each
            finally:
                await producer.stop()

    asyncio.run(main())


# kafka-python


def read_with_kafka_python(
    bootstrap: str, topics: Sequence[str], count: int
) -> dict[str, list[Content]]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE * 1000),
        check_crcs=True,
    )
    found: dict[str, list[Content]] = {topic: [] for topic in topics}
    try:
        consumer.assign([TopicPartition(topic, 0) for topic in topics])
        for record in itertools.islice(consumer, count * len(topics)):
            found[record.topic].append(
                Content(record.key, record.value, tuple(record.headers), record.timestamp)
            )
    finally:
        consumer.close()
    return found


def write_with_kafka_python(
    bootstrap: str, codecs: dict[str, str], records: Sequence[Content]
) -> None:
    from kafka import KafkaProducer

    for topic, codec in codecs.items():
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            batch_size=1 << 20,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    partition=0,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            for each in sent:
                each.get(PATIENCE)
        finally:
            producer.close()


# Java


def java_client(bootstrap: str, *arguments: str, records: Sequence[Content] = ()) -> list[str]:
    """Run commands of JavaClient.java in one JVM; return the lines it prints."""
    command = java_command(str(JAVA_CLIENT), bootstrap, *arguments)
    lines = "".join(f"{_line(record)}\n" for record in records)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def read_with_java(bootstrap: str, topics: Sequence[str], count: int) -> dict[str, list[Content]]:
    commands = itertools.chain.from_iterable(("read", topic, str(count)) for topic in topics)
    found: dict[str, list[Content]] = {}
    for line in java_client(bootstrap, *commands):
        if line.startswith("topic "):
            current = found[line[6:]] = []
        else:
            current.append(_parsed(line))
    return found


def write_with_java(bootstrap: str, codecs: dict[str, str], records: Sequence[Content]) -> None:
    commands = itertools.chain.from_iterable(("write", *topic) for topic in codecs.items())
    java_client(bootstrap, *commands, records=records)


def java_partitions(bootstrap: str, topic: str, keys: Iterable[bytes]) -> list[int]:
    """Return the partition that Java's default partitioner chooses for each key."""
    records = [Content(key, b"", (), 0) for key in keys]
    return [int(n) for n in java_client(bootstrap, "partitions", topic, records=records)]


def _line(record: Content) -> str:
    headers = [f"{name}={_text(value)}" for name, value in record.headers]
    return " ".join([str(record.timestamp_ms), _text(record.key), _text(record.value), *headers])


def _parsed(line: str) -> Content:
    timestamp, key, value, *headers = line.split(" ")
    pairs = (header.split("=") for header in headers)
    return Content(
        _bytes(key), _bytes(value), tuple((n, _bytes(v)) for n, v in pairs), int(timestamp)
    )


def _text(data: bytes | None) -> str:
    return "null" if data is None else "x" + data.hex()


def _bytes(text: str) -> bytes | None:
    return None if text == "null" else bytes.fromhex(text[1:])


CLIENTS: dict[str, tuple[Write, Read]] = {
    "confluent-kafka": (write_with_confluent, read_with_confluent),
    "aiokafka": (write_with_aiokafka, read_with_aiokafka),
    "kafka-python": (write_with_kafka_python, read_with_kafka_python),
    "java": (write_with_java, read_with_java),
}
