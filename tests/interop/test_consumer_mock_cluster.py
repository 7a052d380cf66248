"""aiokq's consumer against librdkafka's mock cluster, an independent broker implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as ConfluentProducer

from aiokq.consumer.consumer import Consumer
from tests.peers.mock_cluster import mock_cluster

PARTITIONS = 4


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with mock_cluster(brokers=3) as servers:
        yield servers


def produce(bootstrap: str, topic: str, count: int, codec: str = "none") -> dict[int, list[bytes]]:
    """Produce with confluent-kafka; return the values by partition."""
    written: dict[int, list[tuple[int, bytes]]] = {}
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
    )

    def delivered(error: object, message: object) -> None:
        assert error is None
        written.setdefault(message.partition(), []).append((message.offset(), message.value()))

    for n in range(count):
        producer.produce(topic, b"%d" % n, key=b"%d" % n, headers=[("n", b"%d" % n)],
                         on_delivery=delivered)  # fmt: skip
    assert producer.flush(30) == 0
    return {p: [value for _, value in sorted(values)] for p, values in written.items()}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_everything_that_librdkafka_wrote_is_read_in_order(
    bootstrap: str, codec: str
) -> None:
    """Three brokers, four partitions, each codec, checksums on."""
    topic = f"read-{codec}"
    written = produce(bootstrap, topic, 2_000, codec)
    read: dict[int, list[bytes | None]] = {}
    async with (
        asyncio.timeout(30),
        Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        count = 0
        async for record in consumer:
            read.setdefault(record.partition, []).append(record.value)
            assert record.headers == (("n", record.key),)
            count += 1
            if count == 2_000:
                break
        ends = await consumer.end_offsets(consumer.assignment())
        for tp, end in ends.items():
            assert await consumer.position(tp) == end
            assert consumer.lag(tp) == 0
    assert read == written


async def test_batches_streams_and_seeking(bootstrap: str) -> None:
    """The other ways of reading on the same brokers."""
    topic = "ways"
    produce(bootstrap, topic, 1_000)
    async with (
        asyncio.timeout(30),
        Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        count = 0
        async for batch in consumer.batches():
            count += len(batch)
            assert batch.to_arrow(["offset"]).num_rows == len(list(batch)) == len(batch)
            if count == 1_000:
                break
        await consumer.seek_to_beginning()
        seen: list[int] = []

        async def drain(stream: object) -> None:
            async for record in stream:
                seen.append(record.offset)
                if len(seen) == 1_000:
                    for other in streams:
                        other.close()

        streams = consumer.streams(2)
        async with asyncio.TaskGroup() as tasks:
            for stream in streams:
                tasks.create_task(drain(stream))
        assert len(seen) == 1_000


async def test_records_that_come_while_it_waits_are_handed_over_at_once(bootstrap: str) -> None:
    """The long poll ends with the first record."""
    topic = "waits"
    produce(bootstrap, topic, 1)
    async with (
        asyncio.timeout(30),
        Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        await consumer.getone()
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.2)
        await asyncio.to_thread(produce, bootstrap, topic, 1)
        assert (await waiting).value == b"0"
