"""Shared by the tests on directories: fill one with all that Apache Kafka stores, and read it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.apache_kafka import ROOT, ApacheKafka, java_command
from tests.peers.other_clients import PATIENCE

JAVA_TRANSACTIONS = ROOT / "tests" / "peers" / "JavaTransactions.java"

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "codecs": NewTopic("codecs", 2, 1, config={"retention.ms": "864000000"}),
    "transactions": NewTopic("transactions", 1, 1),
    "unfinished": NewTopic("unfinished", 1, 1),
    "compacted": NewTopic(
        "compacted",
        1,
        1,
        config={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "200",
            "max.compaction.lag.ms": "1000",
        },
    ),
    "cut": NewTopic("cut", 1, 1),
    "empty": NewTopic("empty", 7, 1),
}
BEGINNING = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
LOG_START = 7
COMMITTED = 23
BASE_TIME = 1_700_000_000_000


class Row(NamedTuple):
    """A record with everything that a reader can see of it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


Rows = dict[tuple[str, int], list[Row]]


def fill(apache: ApacheKafka) -> None:
    """Write everything that a directory can hold."""
    bootstrap = apache.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    gone = NewTopic("gone", 3, 1)
    for future in admin.create_topics([*TOPICS.values(), gone]).values():
        future.result(PATIENCE)
    command = java_command(str(JAVA_TRANSACTIONS), bootstrap, "transactions", "unfinished")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as java:
        try:
            fill_beside(bootstrap, admin)
            _, complaint = java.communicate(timeout=PATIENCE)
        finally:
            java.kill()
    assert java.returncode == 0, complaint.decode()


def fill_beside(bootstrap: str, admin: AdminClient) -> None:
    """Write what needs no Java client, while Java starts."""
    for codec in CODECS:
        produce(bootstrap, "codecs", 40, codec=codec)
    for turn in range(6):
        produce(bootstrap, "compacted", 20, turn=turn)
        time.sleep(0.25)
    produce(bootstrap, "cut", 20)
    produce(bootstrap, "gone", 5)
    before = [confluent_kafka.TopicPartition("cut", 0, LOG_START)]
    for cut in admin.delete_records(before).values():
        cut.result(PATIENCE)
    for future in admin.delete_topics(["gone"]).values():
        future.result(PATIENCE)
    commit(bootstrap, "workers", "codecs", {0: COMMITTED, 1: COMMITTED + 1})
    commit(bootstrap, "others", "cut", {0: 11})
    wait_until_compacted(bootstrap)


def wait_until_compacted(bootstrap: str) -> None:
    """Wait until the cleaner has left one record per key outside the newest segment."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        produce(bootstrap, "compacted", 1, turn=99)
        if len(read(bootstrap, {"compacted": 1})["compacted", 0]) < 60:
            return
        time.sleep(0.3)
    raise AssertionError("Apache Kafka does not compact")


def produce(
    bootstrap: str, topic: str, count: int, *, codec: str = "none", turn: int = 0
) -> list[tuple[int, int]]:
    """Write records with keys and headers, some without a value; return their places."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": codec == "zstd",
            "linger.ms": 50,
            "sticky.partitioning.linger.ms": 10,
        }
    )
    places: list[tuple[int, int]] = []

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        places.append((message.partition(), message.offset()))

    partitions = TOPICS[topic].num_partitions if topic in TOPICS else 1
    for number in range(count):
        producer.produce(
            topic,
            key=b"key %d" % (number % 20),
            value=None if number % 11 == 10 else b"%s %d %d " % (codec.encode(), turn, number) * 9,
            headers=[("codec", codec.encode()), ("none", None)] if number % 3 else None,
            partition=number % partitions,
            on_delivery=delivered,
        )
    producer.flush(PATIENCE)
    assert len(places) == count
    return places


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit without being a member, with retries while the coordinator is loading."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [confluent_kafka.TopicPartition(topic, p, o) for p, o in offsets.items()]
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
            break
        except confluent_kafka.KafkaException as error:
            if time.monotonic() > deadline or error.args[0].code() not in BEGINNING:
                raise
            time.sleep(0.05)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [confluent_kafka.TopicPartition(topic, number) for number in range(partitions)]
    found = [one.offset for one in consumer.committed(asked, PATIENCE)]
    consumer.close()
    return found


def go_on(bootstrap: str, group: str, topic: str, count: int) -> list[tuple[int, int]]:
    """Read `count` records as a member of the group, commit, and return their places."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def read(bootstrap: str, topics: dict[str, int], isolation: str = "read_uncommitted") -> Rows:
    """Read some topics, given with their partition counts, from beginning to end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "auto.offset.reset": "earliest",
        }
    )
    asked = [
        confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING)
        for topic, count in topics.items()
        for number in range(count)
    ]
    rows: Rows = {(one.topic, one.partition): [] for one in asked}
    consumer.assign(asked)
    left = set(rows)
    deadline = time.monotonic() + PATIENCE
    while left and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        place = (message.topic(), message.partition())
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            left.discard(place)
            continue
        rows[place].append(
            Row(
                message.offset(),
                message.timestamp(),
                message.key(),
                message.value(),
                tuple(message.headers() or ()),
                message.leader_epoch(),
            )
        )
    consumer.close()
    assert not left, f"not read to their ends: {left}"
    return rows


def paused_copy(apache: ApacheKafka, target: Path) -> None:
    """Copy the directory as SIGKILL would leave it at this moment."""
    apache.pause_node(1)
    try:
        copy(apache.directory / "node-1", target)
    finally:
        apache.resume_node(1)


def copy(source: Path, target: Path) -> None:
    """Copy a directory with its holes, because Kafka preallocates 10 MB for each active index."""
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)
    (target / ".lock").unlink(missing_ok=True)


def started_on(apache: ApacheKafka, directory: Path) -> ApacheKafka:
    """Start Apache Kafka on the given log directory instead of its own."""
    own = apache.directory / "node-1"
    if own.exists():
        shutil.rmtree(own)
    os.rename(directory, own)
    (apache.directory / "node-1.properties").write_text(apache.configuration(1))
    apache.start_node(1)
    return apache


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the content of every file in a directory."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def complaints(apache: ApacheKafka, *expected: str) -> list[str]:
    """Return warnings and errors in Apache Kafka's log, except harmless and expected lines.

    "Stopped loading records" is harmless: a slow node is stopped while its coordinators
    still load, after the test has asked for the committed offsets.
    """
    harmless = ("NetworkClient", "controller activation", "Stopped loading records", *expected)
    return [
        line
        for line in (apache.directory / "node-1.out").read_text().splitlines()
        if (" WARN " in line or " ERROR " in line) and not any(text in line for text in harmless)
    ]
