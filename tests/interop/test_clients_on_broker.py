"""Unmodified other clients produce to and consume from `aiokq broker`."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import time

import pytest

from aiokq.records.compression import CODEC_NAMES
from tests.peers.broker_process import BrokerProcess, broker_process

# kafka-python itself reads its schemas with a deprecated function.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 300
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev") as running:
        yield running


@pytest.fixture
def topic():
    return f"interop-{next(_numbers)}"


def value(number: int) -> bytes:
    return f"value {number} ".encode() * 8


def stored_codecs(broker: BrokerProcess, topic: str) -> set[str]:
    batches = broker.batches(topic)
    assert sum(batch.count for batch in batches) == RECORDS
    return {CODEC_NAMES[batch.codec] for batch in batches}


# confluent-kafka (librdkafka)


def produce_with_confluent(broker: BrokerProcess, topic: str, **settings) -> list[int]:
    from confluent_kafka import Producer

    offsets: list[int] = []
    errors = []

    def delivered(error, message):
        (errors if error else offsets).append(error or message.offset())

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 20,
            **{name.replace("_", "."): setting for name, setting in settings.items()},
        }
    )
    for number in range(RECORDS):
        producer.produce(
            topic, value(number), key=b"k%d" % number, partition=0, on_delivery=delivered
        )
    assert producer.flush(20) == 0
    assert errors == []
    return offsets


def consume_with_confluent(broker: BrokerProcess, topic: str, **settings) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            **settings,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while len(values) < RECORDS:
            messages = consumer.consume(RECORDS, timeout=20)
            assert messages, f"only {len(values)} of {RECORDS} records came"
            for message in messages:
                if message.error() is not None:
                    # It asks for its group's coordinator, and reports that there is none.
                    assert "FindCoordinator" in message.error().str(), message.error()
                    continue
                assert message.offset() == len(values)
                values.append(message.value())
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_it_wrote(broker, topic, codec):
    """CRC checks are on; the log must have the chosen codec (lz4 depends on FindCoordinator)."""
    assert sorted(produce_with_confluent(broker, topic, compression_type=codec)) == list(
        range(RECORDS)
    )
    assert stored_codecs(broker, topic) == {codec}
    assert consume_with_confluent(broker, topic) == [value(n) for n in range(RECORDS)]


def test_confluent_kafka_with_idempotence_leaves_sequences_in_the_log(broker, topic):
    """InitProducerId and sequences; a retry could not duplicate a record."""
    produce_with_confluent(broker, topic, enable_idempotence=True)
    batches = broker.batches(topic)
    assert all(batch.producer_id >= 0 for batch in batches)
    sequence = 0
    for batch in batches:
        assert batch.base_sequence == sequence
        sequence += batch.count
    assert consume_with_confluent(broker, topic) == [value(n) for n in range(RECORDS)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_kafka_with_each_kind_of_acknowledgement(broker, topic, acks):
    """A response to a request with acks=0 would break the connection."""
    produce_with_confluent(broker, topic, acks=acks)
    assert consume_with_confluent(broker, topic) == [value(n) for n in range(RECORDS)]


def test_confluent_kafka_finds_offsets_by_time_and_watermarks(broker, topic):
    """ListOffsets with timestamps and both ends."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    first = time.time_ns() // 1_000_000 - 60_000  # retention deletes records of years ago
    for number in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=first + number * 1000)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        partition = TopicPartition(topic, 0)
        assert consumer.get_watermark_offsets(partition, timeout=10) == (0, 10)
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, first + 4500)], timeout=10)
        assert found.offset == 5
    finally:
        consumer.close()


def test_confluent_kafka_administers_topics(broker, topic):
    """AdminClient: create, describe configs, add partitions, delete records, delete."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    created = admin.create_topics(
        [NewTopic(topic, num_partitions=3, replication_factor=1, config={"retention.ms": "1000"})]
    )
    created[topic].result(10)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(10)
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    [configs] = [future.result(10) for future in described.values()]
    assert configs["retention.ms"].value == "1000"
    assert configs["segment.bytes"].value == "2000000"
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    produce_with_confluent(broker, topic)
    deleted = admin.delete_records([TopicPartition(topic, 0, 100)])
    [result] = [future.result(10) for future in deleted.values()]
    assert result.low_watermark == 100
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


# aiokafka


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_reads_what_it_wrote(broker, topic, codec):
    """The asyncio client uses Produce 8, Fetch 11 and record code of its own."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        enable_idempotence=True,
    )
    await producer.start()
    try:
        futures = [
            await producer.send(topic, value(number), partition=0) for number in range(RECORDS)
        ]
        assert [(await future).offset for future in futures] == list(range(RECORDS))
    finally:
        await producer.stop()
    assert stored_codecs(broker, topic) == {codec}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", check_crcs=True
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        values = [(await consumer.getone()).value for _ in range(RECORDS)]
    finally:
        await consumer.stop()
    assert values == [value(n) for n in range(RECORDS)]


# kafka-python


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_it_wrote(broker, topic, codec):
    """The blocking client in pure Python."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
    )
    try:
        futures = [producer.send(topic, value(n), partition=0) for n in range(RECORDS)]
        producer.flush(20)
        assert [future.get(20).offset for future in futures] == list(range(RECORDS))
    finally:
        producer.close()
    assert stored_codecs(broker, topic) == {codec}
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        check_crcs=True,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        values = [message.value for message in itertools.islice(consumer, RECORDS)]
    finally:
        consumer.close()
    assert values == [value(n) for n in range(RECORDS)]


# kcat


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_it_wrote(broker, topic, codec):
    """kcat uses librdkafka as Debian ships it, often years older than the wheel's."""
    lines = [value(number).decode().strip() for number in range(RECORDS)]
    command = ["kcat", "-b", broker.bootstrap_servers, "-t", topic, "-p", "0", "-X", "linger.ms=50"]
    subprocess.run(
        [*command, "-P", "-z", codec],
        input="\n".join(lines) + "\n",
        text=True,
        check=True,
        timeout=30,
    )
    assert stored_codecs(broker, topic) == {codec}
    read = subprocess.run(
        [*command, "-C", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert read.stdout.splitlines() == lines


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_lists_the_cluster(broker, topic):
    """A tool prints the metadata: broker, controller and topics."""
    produce_with_confluent(broker, topic)
    listed = subprocess.run(
        ["kcat", "-b", broker.bootstrap_servers, "-L", "-J"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    metadata = json.loads(listed.stdout)
    assert metadata["controllerid"] == broker.info["node_id"]
    assert [b["name"] for b in metadata["brokers"]] == [broker.bootstrap_servers]
    assert topic in [found["topic"] for found in metadata["topics"]]


# Across clients


async def test_what_one_make_wrote_another_reads(broker, topic):
    """The log has one format, whichever client wrote it."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    produce_with_confluent(broker, topic, compression_type="zstd")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        assert (await consumer.getone()).value == value(0)
    finally:
        await consumer.stop()
