"""The stream: delays per airport and day, kept up to date in a compacted topic while flights come.

A micro-batch writes the days that it changed, so a day comes many times, and its last record is
what counts. The watermark says when a day is over and its state can be forgotten.
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
"""How far behind the latest departure one may come, and still be counted.

A year goes by in seconds here. The three producers run ahead of each other by up to the 10,000
records that each has on its way, which is a month of 2013.
"""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What the query says of itself.

    Attributes:
        rows: flights read.
        batches: micro-batches that had any.
        late: flights behind the watermark, which are not counted in their day.
        forgotten: days whose state the watermark let go of.
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
    """Reads the topic from `starts` to its end, in micro-batches, and writes the days to `target`.

    Args:
        starts: of each partition, the offset of the first flight.
        records: how many there are; for the size of a micro-batch.
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
