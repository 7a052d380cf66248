"""exactlyOnce with driver, worker and broker killed at each point: no row lost, none twice.

The checker of `aiokq.testing` compares what the test sent with both topics. What a task does in
each case is tested without the JVM by test_exactly_once_tasks.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.spark.checked import assert_copied
from tests.spark.conftest import ROOT, Killable
from tests.spark.dying_sink import DyingSink
from tests.spark.logs import places
from tests.spark.standalone import standalone_spark
from tests.spark.streams import wait_for
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.timeout(900)

POINTS = ["first record", "commit", "between tasks", "commit log"]


def copying_once(
    spark: SparkSession,
    servers: str,
    source: str,
    home: Path,
    die: dict[str, object] | None = None,
    tasks: int = 3,
    **options: str,
) -> DataStreamWriter:
    """Return a query, not started, that copies a topic exactly once in batches of 40 records."""
    frame = (
        spark.readStream.format("aiokq")
        .option("kafka.bootstrap.servers", servers)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load()
        .select("key", "value")
        .repartition(tasks)
    )
    sink = "aiokq"
    if die is not None:
        sink, options = "dyingsink", options | {"_die": json.dumps({**die, "home": str(home)})}
    return (
        frame.writeStream.format(sink)
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(home / "checkpoint"))
        .options(topic=f"{source}-copy", exactlyOnce="true", **options)
    )


class Copy:
    """A topic of 120 records that a query copies exactly once, in three batches of three tasks."""

    def __init__(self, spark: SparkSession, topics: Topics, topic: str, home: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.topic = topic
        self.home = home
        spark.dataSource.register(DyingSink)
        topics.create(topic, 2)
        topics.create(f"{topic}-copy", 2)
        self.sent = topics.recorded_fill(topic, 60, 2)

    def run(self, die: dict[str, object] | None = None, tasks: int = 3, **options: str) -> str:
        """Copy what is there; return the error of the query, or nothing."""
        servers = self.topics.bootstrap_servers
        writer = copying_once(self.spark, servers, self.topic, self.home, die, tasks, **options)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(400)
        except PySparkException as error:
            return str(error)
        return ""

    def dies(self, **die: object) -> None:
        """Run a driver of its own until it has killed itself."""
        order = {
            "servers": self.topics.bootstrap_servers,
            "source": self.topic,
            "home": str(self.home),
            "die": die,
        }
        output = self.home / "driver.out"
        with open(output, "ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.killed_exactly_once", json.dumps(order)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
                stdout=said,
                stderr=said,
            )
        try:
            code = process.wait(600)
        finally:
            process.kill()
        assert code == -signal.SIGKILL, output.read_text()[-4000:]

    def done(self) -> int:
        """Return the number of the last batch in Spark's commit log; -1 for none."""
        names = [path.name for path in (self.home / "checkpoint" / "commits").glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def copied(self) -> Counter[str]:
        """Return the committed values, as confluent-kafka reads them."""
        rows = places(self.topics, f"{self.topic}-copy", "read_committed")
        return Counter(value for _, _, value in rows)

    def is_exact(self) -> bool:
        """Return whether each record was copied once; fail if the checker condemns anything."""
        assert_copied(self.topics, self.topic, f"{self.topic}-copy", self.sent)
        return self.copied() == Counter(value for _, _, value in places(self.topics, self.topic))


@pytest.fixture
def copy(spark: SparkSession, either: Topics, topic: str, tmp_path: Path) -> Copy:
    return Copy(spark, either, topic, tmp_path)


@pytest.mark.parametrize(
    "at", [p if p == "commit" else pytest.param(p, marks=pytest.mark.full) for p in POINTS]
)
def test_a_worker_killed_at_each_point_leaves_no_row_out_and_none_twice(
    copy: Copy, at: str
) -> None:
    """Spark repeats the task (local[2,4]); its first attempt was a transaction or nothing."""
    assert not copy.run({"at": at, "how": "worker", "batch": 1})

    assert (copy.home / "died").exists()
    assert copy.is_exact()
    assert not copy.run()
    assert sum(copy.copied().values()) == 120


@pytest.mark.full
@pytest.mark.parametrize("at", ["first record", "commit"])
def test_a_task_that_fails_is_repeated_and_writes_its_rows_once(copy: Copy, at: str) -> None:
    """An exception of the plan, with half of the rows in the log."""
    assert not copy.run({"at": at, "how": "raise", "batch": 1})

    assert (copy.home / "died").exists()
    assert copy.is_exact()


@pytest.mark.full
@pytest.mark.parametrize("at", POINTS)
def test_a_driver_killed_at_each_point_of_a_batch_goes_on_exactly_once(copy: Copy, at: str) -> None:
    """Driver, JVM and worker at once; the same checkpoint continues in another driver."""
    copy.dies(at=at, how="driver", batch=1)
    assert copy.done() == 0

    assert not copy.run()

    assert copy.is_exact()


@pytest.mark.full
@pytest.mark.parametrize("at", POINTS)
def test_a_broker_killed_at_each_point_of_a_batch_is_waited_for(
    spark: SparkSession, killable: Killable, topic: str, tmp_path: Path, at: str
) -> None:
    """The query continues, or is started again; no row is lost or doubled."""
    (tmp_path / "query").mkdir()
    copy = Copy(spark, killable.topics, topic, tmp_path / "query")

    def restart() -> None:
        wait_for((copy.home / "kill").exists, 600)
        killable.kill()
        (copy.home / "killed").touch()
        killable.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    copy.run({"at": at, "how": "broker", "batch": 1})
    restarting.join()

    assert not copy.run()
    assert copy.is_exact()


@pytest.mark.full
def test_a_speculative_attempt_writes_no_row_twice(copy: Copy) -> None:
    """Both attempts have the same transactional id: the later one fences the other, or finds it."""
    with standalone_spark(copy.home) as cluster:
        # Speculation is a setting of the application, so this needs a driver of its own.
        settings = {
            **cluster,
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
        }
        order = {
            "servers": copy.topics.bootstrap_servers,
            "source": copy.topic,
            "home": str(copy.home),
            "die": {"at": "slow", "how": "raise", "batch": 1},
            "settings": settings,
        }
        said = subprocess.run(
            [sys.executable, "-m", "tests.spark.killed_exactly_once", json.dumps(order)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=600,
        )

    assert said.returncode == 0, said.stderr[-4000:]
    assert (copy.home / "slow").exists()
    attempts = [path.name for path in copy.home.glob("attempt-1-*")]
    assert len(attempts) > 3, "no task was attempted twice"
    assert copy.is_exact()


@pytest.mark.full
def test_a_query_with_another_number_of_tasks_ends_and_goes_on_with_the_first(copy: Copy) -> None:
    """The number is in the ledger since the first batch; the refused batch is there once."""
    assert not copy.run()
    copy.sent += copy.topics.recorded_fill(copy.topic, 20, 2, first=60)

    for tasks in (2, 4):
        told = copy.run(tasks=tasks)
        assert f"has {tasks} tasks, and the first batch of the query had 3" in told, told
        assert ".repartition(3)" in told

    assert not copy.run()
    assert copy.is_exact()
    assert sum(copy.copied().values()) == 160
