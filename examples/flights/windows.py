"""The stream: delays per airport and day in a compacted topic, updated as flights arrive.

Each micro-batch writes the days that it changed, so a day is written many times, and its last
record is valid. The watermark determines when a day is over and its state can be dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .aggregates import as_records, by_airport_and_day, flights
from .compacted import CompactedTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MICRO_BATCHES = 6
LATENESS = "60 days"
"""Maximum time by which a flight may be behind the latest departure and still be counted.

A year passes in seconds here. The producers may be apart by the 10,000 records that each has in
flight, which is a month of 2013.
"""


@dataclass(frozen=True, slots=True)
class Streamed:
    """Counts that the streaming query reports.

    Attributes:
        rows: number of flights read.
        batches: number of micro-batches with records.
        late: number of flights behind the watermark, which are not counted in their day.
        forgotten: number of days whose state was dropped because of the watermark.
    """

    rows: int
    batches: int
    late: int
    forgotten: int


def stream_days(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    starts: Mapping[int, int],
    records: int,
    target: CompactedTopic,
    checkpoint: Path,
) -> Streamed:
    """Read the topic from `starts` to its end in micro-batches, and write the days to `target`.

    Args:
        starts: for each partition, the offset of the first flight.
        records: number of records, which determines the size of a micro-batch.
    """
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {str(p): offset for p, offset in starts.items()}}),
        "maxOffsetsPerTrigger": str(max(1, -(-records // MICRO_BATCHES))),
        "columns": "value,partition,offset",
    }

    def write(days: DataFrame, _: int) -> None:
        target.write(as_records(days, "airport", "day"))

    flown = flights(spark.readStream.format("aiokq").options(**options).load())
    query = (
        by_airport_and_day(flown.withWatermark("time_hour", LATENESS))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination()
    progress = [json.loads(each.json) for each in query.recentProgress]
    states = [state for each in progress for state in each["stateOperators"]]
    return Streamed(
        rows=sum(each["numInputRows"] for each in progress),
        batches=sum(each["numInputRows"] > 0 for each in progress),
        late=sum(state["numRowsDroppedByWatermark"] for state in states),
        forgotten=sum(state["numRowsRemoved"] for state in states),
    )
