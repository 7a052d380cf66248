"""Aggregations of the Spark job: delays per route and hour of day, and per airport and day."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FLIGHT = (
    "row INT, carrier STRING, origin STRING, dest STRING, hour INT, arr_delay INT, "
    "time_hour TIMESTAMP"
)
"""The fields of a flight's JSON that are used here."""

DELAYS = ("flights", "arrived", "minutes", "worst")
"""All of them are integers, so that sums computed in different ways are equal."""


def flights(records: DataFrame) -> DataFrame:
    """Return the flights in Kafka's records, which come from Parquet or from a topic."""
    from pyspark.sql import functions as f

    flight = f.from_json(f.col("value").cast("string"), FLIGHT)
    return records.select("partition", "offset", flight.alias("flight")).select(
        "partition", "offset", "flight.*"
    )


def by_route_and_hour(flown: DataFrame) -> DataFrame:
    """Return the columns route ("JFK-LAX"), hour (of the scheduled departure) and `DELAYS`."""
    from pyspark.sql import functions as f

    route = f.concat_ws("-", "origin", "dest")
    return flown.groupBy(route.alias("route"), "hour").agg(*_delays())


def by_airport_and_day(flown: DataFrame) -> DataFrame:
    """Return the columns airport, day (UTC) and `DELAYS`; for batches and streams."""
    from pyspark.sql import functions as f

    day = f.window("time_hour", "1 day")
    grouped = flown.groupBy(f.col("origin").alias("airport"), day.alias("day")).agg(*_delays())
    return grouped.withColumn("day", f.date_format("day.start", "yyyy-MM-dd"))


def as_records(delays: DataFrame, *key: str) -> DataFrame:
    """Return rows as records: the key is the named columns joined by "/", the value is JSON."""
    from pyspark.sql import functions as f

    mean = f.round(f.try_divide("minutes", "arrived"), 1).alias("mean_delay")
    return delays.select(
        f.concat_ws("/", *key).alias("key"),
        f.to_json(f.struct(*key, *DELAYS, mean)).alias("value"),
    )


def _delays() -> list[Column]:
    from pyspark.sql import functions as f

    return [
        f.count("*").alias("flights"),
        f.count("arr_delay").alias("arrived"),
        f.coalesce(f.sum("arr_delay"), f.lit(0)).alias("minutes"),
        f.max("arr_delay").alias("worst"),
    ]
