"""Drivers that are killed with their JVM at each point of a batch: the log is read exactly once.

The sink is idempotent by batch number. So rows are duplicated if a repeated batch has other rows
than before, and missing if a batch begins too late. The checker of `aiokq.testing` compares what
the tests sent with the rows of the sink.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.checked import assert_read
from tests.spark.conftest import CONNECTOR, ROOT
from tests.spark.logs import places
from tests.spark.streams import Stream, wait_for
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A driver starts six processes, which takes half a minute on a busy machine.
pytestmark = pytest.mark.timeout(900)


class Driver:
    """A driver in a process of its own, which kills itself at a given batch.

    Args:
        given: before_sink or after_sink, the number of that batch.
    """

    def __init__(self, stream: Stream, format_: str, options: dict[str, str], **given: int) -> None:
        order = {
            "bootstrap_servers": stream.topics.bootstrap_servers,
            "topic": stream.topic,
            "home": str(stream.home),
            "format": format_,
            "options": options,
            **given,
        }
        stream.home.mkdir(exist_ok=True)
        self.output = stream.home / "driver.out"
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.killed_driver", json.dumps(order)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def dies(self) -> None:
        """Wait until the driver was killed."""
        try:
            code = self.process.wait(600)
        finally:
            self.process.kill()
        assert code == -9, self.output.read_text()[-4000:]


def dies(stream: Stream, format_: str = "dying", *, limit: int = 20, **given: Any) -> None:
    """Run a driver until it kills itself."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(limit)}
    Driver(stream, format_, options | given.pop("options", {}), **given).dies()


def dying(stream: Stream, at: str, start: int) -> dict[str, Any]:
    once = str(stream.home / f"{at}-{start}")
    return {"_die": json.dumps({"at": at, "how": "killgroup", "from": start, "once": once})}


@pytest.mark.full
def test_a_driver_killed_in_its_first_batch_began_where_it_began(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """With "latest" Spark would ask again, and skip records that were not read."""
    either.create(topic, 2)
    sent = either.recorded_fill(topic, 5, 2)
    stream = Stream(spark, either, topic, tmp_path / "query")
    begun, arrived = tmp_path / "begun", tmp_path / "arrived"
    options = {"startingOffsets": "latest", "_begun": str(begun), "_hold": str(arrived)}
    driver = Driver(stream, "dying", options, before_sink=0)
    try:
        # The query knows its start, and is about to ask for the end of the first batch.
        wait_for(begun.exists, 600)
        sent += either.recorded_fill(topic, 3, 2, first=5)
        arrived.touch()
        driver.dies()
    finally:
        driver.process.kill()
    assert (stream.planned(), stream.done(), stream.batches()) == (0, -1, {})
    sent += either.recorded_fill(topic, 2, 2, first=8)

    stream.available_now(startingOffsets="latest")

    assert stream.rows() == [row for row in places(either, topic) if row[1] >= 5]
    assert {row[1] for row in stream.batches()[0]} == {5, 6, 7}
    assert_read(either, topic, sent, stream.rows(), start=5)


@pytest.mark.full
def test_a_driver_killed_at_each_point_of_a_batch_goes_on_exactly_once(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path
) -> None:
    """Before the offset log, between it and the sink, between the sink and the commit log."""
    either.create(topic, 3)
    sent = either.recorded_fill(topic, 40, 3)
    stream = Stream(spark, either, topic, tmp_path / "query")

    dies(stream, options=dying(stream, "latestOffset", 20))
    before = (stream.planned(), stream.done())
    assert before[0] == before[1] >= 0
    sent += either.recorded_fill(topic, 5, 3, first=40)

    dies(stream, options=dying(stream, "partitions", 40))
    planned = stream.planned()
    assert stream.done() == planned - 1 >= before[0]
    assert planned not in stream.batches()
    sent += either.recorded_fill(topic, 5, 3, first=45)

    dies(stream, after_sink=planned + 1)
    assert (stream.planned(), stream.done()) == (planned + 1, planned)
    first = stream.batches()[planned + 1]
    sent += either.recorded_fill(topic, 5, 3, first=50)

    stream.available_now(maxOffsetsPerTrigger="50")

    assert stream.rows() == places(either, topic)
    assert_read(either, topic, sent, stream.rows())
    assert stream.runs(planned + 1) == [first, first]


@pytest.mark.full
@pytest.mark.parametrize("point", ["before_sink", "after_sink"])
def test_a_batch_of_a_killed_jvm_connector_is_run_again_by_ours(
    spark: SparkSession, either: Topics, topic: str, tmp_path: Path, point: str
) -> None:
    """One connector plans the batch and the other reads it: the rows are the same."""
    if not any(CONNECTOR.glob("*.jar")):
        pytest.skip("Spark's own connector is not there: make connector")
    either.create(topic, 3)
    sent = either.recorded_fill(topic, 40, 3)
    stream = Stream(spark, either, topic, tmp_path / "query")

    dies(stream, "kafka", **{point: 2})
    assert (stream.planned(), stream.done()) == (2, 1)
    sent += either.recorded_fill(topic, 5, 3, first=40)
    stream.available_now(startingOffsets="earliest", maxOffsetsPerTrigger="30")

    assert stream.rows() == places(either, topic)
    assert_read(either, topic, sent, stream.rows())
    runs = stream.runs(2)
    assert runs == ([runs[0]] if point == "before_sink" else [runs[0], runs[0]])
    assert len(runs[0]) in range(15, 24)
