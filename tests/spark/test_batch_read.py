"""Batch reads end to end: format("aiokq") in a session, on our broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrameReader

from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reader(spark: SparkSession, topics: Topics, topic: str, **options: str) -> DataFrameReader:
    return (
        spark.read.format("aiokq")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topic)
        .options(**options)
    )


def test_all_rows_of_all_partitions_come_once(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    """A packed range left out, or read by two tasks, would show in the counts."""
    topics.create(topic, 5)
    topics.fill(topic, 200, 5)

    frame = reader(spark, topics, topic).load()

    rows = frame.selectExpr("string(value)", "partition", "offset").collect()
    assert sorted(rows) == sorted(
        (f"{partition}:{offset}", partition, offset)
        for partition in range(5)
        for offset in range(200)
    )
