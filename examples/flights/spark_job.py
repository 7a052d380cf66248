"""The Spark part of the job: load, aggregate, stream, write back, read back."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from .aggregates import as_records, by_airport_and_day, by_route_and_hour, flights
from .compacted import CompactedTopic
from .findings import Findings, Results
from .lake import Loaded, load
from .spark_session import spark_session
from .windows import stream_days

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkJob:
    """The Spark job on the records of one run.

    Args:
        starts: for each partition, the offset of the run's first flight.
        records: number of records of the run.
        directory: directory for files; those of an earlier run are removed.
    """

    def __init__(
        self,
        console: Console,
        bootstrap: str,
        topic: str,
        starts: Mapping[int, int],
        records: int,
        directory: Path,
    ) -> None:
        self._console = console
        self._bootstrap = bootstrap
        self._topic = topic
        self._starts = starts
        self._records = records
        self._directory = directory

    def run(self) -> Findings:
        """Run all steps, and print the seconds of each."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        parquet = self._directory / "parquet"
        with self._step(f"aiokq spark load {self._topic} --to {parquet}"):
            loaded = load(self._bootstrap, self._topic, self._starts, parquet)
        with ExitStack() as stack:
            with self._step("a Spark session"):
                spark = stack.enter_context(spark_session(self._directory / "scratch"))
            return self.analyse(spark, parquet, loaded)

    def analyse(self, spark: SparkSession, parquet: Path, loaded: Loaded) -> Findings:
        """Run the steps after the load.

        Args:
            parquet: directory of the loaded files.
            loaded: counts of the loaded files.
        """
        routes_topic = CompactedTopic(self._bootstrap, f"{self._topic}-delays")
        days_topic = CompactedTopic(self._bootstrap, f"{self._topic}-days")
        with self._step(f"delays per route and hour, to topic {routes_topic.name}"):
            flown = flights(spark.read.parquet(str(parquet))).cache()
            records = as_records(by_route_and_hour(flown), "route", "hour").cache()
            routes_topic.write(records)
            routes = _by_key(records)
        with self._step(f"a stream with windows of a day, to topic {days_topic.name}"):
            streamed = stream_days(
                spark,
                self._bootstrap,
                self._topic,
                self._starts,
                self._records,
                days_topic,
                self._directory / "checkpoint",
            )
        with self._step("the same days by a batch, and both topics read back"):
            days = _by_key(as_records(by_airport_and_day(flown), "airport", "day"))
            routes_back, routes_records = routes_topic.latest(spark)
            days_back, days_records = days_topic.latest(spark)
        return Findings(
            loaded=loaded,
            streamed=streamed,
            routes=routes,
            days=days,
            routes_topic=routes_back,
            days_topic=days_back,
            routes_records=routes_records,
            days_records=days_records,
        )

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        with self._console.status(f"Spark: {what} ..."):
            yield
        seconds = time.perf_counter() - started
        self._console.print(f"Spark: {what}: {seconds:.1f} s", highlight=False)


def _by_key(records: DataFrame) -> Results:
    return {row["key"]: json.loads(row["value"]) for row in records.collect()}
