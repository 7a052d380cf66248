"""Batch writes end to end: the records in the log, and the errors of failed jobs."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.peers.broker_process import broker_process
from tests.spark.conftest import CONNECTOR
from tests.spark.logs import log, values
from tests.spark.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

HEADERS = "array<struct<key:string,value:binary>>"


def write(
    frame: DataFrame, servers: str, format_: str = "aiokq", mode: str = "append", **options: str
) -> None:
    """Write a frame; two underscores in an option stand for a dot."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    (
        frame.write.format(format_)
        .mode(mode)
        .option("kafka.bootstrap.servers", servers)
        .options(**named)
        .save()
    )


def test_rows_are_written_as_the_jvm_connector_writes_them(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """Keys, values, headers, and the partition of each key equal those of Spark's own connector.

    Records without a key may go to any partition in both.
    """
    if not any(CONNECTOR.glob("*.jar")):
        pytest.skip("Spark's own connector is not there: make connector")
    frame = (
        spark.range(500)
        .selectExpr(
            "concat('schlüssel-', id % 97) as key",
            "if(id % 7 = 0, null, cast(concat('v', id) as binary)) as value",
            f"cast(if(id % 3 = 0, null, array(struct('h' as key, cast(id as string) as value), "
            f"struct('empty' as key, null as value))) as {HEADERS}) as headers",
            "id as ignored",
        )
        .coalesce(1)
    )
    written = []
    for format_ in ("aiokq", "kafka"):
        topics.create(f"{topic}-{format_}", 5)
        write(frame, topics.bootstrap_servers, format_, topic=f"{topic}-{format_}")
        written.append([record[:4] for record in log(topics, f"{topic}-{format_}")])

    ours, theirs = written
    assert ours == theirs
    assert len(ours) == 500
    assert len({record[0] for record in ours}) == 5
    assert any(record[2] is None for record in ours)


def test_rows_choose_their_topic_partition_and_time(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """One frame for several topics; rows of a partition keep their order."""
    names = [f"{topic}-{n}" for n in range(2)]
    for name in names:
        topics.create(name, 3)
    frame = (
        spark.range(90)
        .selectExpr(
            "cast(id as string) as value",
            f"concat('{topic}-', id % 2) as topic",
            "cast(id % 3 as int) as partition",
            "timestamp_millis(1700000000000 + id) as timestamp",
        )
        .coalesce(1)
    )

    write(frame, topics.bootstrap_servers)

    for n, name in enumerate(names):
        assert [(r.partition, int(r.value or b""), r.timestamp_ms) for r in log(topics, name)] == [
            (partition, number, 1_700_000_000_000 + number)
            for partition in range(3)
            for number in range(90)
            if number % 2 == n and number % 3 == partition
        ]


def test_a_topic_that_is_read_and_written_is_a_copy(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """A frame that was read can be written: keys, values, headers, partitions and timestamps."""
    copy = f"{topic}-copy"
    for name in (topic, copy):
        topics.create(name, 2)
    topics.fill(topic, 50, 2)
    frame = (
        spark.read.format("aiokq")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(subscribe=topic, includeHeaders="true")
        .load()
    )

    write(frame, topics.bootstrap_servers, topic=copy)

    assert log(topics, copy) == log(topics, topic)


def test_the_time_is_that_of_writing_where_a_row_has_none(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """A timestamp of 0 or -1 would let retention delete the record at once."""
    topics.create(topic)
    before = datetime.now(UTC).timestamp() * 1000 - 1000
    frame = spark.range(1).selectExpr("'v' as value", "cast(null as timestamp) as timestamp")

    write(frame, topics.bootstrap_servers, topic=topic)

    assert log(topics, topic)[0].timestamp_ms > before


def test_a_null_value_deletes_a_key_of_a_compacted_topic(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """b"" would be a value; the compression is the user's choice."""
    topics.create(topic, cleanup_policy="compact")
    first = spark.range(3).selectExpr("cast(id as string) as key", "'x' as value")
    second = spark.range(1).selectExpr("'1' as key", "cast(null as binary) as value")

    for frame in (first.coalesce(1), second):
        write(frame, topics.bootstrap_servers, topic=topic, kafka__compression__type="zstd")

    table = {record.key: record.value for record in log(topics, topic)}
    assert table == {b"0": b"x", b"1": None, b"2": b"x"}


def test_tasks_that_fail_are_tried_again_and_nothing_is_missing(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """At least once: rows of a failed attempt stay, the others are written by the next attempt."""
    topics.create(topic, 2)

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 2 and context.attemptNumber() < 2:
                raise RuntimeError("injected")
            yield batch

    frame = (
        spark.range(0, 40_000, 1, 2)
        .selectExpr("cast(id as string) as key", "cast(id as string) as value")
        .mapInArrow(fail_once, "key string, value string")
    )
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(size, "5000")
    try:
        write(frame, topics.bootstrap_servers, topic=topic)
    finally:
        spark.conf.unset(size)

    counts = Counter(int(value) for value in values(topics, topic))
    assert sorted(counts) == list(range(40_000))
    assert max(counts.values()) <= 3


@pytest.mark.full
def test_a_failed_task_leaves_nothing_to_the_next_one(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """Workers are reused: an error of one job must not fail another."""
    topics.create(topic)
    frame = spark.range(10).selectExpr("'v' as value")
    with pytest.raises(PySparkException, match="partition -1"):
        write(frame.selectExpr("value", "-1 as partition"), topics.bootstrap_servers, topic=topic)

    write(frame, topics.bootstrap_servers, topic=topic)

    assert values(topics, topic) == ["v"] * 10


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("overwrite", "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append"),
        pytest.param("ignore", '"Ignore" mode', marks=pytest.mark.full),
    ],
)
def test_other_save_modes_are_refused(
    spark: SparkSession, topics: Topics, topic: str, mode: str, text: str
) -> None:
    """A log cannot be overwritten. Spark itself refuses "Ignore"."""
    frame = spark.range(1).selectExpr("'v' as value")

    with pytest.raises(PySparkException) as caught:
        write(frame, topics.bootstrap_servers, mode=mode, topic=topic)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("value", {"topik": "t"}, "there is no option 'topik': did you mean topic"),
        (
            "value",
            {"topic": "t", "exactlyOnce": "true"},
            "option exactlyOnce: a batch write has no query id",
        ),
        ("value as key", {"topic": "t"}, "Required attribute 'value' not found"),
        *(
            pytest.param(columns, options, text, marks=pytest.mark.full)
            for columns, options, text in [
                (
                    "value",
                    {"topic": "t", "kafka__key__serializer": "x"},
                    "'key.serializer' is not supp",
                ),
                ("value", {}, "topic option required when no 'topic' attribute is present"),
                ("1 as value", {"topic": "t"}, "value attribute unsupported type int"),
            ]
        ),
    ],
)
def test_a_job_is_refused_before_it_runs(
    spark: SparkSession, topics: Topics, columns: str, options: dict[str, str], text: str
) -> None:
    """In the driver; the error names the option or the column."""
    frame = spark.range(1).selectExpr("'v' as value").selectExpr(columns)

    with pytest.raises(PySparkException) as caught:
        write(frame, topics.bootstrap_servers, **options)
    assert text in str(caught.value)
    assert "Failed to initialize Python data source writer" in str(caught.value)


def test_a_row_without_a_topic_fails_its_task(spark: SparkSession, topics: Topics) -> None:
    """With the message of Spark's own connector."""
    frame = spark.range(1).selectExpr("'v' as value", "cast(null as string) as topic")

    with pytest.raises(PySparkException, match="contains a null topic"):
        write(frame, topics.bootstrap_servers)


@pytest.mark.full
def test_a_missing_topic_and_a_missing_partition_are_named(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """After max.block.ms, as in Java's producer."""
    frame = spark.range(10).selectExpr("'v' as value")
    patience = {"kafka__max__block__ms": "500", "kafka__allow__auto__create__topics": "false"}

    with pytest.raises(PySparkException, match=f"{topic}-absent") as caught:
        write(frame, topics.bootstrap_servers, topic=f"{topic}-absent", **patience)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(caught.value)

    topics.create(topic, 2)
    with pytest.raises(PySparkException, match=f"10 records not delivered to {topic}-7"):
        write(
            frame.selectExpr("value", "7 as partition").coalesce(1),
            topics.bootstrap_servers,
            topic=topic,
            **patience,
        )


@pytest.mark.full
def test_a_broker_that_is_away_is_named(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    """Without metadata at the start, and without acknowledgements later."""
    frame = spark.range(10).selectExpr("'v' as value")
    patience = {
        "kafka__bootstrap__timeout__ms": "500",
        "kafka__request__timeout__ms": "400",
        "kafka__delivery__timeout__ms": "800",
    }
    with broker_process(tmp_path, "--profile", "dev") as broker:
        servers = broker.bootstrap_servers
        Topics(servers).create(topic)
        write(frame, servers, topic=topic, **patience)
        broker.stop(signal.SIGKILL)

        with pytest.raises(PySparkException) as caught:
            write(frame, servers, topic=topic, **patience)
    assert "10 records not delivered" in str(caught.value) or servers in str(caught.value)
