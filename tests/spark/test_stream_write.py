"""Streaming writes end to end: from a checkpoint, and after a kill of the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.checked import acknowledged, assert_written
from tests.spark.conftest import ROOT
from tests.spark.logs import log, values
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# A first batch starts six processes, two sessions four more: seconds, and half a minute where
# the machine does other things.
pytestmark = pytest.mark.timeout(900)


def copying(
    spark: SparkSession,
    servers: str,
    source: str,
    target: str,
    checkpoint: Path,
    limit: int | None = None,
    **options: str,
) -> DataStreamWriter:
    """Return a query, not started, that copies a topic in batches of limited size."""
    limits = {} if limit is None else {"maxOffsetsPerTrigger": str(limit)}
    frame = (
        spark.readStream.format("aiokq")
        .option("kafka.bootstrap.servers", servers)
        .options(subscribe=source, startingOffsets="earliest", **limits)
        .load()
        .select("key", "value")
    )
    return (
        frame.writeStream.format("aiokq")
        .queryName("copy")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(checkpoint))
        .options(topic=target, **options)
    )


def finish(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(400)


def test_a_stream_writes_what_it_reads_and_goes_on_from_its_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """After an orderly stop each row is there once."""
    target = f"{topic}-copy"
    topics.create(topic, 2)
    topics.create(target, 3)
    topics.fill(topic, 150, 2)

    def run() -> None:
        finish(copying(spark, topics.bootstrap_servers, topic, target, tmp_path))

    run()
    topics.send(topic, [b"more"])
    run()

    copied = sorted(record[1:3] for record in log(topics, target))
    assert copied == sorted(record[1:3] for record in log(topics, topic))
    assert len(copied) == 301


@pytest.mark.full
def test_a_killed_driver_goes_on_from_its_checkpoint_at_least_once(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The interrupted batch is written again: none of its rows may be missing."""
    target = f"{topic}-copy"
    topics.create(topic, 2)
    topics.create(target, 3)
    sent = topics.recorded_fill(topic, 2000, 2)
    servers = topics.bootstrap_servers
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.killed_writer", servers, topic, target, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 400
        while len(values(topics, target)) < 150:
            assert driver.poll() is None, "the driver ended by itself"
            assert time.monotonic() < deadline, "the driver wrote nothing"
            time.sleep(0.1)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(values(topics, target)) < 4000, "it was killed too late to show anything"

    finish(copying(spark, servers, topic, target, tmp_path))

    counts = Counter(values(topics, target))
    assert counts.keys() == set(values(topics, topic))
    assert max(counts.values()) <= 2
    written = list(acknowledged(target, (each.value for each in sent)))
    assert_written(topics, target, written, at_least_once=True)


def test_a_stream_is_refused_as_a_batch_is(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """At its start or with its first batch the query fails, and names the option."""
    topics.create(topic)
    topics.send(topic, [b"v"])

    with pytest.raises(PySparkException, match="option exactlyOnce: For input string"):
        finish(copying(spark, topics.bootstrap_servers, topic, topic, tmp_path, exactlyOnce="yes"))


@pytest.mark.full
def test_an_aggregate_is_written_in_complete_mode(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Each batch writes the whole table again, by key, as for a compacted topic."""
    table = f"{topic}-table"
    topics.create(topic, 2)
    topics.create(table, cleanup_policy="compact")

    def run() -> None:
        counts = (
            spark.readStream.format("aiokq")
            .option("kafka.bootstrap.servers", topics.bootstrap_servers)
            .options(subscribe=topic, startingOffsets="earliest")
            .load()
            .groupBy("value")
            .count()
            .selectExpr("value as key", "cast(count as string) as value")
        )
        query: Any = (
            counts.writeStream.format("aiokq")
            .outputMode("complete")
            .option("kafka.bootstrap.servers", topics.bootstrap_servers)
            .option("checkpointLocation", str(tmp_path))
            .option("topic", table)
        )
        finish(query)

    topics.send(topic, [b"a", b"a", b"b"])
    run()
    topics.send(topic, [b"b"], 1)
    run()

    assert {record.key: record.value for record in log(topics, table)} == {b"a": b"2", b"b": b"2"}
