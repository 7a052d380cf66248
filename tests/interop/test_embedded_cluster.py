"""EmbeddedCluster on real sockets: on a thread beside blocking code, and on the caller's loop."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.core.errors import Closed, ConfigError, KafkaStorage, TopicExists


def produce_and_consume(bootstrap_servers: str, topic: str, count: int = 100) -> list[int]:
    """Produce and consume with confluent-kafka; return the offsets read."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"v%d" % number, partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        offsets: list[int] = []
        while len(offsets) < count:
            messages = consumer.consume(count, timeout=20)
            assert messages
            offsets += [message.offset() for message in messages]
        return offsets
    finally:
        consumer.close()


def test_blocking_code_has_a_broker_beside_it():
    """`with` runs a thread with a loop of its own, which ends with the block."""
    with EmbeddedCluster() as kafka:
        assert produce_and_consume(kafka.bootstrap_servers, "t") == list(range(100))
        kafka.run(kafka.create_topic("made", 3))
        with pytest.raises(TopicExists):
            kafka.run(kafka.create_topic("made"))
        address = kafka.bootstrap_servers
    assert not [t for t in threading.enumerate() if t.name == "aiokq-broker"]
    with pytest.raises(Closed):
        _ = kafka.bootstrap_servers
    host, port = address.split(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), 1)


async def test_async_code_has_a_broker_on_its_own_loop():
    """`async with` on the caller's loop; blocking clients run in a thread."""
    async with EmbeddedCluster(settings={"num.partitions": 2}) as kafka:
        offsets = await asyncio.to_thread(produce_and_consume, kafka.bootstrap_servers, "t")
        assert offsets == list(range(100))
        assert len(kafka.node.topics.get("t").partitions) == 2


async def test_control_calls_from_another_loop_are_handed_over():
    """Node state is touched only from the node's own loop."""
    with EmbeddedCluster() as kafka:
        await kafka.create_topic("t", 2)
        with pytest.raises(TopicExists):
            await kafka.create_topic("t")
        await kafka.delete_topic("t")


def test_an_exception_in_the_block_still_stops_the_broker():
    """A failing test must not leave threads and directories to the next one."""
    directories = []

    def fail():
        with EmbeddedCluster() as kafka:
            directories.append(Path(kafka.node.storage.directories.online[0].path))
            assert directories[0].exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not directories[0].exists()
    assert not [t for t in threading.enumerate() if t.name == "aiokq-broker"]


def test_what_prevents_the_start_is_raised_where_it_was_entered():
    """In the broker's thread nobody would see the error."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(ConfigError, match="in use"),
            EmbeddedCluster(port=taken.getsockname()[1]),
        ):
            pass
    assert not [t for t in threading.enumerate() if t.name == "aiokq-broker"]


def test_a_data_directory_keeps_the_records_and_is_locked(tmp_path):
    """A second broker on the directory is refused; a later one finds all records."""
    with EmbeddedCluster(data_dir=tmp_path / "data") as kafka:
        produce_and_consume(kafka.bootstrap_servers, "t", 10)
        with (
            pytest.raises(KafkaStorage, match="in use"),
            EmbeddedCluster(data_dir=tmp_path / "data"),
        ):
            pass
    assert (tmp_path / "data" / "t-0" / "00000000000000000000.log").stat().st_size > 0
    with EmbeddedCluster(data_dir=tmp_path / "data") as kafka:
        assert kafka.run(end_offset(kafka)) == 10


LEFT_OPEN = """
import asyncio, warnings
import aiokq

warnings.simplefilter("always")

async def on_a_loop():
    kafka = aiokq.EmbeddedCluster()
    await kafka.start()

asyncio.run(on_a_loop())
aiokq.EmbeddedCluster().__enter__()
"""


def test_one_left_open_warns_and_leaves_no_directory(tmp_path):
    """Otherwise tests that forget to close their brokers would fill the disk."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "<EmbeddedCluster 127.0.0.1:" in done.stderr
    assert "was not closed: use `async with`" in done.stderr
    assert list(tmp_path.iterdir()) == []


async def end_offset(kafka: EmbeddedCluster) -> int:
    partition = kafka.node.topics.partition("t", 0)
    return partition.log.log_end_offset


def test_it_stops_at_once_with_clients_still_connected():
    """A suite of a thousand tests cannot wait for a consumer's long poll each time."""
    from confluent_kafka import Consumer, TopicPartition

    with EmbeddedCluster() as kafka:
        produce_and_consume(kafka.bootstrap_servers, "t", 1)
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "g",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 30_000,
                "socket.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("t", 0, 1)])
        assert consumer.consume(1, timeout=0.5) == []
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 3
    consumer.close()


def test_a_reset_between_tests_takes_less_than_five_milliseconds_of_a_processor():
    """A second per test would be too much for a suite of a thousand tests.

    `benchmarks.resets` measures the time; that depends on what else the machine does.
    """
    seconds = []
    with EmbeddedCluster() as kafka:
        for _ in range(15):
            for number in range(20):
                kafka.run(kafka.create_topic(f"t{number}"))
            began = time.process_time()
            kafka.run(kafka.reset())
            seconds.append(time.process_time() - began)
            assert kafka.node.topics.get("t0") is None
    assert min(seconds) < 0.005, seconds


def test_clients_of_other_makes_stay_connected_over_a_reset():
    """They notice that their topics are gone, and use the new topics of the same names."""
    from confluent_kafka import Consumer, Producer

    with EmbeddedCluster() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        try:
            for number in range(3):
                kafka.run(kafka.create_topic("t"))
                consumer.subscribe(["t"])
                producer.produce("t", b"%d" % number)
                assert producer.flush(20) == 0
                deadline = time.monotonic() + 30
                found = None
                while found is None and time.monotonic() < deadline:
                    message = consumer.poll(1)
                    if message is not None and message.error() is None:
                        found = message.value()
                assert found == b"%d" % number
                consumer.unsubscribe()
                kafka.run(kafka.reset())
        finally:
            consumer.close()


def test_a_cluster_begins_with_the_snapshot_of_another(tmp_path: Path):
    """Finished segments are linked, the rest is copied; the two clusters are independent."""
    settings = {"log.segment.bytes": 1_048_576}
    with EmbeddedCluster(settings=settings) as kafka:
        produce_and_consume(kafka.bootstrap_servers, "t", 100)
        kafka.run(kafka.snapshot(tmp_path / "seed"))
        produce_and_consume(kafka.bootstrap_servers, "t", 100)
        with pytest.raises(ConfigError, match="exists and is not an empty directory"):
            kafka.run(kafka.snapshot(tmp_path / "seed"))
    for _ in range(2):
        with EmbeddedCluster(restore_from=tmp_path / "seed") as kafka:
            topic = kafka.node.topics.get("t")
            assert topic.partitions[0].log.log_end_offset == 100
            assert len(produce_and_consume(kafka.bootstrap_servers, "t", 100)) == 100
    assert os.path.exists(tmp_path / "seed" / "meta.properties")
