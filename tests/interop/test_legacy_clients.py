"""Clients from before Kafka 0.11 on a broker with `legacy`: old API versions and old formats.

kafka-python and librdkafka are configured to treat the broker as an old one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

import aiokq
from aiokq.records.compression import CODEC_NAMES
from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.other_clients import confluent_messages

pytestmark = [
    # kafka-python itself reads its schemas with a deprecated function.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

COUNT = 30
BASE_TIME = 1_700_000_000_000
KEEP = ("--profile", "dev", "--set", "log.retention.ms=-1")
"""Without retention, because the records are of 2023."""
NO_TIMESTAMP = -1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("legacy")
    with broker_process(directory, *KEEP, "--set", "legacy=true") as running:
        yield running


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("modern"), *KEEP) as running:
        yield running


def value(number: int) -> bytes:
    return b"value %d " % number * 10


def write_old(broker: BrokerProcess, topic: str, version: tuple[int, ...], codec: str) -> list[int]:
    """Write records with kafka-python; return the acknowledged offsets."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        api_version=version,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=False,
        acks="all",
        retries=0,
        linger_ms=20,
    )
    try:
        sent = [
            producer.send(topic, value(n), key=b"k%d" % n, partition=0, timestamp_ms=BASE_TIME + n)
            for n in range(COUNT)
        ]
        return [each.get(10).offset for each in sent]
    finally:
        producer.close(timeout=5)


def read_old(broker: BrokerProcess, topic: str, version: tuple[int, ...]) -> list[Any]:
    """Read with kafka-python from the earliest offset, with the old ListOffsets version."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        api_version=version,
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
        check_crcs=True,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return list(itertools.islice(consumer, COUNT))
    finally:
        consumer.close()


async def read_new(broker: BrokerProcess, topic: str) -> list[aiokq.Record]:
    async with (
        asyncio.timeout(15),
        aiokq.Consumer(
            topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer,
    ):
        return [await consumer.getone() for _ in range(COUNT)]


SMOKE = {((0, 9), "gzip"), ((0, 10), "lz4")}
OLD = [
    pytest.param(version, codec, marks=() if (version, codec) in SMOKE else pytest.mark.full)
    for version in ((0, 8, 2), (0, 9), (0, 10), (0, 10, 1))
    for codec in ("none", "gzip", "snappy", "lz4")
    # kafka-python needs one more package for the lz4 framing of that time; librdkafka has it.
    if not (codec == "lz4" and version < (0, 10))
]


@pytest.mark.parametrize(("version", "codec"), OLD)
async def test_what_old_kafka_python_writes_is_read_by_all(
    broker: BrokerProcess, topic: str, version: tuple[int, ...], codec: str
) -> None:
    """Message formats 0 and 1 are stored as batches of format 2 with the same codec and offsets."""
    assert write_old(broker, topic, version, codec) == list(range(COUNT))
    batches = broker.batches(topic)
    assert sum(batch.count for batch in batches) == COUNT
    assert {batch.magic for batch in batches} == {2}
    assert {CODEC_NAMES[batch.codec] for batch in batches} == {codec}
    written = [(n, b"k%d" % n, value(n)) for n in range(COUNT)]
    timed = version >= (0, 10)
    times = [BASE_TIME + n if timed else NO_TIMESTAMP for n in range(COUNT)]

    ours = await read_new(broker, topic)
    assert [(r.offset, r.key, r.value) for r in ours] == written
    assert [r.timestamp_ms for r in ours] == times

    theirs = confluent_messages(broker.bootstrap_servers, topic, COUNT)
    assert [(m.offset(), m.key(), m.value()) for m in theirs] == written
    assert [m.timestamp()[1] for m in theirs] == times

    old = read_old(broker, topic, version)
    assert [(r.offset, r.key, r.value) for r in old] == written
    assert [r.timestamp for r in old] == (times if timed else [None] * COUNT)


@pytest.mark.parametrize(("version", "codec"), OLD)
async def test_old_kafka_python_reads_what_new_clients_write(
    broker: BrokerProcess, topic: str, version: tuple[int, ...], codec: str
) -> None:
    """Records are down-converted: headers are dropped, offsets and keys are kept."""
    async with aiokq.Producer(
        broker.bootstrap_servers, compression_type=codec, linger_ms=20
    ) as producer:
        for n in range(COUNT):
            await producer.enqueue(
                topic,
                value(n),
                key=b"k%d" % n,
                partition=0,
                headers=[("h", b"v")],
                timestamp_ms=BASE_TIME + n,
            )
        await producer.flush()
    read = read_old(broker, topic, version)
    assert [(r.offset, r.key, r.value) for r in read] == [
        (n, b"k%d" % n, value(n)) for n in range(COUNT)
    ]
    if version >= (0, 10):
        assert [r.timestamp for r in read] == [BASE_TIME + n for n in range(COUNT)]


QUIET = logging.getLogger("librdkafka.quiet")
QUIET.propagate = False
QUIET.addHandler(logging.NullHandler())


@pytest.mark.parametrize(
    "codec",
    [*(pytest.param(each, marks=pytest.mark.full) for each in ("none", "gzip", "snappy")), "lz4"],
)
@pytest.mark.parametrize("version", [pytest.param("0.8.2", marks=pytest.mark.full), "0.9.0"])
async def test_librdkafka_that_takes_the_broker_for_an_old_one(
    broker: BrokerProcess, topic: str, version: str, codec: str
) -> None:
    """broker.version.fallback: format 0, and lz4 with the wrong header checksum of that time."""
    # Its warnings that these settings are deprecated are discarded.
    fallback = {
        "bootstrap.servers": broker.bootstrap_servers,
        "api.version.request": False,
        "broker.version.fallback": version,
        "logger": QUIET,
    }
    offsets: list[Any] = []
    producer = ConfluentProducer({**fallback, "compression.type": codec, "linger.ms": 20})
    for n in range(COUNT):
        producer.produce(
            topic,
            value(n),
            key=b"k%d" % n,
            partition=0,
            on_delivery=lambda error, message: offsets.append(error or message.offset()),
        )
    assert producer.flush(15) == 0
    assert offsets == list(range(COUNT))
    assert {CODEC_NAMES[batch.codec] for batch in broker.batches(topic)} == {codec}
    ours = await read_new(broker, topic)
    assert [(r.offset, r.value) for r in ours] == [(n, value(n)) for n in range(COUNT)]

    consumer = ConfluentConsumer(
        {**fallback, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        consumer.assign([ConfluentPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < COUNT:
            messages = consumer.consume(COUNT - len(found), timeout=10)
            assert messages, f"only {len(found)} of {COUNT} records came"
            # It also reports that no group coordinator is available.
            found += [m for m in messages if m.error() is None]
    finally:
        consumer.close()
    assert [(m.offset(), m.value()) for m in found] == [(n, value(n)) for n in range(COUNT)]


def test_without_legacy_old_formats_are_refused_with_words(
    modern: BrokerProcess, topic: str
) -> None:
    """As in Kafka 4, which has no Produce below 3, the client gets an error and does not hang."""
    from kafka.errors import KafkaError

    with pytest.raises(KafkaError, match=r"UnsupportedVersion|35"):
        write_old(modern, topic, (0, 10), "none")
    assert not list(Path(modern.data_dir).glob(f"{topic}-0/*.log")) or not modern.batches(topic)
