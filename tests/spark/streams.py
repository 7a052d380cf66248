"""A streaming query whose sink is idempotent by batch number, to prove exactly-once reads.

Each batch is a file of its rows, moved into place by a rename; a batch that is run again replaces
it, and the rows of each run are kept beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from aiokq.spark.stream_reader import HAS_LIMITS
from aiokq.testing import Send
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="limits came with PySpark 4.2")
Row = tuple[int, int, str]
"""Partition, offset, value."""
PATIENCE = 300.0
"""Seconds; the awaited events take two on an idle machine."""


class Stream:
    """A query whose batches are kept as text files, by batch number.

    Attributes:
        sent: what the test sent to the topic, for the checker of `aiokq.testing`.
        before_sink: called with the number of a batch before its rows are written.
        after_sink: called after its rows are written.
    """

    def __init__(self, spark: SparkSession, topics: Topics, topic: str, home: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.topic = topic
        self.home = home
        self.sent: list[Send] = []
        self.before_sink: Callable[[int], None] = lambda number: None
        self.after_sink: Callable[[int], None] = lambda number: None

    def writer(self, format_: str = "aiokq", **options: str) -> DataStreamWriter:
        """Return the query, not started; options that name other partitions replace the topic."""
        if not {"assign", "subscribe", "subscribePattern"} & options.keys():
            options["subscribe"] = self.topic
        frame = (
            self.spark.readStream.format(format_)
            .option("kafka.bootstrap.servers", self.topics.bootstrap_servers)
            .options(**options)
            .load()
        )
        self.home.mkdir(exist_ok=True)
        return frame.writeStream.foreachBatch(self._keep).option(
            "checkpointLocation", str(self.home / "checkpoint")
        )

    def _keep(self, batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("partition", "offset", "string(value) as value").collect()
        self.before_sink(number)
        text = json.dumps(sorted(list(row) for row in rows))
        run = len(list(self.home.glob(f"run-{number}-*.json")))
        (self.home / f"run-{number}-{run}.json").write_text(text)
        (self.home / "writing").write_text(text)
        (self.home / "writing").rename(self.home / f"batch-{number}.json")
        self.after_sink(number)

    def available_now(self, format_: str = "aiokq", **options: str) -> StreamingQuery:
        """Read all available records; return the finished query."""
        query = self.writer(format_, **options).trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE)
        return query

    def fails(self, format_: str = "aiokq", **options: str) -> str:
        """Run a query that is expected to fail; return the driver's error message."""
        try:
            self.available_now(format_, **options)
        except PySparkException as error:
            return str(error)
        raise AssertionError("it did not fail")

    def rows(self) -> list[Row]:
        """Return the rows of the sink."""
        return sorted(row for batch in self.batches().values() for row in batch)

    def batches(self) -> Mapping[int, list[Row]]:
        """Return the rows of each batch that was run."""
        return {
            int(path.stem.split("-")[1]): _rows(path)
            for path in sorted(self.home.glob("batch-*.json"))
        }

    def runs(self, batch: int) -> list[list[Row]]:
        """Return the rows of each run of a batch."""
        return [_rows(path) for path in sorted(self.home.glob(f"run-{batch}-*.json"))]

    def offsets(self, batch: int) -> dict[str, Any]:
        """Return the end of a batch in the checkpoint."""
        lines = (self.home / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        offset: dict[str, Any] = json.loads(lines[2])
        return offset

    def planned(self) -> int:
        """Return the number of the newest batch in the offset log; -1 for none."""
        return self._newest("offsets")

    def done(self) -> int:
        """Return the number of the newest batch in the commit log; -1 for none."""
        return self._newest("commits")

    def _newest(self, log: str) -> int:
        names = [path.name for path in (self.home / "checkpoint" / log).glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)


def _rows(path: Path) -> list[Row]:
    return [tuple(row) for row in json.loads(path.read_text())]


def wait_for(done: Callable[[], bool], timeout: float = PATIENCE) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def ended(query: StreamingQuery, timeout: float = PATIENCE) -> str:
    """Wait until a query has failed; return the driver's error message."""
    try:
        ended_well = query.awaitTermination(timeout)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("it ended well" if ended_well else "it did not end")
