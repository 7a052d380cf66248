"""Tasks that fail, workers and the stream reader's process killed: the log is read exactly once.

The checker of `aiokq.testing` compares what the tests sent with the rows of the sink.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.checked import assert_read
from tests.spark.dying import DyingDataSource
from tests.spark.logs import places
from tests.spark.streams import Stream
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def stream(spark: SparkSession, either: Topics, topic: str, tmp_path: Path) -> Stream:
    """Three partitions of twenty unread records; format "dying" is registered."""
    spark.dataSource.register(DyingDataSource)
    either.create(topic, 3)
    stream = Stream(spark, either, topic, tmp_path / "query")
    stream.sent = either.recorded_fill(topic, 20, 3)
    stream.home.mkdir()
    return stream


def dying(stream: Stream, at: str, how: str, start: int) -> dict[str, Any]:
    """Return options for batches of a third of the records, one of which dies."""
    order = {"at": at, "how": how, "from": start, "once": str(stream.home / "died")}
    return {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20",
        "maxTasks": "2",
        "_die": json.dumps(order),
    }


@pytest.mark.parametrize("how", [pytest.param("raise", marks=pytest.mark.full), "kill"])
def test_a_task_that_dies_with_half_its_rows_given_is_run_again(stream: Stream, how: str) -> None:
    """Spark makes four attempts, as on a cluster: an error or a killed worker goes unnoticed."""
    stream.available_now("dying", **dying(stream, "read", how, 5))

    assert (stream.home / "died").exists()
    assert stream.rows() == places(stream.topics, stream.topic)
    assert_read(stream.topics, stream.topic, stream.sent, stream.rows())
    assert all(len(stream.runs(batch)) == 1 for batch in stream.batches())


@pytest.mark.parametrize("at", ["latestOffset", pytest.param("partitions", marks=pytest.mark.full)])
def test_a_stream_whose_planner_is_killed_says_so_and_is_resumed(stream: Stream, at: str) -> None:
    """Spark ends such a query, both before the offset log and between it and the sink."""
    told = stream.fails("dying", **dying(stream, at, "kill", 20))

    assert (stream.home / "died").exists()
    assert "STREAM_FAILED" in told or "Query" in told, told
    assert stream.planned() - stream.done() == (0 if at == "latestOffset" else 1)
    stream.sent += stream.topics.recorded_fill(stream.topic, 4, 3, first=20)
    stream.available_now()
    assert stream.rows() == places(stream.topics, stream.topic)
    assert_read(stream.topics, stream.topic, stream.sent, stream.rows())
