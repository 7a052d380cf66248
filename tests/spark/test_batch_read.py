"""Batch reads end to end: format("aiokq") in a session, with the aiokq broker."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import aiokq
from tests.spark.conftest import CONNECTOR
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def reader(
    spark: SparkSession, topics: Topics, topic: str, format_: str = "aiokq", **options: str
) -> DataFrameReader:
    if not {"assign", "subscribePattern", "subscribe"} & options.keys():
        options["subscribe"] = topic
    return (
        spark.read.format(format_)
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(**options)
    )


def places(frame_reader: DataFrameReader) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in frame_reader.load().select("partition", "offset").collect())


def test_all_rows_of_all_partitions_come_once(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """A packed range that is skipped, or read by two tasks, would show in the counts.

    Nothing is registered: Spark finds the format by the module's name.
    """
    topics.create(topic, 5)
    topics.fill(topic, 200, 5)

    frame = reader(spark, topics, topic).load()

    rows = frame.selectExpr("string(value)", "partition", "offset").collect()
    assert sorted(rows) == sorted(
        (f"{partition}:{offset}", partition, offset)
        for partition in range(5)
        for offset in range(200)
    )


def test_rows_and_schema_are_the_jvm_connectors(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """All columns, including headers: a job migrates by changing the name of the format."""
    if not any(CONNECTOR.glob("*.jar")):
        pytest.skip("Spark's own connector is not there: make connector")
    topics.create(topic, 2)

    async def send(cluster: aiokq.Cluster) -> None:
        async with cluster.producer() as producer:
            for partition in range(2):
                for n in range(20):
                    await producer.enqueue(
                        topic,
                        None if n % 5 == 0 else b"v%d" % n,
                        key=None if n % 3 == 0 else b"k%d" % n,
                        headers=[("h", b"1"), ("empty", None)] if n % 2 else None,
                        partition=partition,
                        timestamp_ms=1_700_000_000_123 + n,
                    )

    topics.run(send)
    frames = [
        reader(spark, topics, topic, format_, includeHeaders="true").load()
        for format_ in ("aiokq", "kafka")
    ]

    assert frames[0].schema == frames[1].schema
    ours, theirs = (frame.orderBy("partition", "offset").collect() for frame in frames)
    assert ours == theirs
    assert len(ours) == 40


def test_offsets_limit_what_is_read(spark: SparkSession, topics: Topics, topic: str) -> None:
    """From one offset to another in each partition, including -2 and -1 for the ends."""
    topics.create(topic, 2)
    topics.fill(topic, 10, 2)

    found = places(
        reader(
            spark,
            topics,
            topic,
            startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
            endingOffsets=json.dumps({topic: {"0": 5, "1": -1}}),
        )
    )

    assert found == [(0, 3), (0, 4), *((1, n) for n in range(10))]


def test_times_limit_what_is_read(spark: SparkSession, topics: Topics, topic: str) -> None:
    """From the first record at or after one time to the first at or after another."""
    topics.create(topic)

    async def send(cluster: aiokq.Cluster) -> None:
        async with cluster.producer() as producer:
            for n in range(10):
                await producer.send(topic, b"x", timestamp_ms=1_700_000_000_000 + n * 1000)

    topics.run(send)

    found = places(
        reader(
            spark, topics, topic, startingTimestamp="1700000002500", endingTimestamp="1700000006000"
        )
    )

    assert found == [(0, 3), (0, 4), (0, 5)]


def test_partitions_are_assigned_and_topics_found_by_pattern(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """A pattern matches any part of a name, as in Spark's own connector."""
    topics.create(topic + "-a", 2)
    topics.create(topic + "-ab")
    topics.create(topic + "-abc")
    topics.fill(topic + "-a", 2, 2)
    topics.fill(topic + "-ab", 2)
    topics.fill(topic + "-abc", 3)

    assigned = places(reader(spark, topics, topic, assign=json.dumps({topic + "-a": [1]})))
    matched = places(reader(spark, topics, topic, subscribePattern=topic + "-.b?$"))
    both = places(reader(spark, topics, topic, subscribe=f"{topic}-a, {topic}-ab"))

    assert assigned == [(1, 0), (1, 1)]
    assert matched == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 1)]
    assert both == matched
    anywhere = places(reader(spark, topics, topic, subscribePattern=topic[1:] + "-ab"))
    assert len(anywhere) == 5
    if any(CONNECTOR.glob("*.jar")):
        theirs = places(
            reader(spark, topics, topic, format_="kafka", subscribePattern=topic[1:] + "-ab")
        )
        assert theirs == anywhere


def test_a_users_schema_and_columns_choose_columns(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """Spark does not prune columns of Python sources; the option does it."""
    topics.create(topic)
    topics.fill(topic, 3)

    by_schema = reader(spark, topics, topic).schema("OFFSET bigint, value binary").load()
    by_option = reader(spark, topics, topic, columns="offset,value").load()

    assert by_schema.columns == ["OFFSET", "value"]
    assert by_option.columns == ["offset", "value"]
    assert by_schema.collect() == by_option.collect() == [(n, b"0:%d" % n) for n in range(3)]


def test_an_empty_topic_has_no_rows(spark: SparkSession, topics: Topics, topic: str) -> None:
    """No task reads the None that Spark would create."""
    topics.create(topic, 3)

    assert reader(spark, topics, topic).load().count() == 0


def test_min_partitions_and_max_records_make_tasks(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """A small topic is one task, unless the user asks for more."""
    topics.create(topic, 4)
    topics.fill(topic, 50, 4)

    def tasks(**options: str) -> int:
        return int(reader(spark, topics, topic, **options).load().rdd.getNumPartitions())

    assert tasks() == 1
    assert tasks(minPartitions="6") == 6
    assert tasks(maxRecordsPerPartition="50") == 4


def test_a_reader_that_stops_early_leaves_the_worker_as_it_was(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """LIMIT closes the generator early; the next task uses the same client."""
    topics.create(topic, 2)
    topics.fill(topic, 20_000, 2)

    for _ in range(3):
        assert len(reader(spark, topics, topic).load().limit(5).collect()) == 5
    assert reader(spark, topics, topic).load().count() == 40_000


def test_every_codec_is_read(spark: SparkSession, topics: Topics, topic: str) -> None:
    """Workers decompress the batches."""
    topics.create(topic)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topics.send(topic, [b"x" * 1000] * 50, compression_type=codec)

    frame = reader(spark, topics, topic).schema("value binary").load()

    assert [bytes(row[0]) for row in frame.collect()] == [b"x" * 1000] * 250


def test_filters_choose_what_is_read_where_that_is_allowed(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """Spark refuses readers that take filters unless a setting is on, so pushdown is opt-in."""
    topics.create(topic, 3)
    topics.fill(topic, 10, 3)
    wanted = "partition = 1 and offset >= 4 and offset < 6"

    assert reader(spark, topics, topic).load().where(wanted).count() == 2
    with pytest.raises(PySparkException, match=PUSHDOWN):
        reader(spark, topics, topic, pushdown="true").load().where(wanted).count()
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = reader(spark, topics, topic, pushdown="true").load().where(wanted)
        rows = sorted((row.partition, row.offset) for row in frame.collect())
        plan = frame._jdf.queryExecution().executedPlan().toString()
        young = reader(spark, topics, topic, pushdown="true").load()
        none = young.where("timestamp > timestamp'2990-01-01' and topic in ('x')").count()
    finally:
        spark.conf.set(PUSHDOWN, "false")

    assert rows == [(1, 4), (1, 5)]
    assert none == 0
    assert "Filter" not in plan.split("BatchScan")[0]


@pytest.mark.full
def test_registering_carries_what_the_session_knows(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """Planner processes have no session: the number of tasks comes with the class."""
    from aiokq.spark import AiokqDataSource, register

    topics.create(topic, 3)
    topics.fill(topic, 5, 3)

    source = register(spark, tasks=7)

    assert issubclass(source, AiokqDataSource)
    assert source.tasks == 7
    assert reader(spark, topics, topic).load().count() == 15
    assert register(spark).tasks == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        *(
            pytest.param(options, message, marks=pytest.mark.full)
            for options, message in [
                ({"assign": '{"t":[0]}', "subscribe": "t"}, "Only one of the following options"),
                ({"startingOffsets": "{"}, "Expected e.g."),
                ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not"),
            ]
        ),
    ],
)
def test_bad_options_are_told_in_the_driver(
    spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], message: str
) -> None:
    """By name, before anything is read."""
    with pytest.raises(PySparkException) as error:
        reader(spark, topics, topic, **options).load().count()
    assert message in str(error.value)


def test_a_missing_topic_is_named(spark: SparkSession, topics: Topics, topic: str) -> None:
    """The request does not create it."""
    with pytest.raises(PySparkException) as error:
        reader(spark, topics, topic, **{"kafka.default.api.timeout.ms": "1000"}).load().count()
    assert topic in str(error.value)


def test_a_broker_that_is_away_is_named(spark: SparkSession, topics: Topics, topic: str) -> None:
    """With its address, after the configured timeout."""
    began = time.monotonic()
    with pytest.raises(PySparkException) as error:
        (
            spark.read.format("aiokq")
            .option("kafka.bootstrap.servers", "127.0.0.1:1")
            .option("kafka.bootstrap.timeout.ms", "500")
            .option("subscribe", topic)
            .load()
            .count()
        )
    assert "127.0.0.1:1" in str(error.value)
    assert time.monotonic() - began < 120


def test_offsets_outside_the_log_are_a_loss_or_a_warning(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """failOnDataLoss both ways: before the log start, and after the log end."""
    topics.create(topic)
    topics.fill(topic, 10)
    topics.delete_records(topic, {0: 4})
    old = {"startingOffsets": json.dumps({topic: {"0": 1}})}
    beyond = {"endingOffsets": json.dumps({topic: {"0": 15}})}

    with pytest.raises(PySparkException, match="START_OFFSET_RESET"):
        reader(spark, topics, topic, **old).load().count()
    with pytest.raises(PySparkException, match="COULD_NOT_READ_OFFSET_RANGE"):
        reader(spark, topics, topic, **beyond).load().count()
    with pytest.raises(PySparkException, match="is greater than the resolved end offset 10"):
        places(reader(spark, topics, topic, startingOffsets=json.dumps({topic: {"0": 12}})))
    tolerant = reader(spark, topics, topic, failOnDataLoss="false", **old, **beyond)
    assert places(tolerant) == [(0, n) for n in range(4, 10)]
