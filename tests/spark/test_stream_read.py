"""Streaming reads end to end, and the traps of Spark's interface, one test each.

Traps 3 and 4, polls without pause and errors that end a query, are in test_scenarios_broker.py, and
in tests/unit/spark/test_latest_offsets.py.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import aiokq
from aiokq.spark.stream_reader import HAS_LIMITS
from tests.spark.conftest import CONNECTOR
from tests.spark.streams import PATIENCE, Stream, needs_limits, wait_for
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_there_is_read_once_and_the_next_run_goes_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The basic use; a checkpoint that cannot be read back would start again."""
    topics.create(topic, 3)
    topics.fill(topic, 10, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")

    stream.available_now(startingOffsets="earliest")
    first = stream.rows()
    topics.send(topic, [b"more"], 1)
    stream.available_now(startingOffsets="earliest")

    assert first == [(p, n, f"{p}:{n}") for p in range(3) for n in range(10)]
    assert sorted(set(stream.rows()) - set(first)) == [(1, 10, "more")]
    assert len(stream.rows()) == 31


# -- the traps


def test_a_crash_in_the_first_batch_does_not_move_the_beginning(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 1: Spark asks for the initial offset again after it, when "latest" is another offset."""
    topics.create(topic)
    topics.fill(topic, 5)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    crashing = stream.writer().foreachBatch(lambda batch, number: 1 / 0)
    failed = crashing.trigger(availableNow=True).start()
    with pytest.raises(PySparkException):
        failed.awaitTermination(PATIENCE)
    assert not (stream.home / "checkpoint" / "commits" / "0").exists()
    assert stream.offsets(0)[f"__aiokq_initial__.{topic}"] == {"0": 5}
    topics.send(topic, [b"meanwhile"])

    stream.available_now()
    if not HAS_LIMITS:
        stream.available_now()  # PySpark 4.1 has repeated the first batch only

    assert stream.rows() == [(0, 5, "meanwhile")]
    topics.send(topic, [b"later"])
    stream.available_now()
    assert len(stream.rows()) == 2
    last = max(stream.batches())
    assert f"__aiokq_initial__.{topic}" not in stream.offsets(last)


def test_offsets_in_another_order_make_no_batches(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 2: Spark compares offsets as texts; 15 empty batches in 6 s were seen."""
    topics.create(topic, 3)
    topics.fill(topic, 2, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    stream.available_now(startingOffsets="earliest")
    last = max(stream.batches())
    path = stream.home / "checkpoint" / "offsets" / str(last)
    lines = path.read_text().splitlines()
    reordered = {
        name: dict(reversed(offsets.items()))
        for name, offsets in reversed(json.loads(lines[2]).items())
    }
    path.write_text("\n".join([*lines[:2], json.dumps(reordered)]))
    (path.parent / f".{last}.crc").unlink(missing_ok=True)

    query = stream.writer().start()
    try:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and len(query.recentProgress) < 1:
            time.sleep(0.1)
        time.sleep(2)
    finally:
        query.stop()

    assert max(stream.batches()) <= last + 1
    assert len(stream.rows()) == 6


@needs_limits
def test_a_group_shows_the_progress_one_batch_behind(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 5: Spark commits a batch when it plans the next, and AvailableNow not the last one."""
    topics.create(topic)
    topics.fill(topic, 30)
    stream = Stream(spark, topics, topic, tmp_path / "query")

    stream.available_now(
        startingOffsets="earliest", maxOffsetsPerTrigger="10", commitGroup=f"{topic}-group"
    )

    async def committed(cluster: aiokq.Cluster) -> dict[int, int]:
        async with cluster.admin() as admin:
            found = await admin.list_group_offsets(f"{topic}-group", raise_errors=True)
            offsets = next(iter(found.values())).offsets
            return {tp.partition: item.offset for tp, item in offsets.items()}

    assert topics.run(committed) == {0: 20}


@pytest.mark.full
def test_a_query_that_was_stopped_goes_on_where_it_was(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 6: Spark does not call stop() but ends the process: nothing may depend on stop()."""
    topics.create(topic)
    topics.fill(topic, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    for expected in (3, 4):
        query = stream.writer(startingOffsets="earliest").start()
        wait_for(
            lambda expected=expected, query=query: (
                len(stream.rows()) == expected or not query.isActive
            )
        )
        query.stop()
        assert query.exception() is None
        topics.send(topic, [b"more"])

    assert len(stream.rows()) == 4


@pytest.mark.full
def test_streams_read_without_pushdown_where_it_is_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 7: a reader with pushFilters fails every read while Spark's setting is off."""
    topics.create(topic)
    topics.fill(topic, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")

    stream.available_now(startingOffsets="earliest", pushdown="true")

    assert len(stream.rows()) == 3


@pytest.mark.full
@needs_limits
def test_few_records_wait_for_more(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 8: Spark's limits do not combine, and its minimum number of rows has no delay.

    tests/unit/spark/test_micro_batches.py tests that the delay ends the wait.
    """
    topics.create(topic)
    topics.fill(topic, 2)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    query = stream.writer(
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxOffsetsPerTrigger="100",
        maxTriggerDelay="1h",
    ).start()
    try:
        wait_for(lambda: len(stream.rows()) == 2 or not query.isActive)
        topics.send(topic, [b"waits"])
        time.sleep(2)
        waited = stream.rows()
        topics.send(topic, [b"more"] * 4)
        wait_for(lambda: len(stream.rows()) == 7 or not query.isActive)
    finally:
        query.stop()

    assert query.exception() is None
    assert len(waited) == 2
    assert len(stream.rows()) == 7


@needs_limits
def test_available_now_keeps_to_limits_and_ends(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 9: without its mixin Spark would make a single batch of all records."""
    topics.create(topic, 2)
    topics.fill(topic, 20, 2)
    stream = Stream(spark, topics, topic, tmp_path / "query")

    query = stream.available_now(startingOffsets="earliest", maxOffsetsPerTrigger="10")

    sizes = [len(rows) for rows in stream.batches().values()]
    assert max(sizes) == 10
    assert sum(sizes) == 40
    source = query.recentProgress[0].sources[0]
    assert json.loads(source.latestOffset) == {topic: {"0": 20, "1": 20}}


def test_the_format_is_known_without_registering_it(spark: SparkSession) -> None:
    """Trap 10: Spark looks for modules called pyspark_*."""
    frame = (
        spark.readStream.format("aiokq")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("subscribe", "t")
        .load()
    )

    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    ]


def test_a_users_schema_chooses_the_columns_of_a_stream(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Trap 11: the only column pruning there is."""
    topics.create(topic)
    topics.fill(topic, 3)
    frame = (
        spark.readStream.format("aiokq")
        .schema("value binary")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        frame.writeStream.format("memory")
        .queryName(f"q_{topic}")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(PATIENCE)
    rows = spark.sql(f"select * from q_{topic}").collect()
    assert sorted(bytes(row.value) for row in rows) == [b"0:0", b"0:1", b"0:2"]


# -- beyond the traps


def test_a_checkpoint_of_the_jvm_connector_goes_on_with_ours(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """A job migrates by changing the name of the format, without reading anything twice."""
    if not any(CONNECTOR.glob("*.jar")):
        pytest.skip("Spark's own connector is not there: make connector")
    if spark.version.startswith("4.1."):
        pytest.skip("the connector that `make connector` fetches is of Spark 4.2")
    topics.create(topic, 2)
    topics.fill(topic, 10, 2)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    stream.available_now("kafka", startingOffsets="earliest")
    before = stream.rows()
    topics.send(topic, [b"more"], 1)

    stream.available_now("aiokq", startingOffsets="earliest")

    assert len(before) == 20
    assert sorted(set(stream.rows()) - set(before)) == [(1, 10, "more")]
    assert len(stream.rows()) == 21


def test_a_partition_that_is_added_is_read_from_its_beginning(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Records written before the query noticed the partition are read as well."""
    topics.create(topic)
    topics.fill(topic, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    query = stream.writer().start()
    try:
        wait_for(lambda: 0 in stream.batches())
        topics.add_partitions(topic, 2)
        topics.send(topic, [b"new"], 1)
        wait_for(lambda: len(stream.rows()) == 1)
    finally:
        query.stop()

    assert stream.rows() == [(1, 0, "new")]


@pytest.mark.full
def test_a_topic_made_again_is_noticed_by_its_id(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Its offsets have passed the old ones, so only the id shows it. failOnDataLoss both ways."""
    topics.create(topic)
    topics.fill(topic, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    stream.available_now(startingOffsets="earliest")
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, [b"second:%d" % n for n in range(5)])

    failed = stream.writer().trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="TOPIC_RECREATED"):
        failed.awaitTermination(PATIENCE)
    stream.available_now(failOnDataLoss="false")

    assert [row[2] for row in stream.rows() if "second" in row[2]] == [
        f"second:{n}" for n in range(5)
    ]


@pytest.mark.full
def test_records_that_aged_out_are_a_loss_or_a_warning(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Retention has deleted records that the query had not read."""
    topics.create(topic)
    topics.fill(topic, 3)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    stream.available_now(startingOffsets="earliest")
    topics.send(topic, [b"lost", b"left"])
    topics.delete_records(topic, {0: 4})

    failed = stream.writer().trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="START_OFFSET_RESET"):
        failed.awaitTermination(PATIENCE)
    stream.available_now(failOnDataLoss="false")

    assert stream.rows()[3:] == [(0, 4, "left")]
