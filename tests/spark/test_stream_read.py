"""Streaming reads end to end, and the traps of Spark's interface, one test each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


class Stream:
    """A query whose batches are kept as text files, by the number of the batch."""

    def __init__(self, spark: SparkSession, topics: Topics, topic: str, home: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.topic = topic
        self.home = home

    def writer(self, format_: str = "aiokq", **options: str) -> DataStreamWriter:
        frame = (
            self.spark.readStream.format(format_)
            .option("kafka.bootstrap.servers", self.topics.bootstrap_servers)
            .option("subscribe", self.topic)
            .options(**options)
            .load()
        )

        def keep(batch: DataFrame, number: int) -> None:
            rows = batch.selectExpr("partition", "offset", "string(value) as value").collect()
            text = json.dumps([list(row) for row in rows])
            (self.home / f"batch-{number}.json").write_text(text)

        self.home.mkdir(exist_ok=True)
        return frame.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(self.home / "checkpoint")
        )

    def available_now(self, format_: str = "aiokq", **options: str) -> StreamingQuery:
        """Read what is there; the query that did."""
        query = self.writer(format_, **options).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        return query

    def rows(self) -> list[tuple[int, int, str]]:
        return sorted(row for batch in self.batches().values() for row in batch)

    def batches(self) -> Mapping[int, list[tuple[int, int, str]]]:
        """The rows of each batch that was run."""
        return {
            int(path.stem.split("-")[1]): [tuple(row) for row in json.loads(path.read_text())]
            for path in sorted(self.home.glob("batch-*.json"))
        }

    def offsets(self, batch: int) -> dict[str, Any]:
        """What the checkpoint has as the end of a batch."""
        lines = (self.home / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        offset: dict[str, Any] = json.loads(lines[2])
        return offset


def test_what_is_there_is_read_once_and_the_next_run_goes_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The plainest use; a checkpoint that cannot be read back would begin again."""
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
