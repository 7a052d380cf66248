"""Every row and column is the same as with Spark's own connector, for all that a log can hold.

One run of Apache Kafka writes it with other clients: codecs, headers, transactions of Java
(committed, aborted and open), a compacted log, a log whose beginning was deleted, formats 0 and 1.
The rows are read from Apache Kafka, and from aiokq's broker on a copy of its directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from aiokq.records import compression
from aiokq.records.legacy import Message, encode_message_set
from tests.interop.apache.directories import TOPICS, copy, fill
from tests.interop.test_codecs_across_clients import CODECS, RECORDS
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent
from tests.peers.broker_process import broker_process
from tests.peers.other_clients import write_with_confluent
from tests.spark.conftest import APACHE, CONNECTOR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.timeout(600), pytest.mark.full, pytest.mark.kafka]

TIME = 1_700_000_000_000
RICH = {f"rich-{codec}": codec for codec in CODECS}
LEGACY = {
    f"legacy-{magic}-{name}": (magic, codec)
    for magic in (0, 1)
    for name, codec in (
        ("none", compression.NONE),
        ("gzip", compression.GZIP),
        ("snappy", compression.SNAPPY),
        ("lz4", compression.LZ4),
    )
}
ALL = ",".join([*TOPICS, *RICH, *LEGACY])
KEEP = ("--profile", "dev", "--set", "log.retention.ms=-1")


def legacy_log(magic: int, codec: int) -> bytes:
    """Return message sets of an old format, one after the other, with gaps in the offsets."""
    parts = []
    for first in range(0, 60, 20):
        messages = [
            Message(
                offset,
                -1 if magic == 0 else TIME + offset,
                None if offset % 3 == 0 else b"key %d" % offset,
                None if offset % 7 == 0 else b"value %d " % offset * 5,
            )
            for offset in range(first, first + 20)
            if offset % 5 != 1
        ]
        parts.append(encode_message_set(messages, magic, codec))
    return b"".join(parts)


def write(apache: ApacheKafka) -> None:
    """Write everything; the node is down afterwards."""
    fill(apache)
    servers = apache.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in (*RICH, *LEGACY)]).values():
        future.result(30)
    write_with_confluent(servers, RICH, RECORDS)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": "sparks", "compression.type": "zstd"}
    )
    producer.init_transactions(60)
    for turn in range(6):
        producer.begin_transaction()
        for number in range(turn + 2):
            headers = [("turn", b"%d" % turn)]
            producer.produce(
                "transactions", b"%d:%d" % (turn, number), partition=0, headers=headers
            )
        producer.flush(30)
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)(60)
    apache.stop_node(1)
    node = apache.directory / "node-1"
    for name, (magic, codec) in LEGACY.items():
        (node / f"{name}-0" / f"{0:020}.log").write_bytes(legacy_log(magic, codec))
        for index in (node / f"{name}-0").glob("*index"):
            index.unlink()
    # Makes the node recover the logs at its next start.
    (node / ".kafka_cleanshutdown").unlink()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of Apache Kafka and of aiokq's broker, with the same logs."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    if not any(CONNECTOR.glob("*.jar")):
        pytest.skip("Spark's own connector is not there: make connector")
    path = tmp_path_factory.mktemp("written")
    with apache_kafka(heap="512M", **APACHE) as apache:
        write(apache)
        copy(apache.directory / "node-1", path / "data")
        apache.start_node(1)
        with broker_process(path / "data", *KEEP) as ours:
            yield {"apache": apache.bootstrap_servers, "ours": ours.bootstrap_servers}


def batch(spark: SparkSession, servers: str, format_: str, **options: str) -> list[Row]:
    frame = (
        spark.read.format(format_)
        .option("kafka.bootstrap.servers", servers)
        .option("includeHeaders", "true")
        .options(**{"subscribe": ALL, **options})
        .load()
    )
    return frame.orderBy("topic", "partition", "offset").collect()


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("where", ["apache", "ours"])
def test_all_rows_are_the_jvm_connectors(
    spark: SparkSession, served: dict[str, str], where: str, level: str
) -> None:
    """For both isolation levels, every column, and the order of rows in a partition."""
    options = {"kafka.isolation.level": level}

    ours, theirs = (
        batch(spark, served[where], format_, **options) for format_ in ("aiokq", "kafka")
    )

    assert ours == theirs
    found = {row.topic for row in ours}
    assert found == set(ALL.split(",")) - {"empty"}
    aborted = [row for row in ours if row.topic == "transactions" and row.value[:2] == b"1:"]
    assert len(aborted) == (0 if level == "read_committed" else 3)
    oldest = [row.timestampType for row in ours if row.topic == "legacy-0-gzip"]
    assert oldest == [-1] * 48


@pytest.mark.parametrize("where", ["apache", "ours"])
def test_rows_from_and_to_offsets_are_the_jvm_connectors(
    spark: SparkSession, served: dict[str, str], where: str
) -> None:
    """Ranges begin and end inside batches, inside transactions, and in gaps."""
    for start, stop in ((0, 3), (3, 11), (7, 24), (11, 12)):
        for topic in ("transactions", "compacted", "rich-zstd", "legacy-1-lz4"):
            options = {
                "subscribe": topic,
                "startingOffsets": json.dumps({topic: {"0": start}}),
                "endingOffsets": json.dumps({topic: {"0": stop}}),
                "failOnDataLoss": "false",
                "kafka.isolation.level": "read_committed",
            }
            ours, theirs = (
                batch(spark, served[where], format_, **options) for format_ in ("aiokq", "kafka")
            )
            assert ours == theirs, (topic, start, stop)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("where", ["apache", "ours"])
def test_all_rows_of_a_stream_are_the_jvm_connectors(
    spark: SparkSession, served: dict[str, str], where: str, level: str, tmp_path: Path
) -> None:
    """The batches have a limited size."""

    def stream(format_: str) -> list[Row]:
        rows: list[Row] = []

        def keep(frame: DataFrame, number: int) -> None:
            rows.extend(frame.collect())

        frame = (
            spark.readStream.format(format_)
            .option("kafka.bootstrap.servers", served[where])
            .option("kafka.isolation.level", level)
            .option("maxOffsetsPerTrigger", "900")
            .options(subscribe=ALL, startingOffsets="earliest", includeHeaders="true")
            .load()
        )
        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / format_))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(250)
        return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))

    assert stream("aiokq") == stream("kafka")
