"""Changes of topics while a stream reads them, and logs with gaps at the ends of ranges."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.peers.apache_kafka import ApacheKafka
from tests.spark.gaps import Transactions, compact
from tests.spark.logs import places
from tests.spark.streams import Stream, ended, wait_for
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]

LEVELS = ["read_uncommitted", "read_committed"]


def test_partitions_added_while_a_stream_reads_are_read_from_their_beginning(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """A limited stream reads records from before and after it, or a later run, notices them."""
    either.create(topic)
    either.fill(topic, 30)
    stream = Stream(spark, either, topic, tmp_path / "query")
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    query = stream.writer(**options).start()
    try:
        wait_for(lambda: 0 in stream.batches())
        either.add_partitions(topic, 3)
        for partition in range(3):
            either.send(topic, [b"new"] * 25, partition)
        wait_for(lambda: len(stream.rows()) == 105)
    finally:
        query.stop()
    either.add_partitions(topic, 4)
    either.send(topic, [b"newest"] * 5, 3)

    stream.available_now(**options)

    assert stream.rows() == places(either, topic)


def test_a_topic_made_again_while_a_stream_reads_ends_it(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """It has more records than before, so only its id differs; failOnDataLoss both ways."""
    either.create(topic, 2)
    either.fill(topic, 3, 2)
    stream = Stream(spark, either, topic, tmp_path / "query")
    query = stream.writer(startingOffsets="earliest").start()
    try:
        wait_for(lambda: len(stream.rows()) == 6)
        before = stream.rows()
        either.delete(topic)
        either.create(topic, 2)
        either.fill(topic, 7, 2)
        told = ended(query)
    finally:
        query.stop()
    assert topic in told
    assert "TOPIC_RECREATED" in told or "UnknownTopicOrPartition" in told, told
    assert "TOPIC_RECREATED" in stream.fails()

    stream.available_now(failOnDataLoss="false")

    assert stream.rows() == sorted(before + places(either, topic))


def test_a_stream_that_begins_at_what_aged_out_says_so(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """Retention has deleted records between planning and reading."""
    either.create(topic)
    either.fill(topic, 10)
    either.delete_records(topic, {0: 4})
    starting = {"startingOffsets": json.dumps({topic: {"0": 1}})}
    stream = Stream(spark, either, topic, tmp_path / "query")

    assert "START_OFFSET_RESET" in stream.fails(**starting)
    stream.available_now(failOnDataLoss="false", **starting)
    either.send(topic, [b"more"])
    stream.available_now(**starting)

    assert stream.rows() == places(either, topic)
    assert stream.rows()[0][1] == 4


def test_retention_that_overtakes_a_stream_is_told_once(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """This also holds while the stream reads; the remaining records are read once."""
    either.create(topic)
    either.fill(topic, 40)
    stream = Stream(spark, either, topic, tmp_path / "query")
    stream.before_sink = lambda number: (
        either.delete_records(topic, {0: 25}) if number == 1 else None
    )
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}

    told = stream.fails(**options)
    assert "START_OFFSET_RESET" in told
    assert "failOnDataLoss" in told
    before = stream.rows()
    stream.available_now(failOnDataLoss="false", **options)

    assert [row[1] for row in before] == list(range(20))
    assert stream.rows() == before + places(either, topic)
    assert stream.rows()[20][1] == 25


def test_an_empty_topic_is_read_when_it_is_no_longer(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """It causes no batch except the first, which Spark always runs."""
    either.create(topic, 3)
    stream = Stream(spark, either, topic, tmp_path / "query")
    query = stream.writer(startingOffsets="earliest").start()
    try:
        wait_for(lambda: 0 in stream.batches())
        time.sleep(2)
        assert max(stream.batches()) == 0
        assert stream.rows() == []
        either.fill(topic, 3, 3)
        wait_for(lambda: len(stream.rows()) == 9)
    finally:
        query.stop()

    assert stream.rows() == places(either, topic)


# -- gaps


def test_ranges_end_in_what_compaction_removed(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """A reader that waited for the last record of a range would wait forever."""
    compact(either, topic)
    log = places(either, topic)
    end = log[-1][1] + 1
    missing = sorted(set(range(end)) - {offset for _, offset, _ in log})
    assert len(missing) > 20
    stream = Stream(spark, either, topic, tmp_path / "query")

    stream.available_now(startingOffsets="earliest", maxOffsetsPerTrigger="7")

    assert stream.rows() == log
    ends = {stream.offsets(batch)[topic]["0"] for batch in stream.batches()}
    assert ends & set(missing), "no range ended in a gap"
    for stop in (missing[0], missing[0] + 1, missing[len(missing) // 2], missing[-1] + 1):
        assert batch_rows(spark, either, topic, stop) == [r for r in log if r[1] < stop]


def batch_rows(
    spark: SparkSession, topics: Topics, topic: str, stop: int, **options: str
) -> list[tuple[int, int, str]]:
    frame = (
        spark.read.format("aiokq")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topic)
        .option("endingOffsets", json.dumps({topic: {"0": stop}}))
        .options(**options)
        .load()
    )
    rows = frame.selectExpr("partition", "offset", "string(value)").collect()
    return sorted(tuple(row) for row in rows)


@pytest.mark.kafka
@pytest.mark.parametrize("level", LEVELS)
def test_ranges_end_in_aborted_transactions_and_their_markers(
    spark: SparkSession, apache: ApacheKafka, topic: str, tmp_path: Path, level: str
) -> None:
    """Each batch ends somewhere else, the last one in an aborted transaction; one is open."""
    topics = Topics(apache.bootstrap_servers)
    topics.create(topic)
    work = Transactions(topics, topic)
    for count in (3, 1, 4, 2):
        work.commit(count)
        work.abort(count + 2)
    topics.send(topic, [b"plain"] * 3)
    work.abort(5)
    options = {"kafka.isolation.level": level}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    stream = Stream(spark, topics, topic, tmp_path / "query")

    with work.open(2, "late") as producer:
        stream.available_now(**limits, **options)
        open_ = places(topics, topic, level)
        assert stream.rows() == open_
        producer.commit_transaction(60)
    stream.available_now(**limits, **options)

    log = places(topics, topic, level)
    assert stream.rows() == log
    assert len(open_) == len(log) - (2 if level == "read_committed" else 0)
    end = max(stream.offsets(batch)[topic]["0"] for batch in stream.batches())
    for stop in range(1, end + 1, 4):
        rows = batch_rows(spark, topics, topic, stop, **options)
        assert rows == [r for r in log if r[1] < stop]
