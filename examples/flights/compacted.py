"""A compacted topic for results of a Spark job: the last record of each key is valid."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import aiokq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .findings import Group

PARTITIONS = 2


class CompactedTopic:
    """The records that one run writes to a compacted topic, behind those of earlier runs.

    The topic is created if it does not exist. Memory: `latest` holds all keys.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._starts = asyncio.run(self._open())

    async def _open(self) -> dict[str, int]:
        async with aiokq.Cluster(self._bootstrap) as cluster, cluster.admin() as admin:
            if self.name not in await admin.list_topics():
                compacted = {"cleanup.policy": "compact"}
                new = aiokq.NewTopic(self.name, PARTITIONS, configs=compacted)
                await admin.create_topics(new, raise_errors=True)
            described = (await admin.describe_topics([self.name], raise_errors=True))[self.name]
            places = [aiokq.TopicPartition(self.name, p.partition) for p in described.partitions]
            ends = await admin.list_offsets(dict.fromkeys(places, "latest"), raise_errors=True)
        return {str(place.partition): end.offset for place, end in ends.items()}

    def write(self, records: DataFrame) -> None:
        """Append a frame with the columns key and value."""
        writer = records.write.format("aiokq").mode("append")
        writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", self.name).save()

    def latest(self, spark: SparkSession) -> tuple[dict[str, Group], int]:
        """Return the last value of each key, and the number of records of all keys."""
        from pyspark.sql import functions as f

        records = (
            spark.read.format("aiokq")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self.name)
            .option("startingOffsets", json.dumps({self.name: self._starts}))
            .option("columns", "key,value,offset")
            .load()
        )
        # All records of a key are in one partition, so the last is the one with the largest offset.
        last = records.groupBy("key").agg(
            f.max_by("value", "offset").alias("value"), f.count("*").alias("records")
        )
        rows = last.collect()
        return (
            {bytes(row["key"]).decode(): json.loads(row["value"]) for row in rows},
            sum(row["records"] for row in rows),
        )
