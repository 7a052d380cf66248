"""`aiokq spark load` end to end: each record is in the files once, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from aiokq.errors import BootstrapFailed, ConfigError, UnknownTopicOrPartition
from aiokq.spark import LoadFailed, load, verify_load
from tests.spark.checked import assert_read
from tests.spark.conftest import ROOT
from tests.spark.loads import options, rows, seen, sent
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# On a busy machine a batch may take half a minute.
pytestmark = pytest.mark.timeout(900)


def test_a_topic_is_loaded_once_and_the_next_run_goes_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """In several batches, by topic and date; the verification agrees."""
    topics.create(topic, 3)
    topics.fill(topic, 20, 3)
    wanted = options(
        topics, topic, tmp_path / "out", partition_by=("topic", "date"), records_per_batch=40
    )

    first = load(wanted, spark=spark)
    topics.send(topic, [b"more"], 1)
    second = load(wanted, spark=spark)

    assert (first.rows, second.rows, second.batches) == (60, 1, 1)
    assert first.batches == 2
    assert first.topics[topic].rows == 60
    assert seen(tmp_path / "out") == sorted([*sent(3, 20), (1, 20)])
    # Spark also skips names that begin with an underscore.
    assert spark.read.parquet(str(tmp_path / "out")).count() == 61
    found = verify_load(tmp_path / "out", kafka=wanted.kafka)
    assert (found.sound, found.rows, found.offsets, found.gaps) == (True, 61, 61, 0)


def test_values_that_do_not_fit_go_to_dead_letters_and_the_load_goes_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """A bad record must neither stop the load nor be lost."""
    topics.create(topic)
    topics.send(topic, [b'{"id": 1}', b"poison", b'{"id": "no number"}', b'{"id": 2}'])
    wanted = options(
        topics,
        topic,
        tmp_path / "out",
        value_format="json",
        value_schema="id bigint",
        dead_letter=tmp_path / "dead",
    )

    summary = load(wanted, spark=spark)

    assert (summary.rows, summary.dead_letters) == (2, 2)
    rows = ds.dataset(tmp_path / "out", format="parquet").to_table().to_pylist()
    assert [row["value"] for row in rows] == [{"id": 1}, {"id": 2}]
    letters = ds.dataset(tmp_path / "dead", format="parquet").to_table().to_pylist()
    assert [(row["offset"], row["value"], row["key"]) for row in letters] == [
        (1, b"poison", b"kpoison"),
        (2, b'{"id": "no number"}', b'k{"id": "no number"}'),
    ]
    assert "$.id is a string, not an integer" in letters[1]["error"]
    assert verify_load(tmp_path / "out", kafka=wanted.kafka, dead_letter=tmp_path / "dead").sound


@pytest.mark.full
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_topic_is_loaded_to_a_table(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, format_: str
) -> None:
    """By Python libraries, without Java."""
    topics.create(topic, 2)
    topics.fill(topic, 30, 2)
    wanted = options(
        topics,
        topic,
        tmp_path / "out",
        format=format_,
        partition_by=("topic", "date"),
        records_per_batch=40,
    )

    load(wanted, spark=spark)
    topics.send(topic, [b"more"], 1)
    load(wanted, spark=spark)

    found = verify_load(tmp_path / "out", kafka=wanted.kafka)
    assert (found.sound, found.rows, found.offsets) == (True, 61, 61)


@pytest.mark.full
def test_a_continuous_load_ends_after_its_batch_when_it_is_told_to(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The next run continues; topics that match the pattern later are loaded, too."""
    topics.create(f"{topic}-a")
    topics.fill(f"{topic}-a", 10)
    wanted = options(
        topics,
        topic,
        tmp_path / "out",
        topics=(),
        topics_pattern=f"{topic}-.*",
        available_now=False,
        every=0.2,
    )
    stop = threading.Event()
    done: list[int] = []

    def tell(progress: Any) -> None:
        done.append(progress.rows)
        if progress.rows == 10:
            topics.create(f"{topic}-b")
            topics.fill(f"{topic}-b", 5)
        if progress.rows == 15:
            stop.set()

    first = load(wanted, spark=spark, progress=tell, stop=stop)
    topics.fill(f"{topic}-a", 1)
    stop.clear()
    second = load(wanted, spark=spark, progress=lambda p: p.rows and stop.set(), stop=stop)

    assert (first.rows, second.rows) == (15, 1)
    assert {name: load.rows for name, load in first.topics.items()} == {
        f"{topic}-a": 10,
        f"{topic}-b": 5,
    }
    assert len(seen(tmp_path / "out")) == 16


def test_what_is_wrong_is_told_before_spark_is_asked(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """One line that names the option, within seconds; nothing is left in the target."""
    topics.create(topic)
    with pytest.raises(UnknownTopicOrPartition):
        load(options(topics, f"no-{topic}", tmp_path / "a"))
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "bootstrap.timeout.ms": "300"}
    with pytest.raises(BootstrapFailed):
        load(options(topics, topic, tmp_path / "a", kafka=nowhere))
    with pytest.raises(ConfigError, match="no topic matches 'no-"):
        load(options(topics, topic, tmp_path / "a", topics=(), topics_pattern=f"no-{topic}"))
    with pytest.raises(ConfigError, match=r"value_schema: cannot read .*nothing\.avsc"):
        load(
            options(topics, topic, tmp_path / "a", value_format="avro", value_schema="nothing.avsc")
        )
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"to: .*/file/out: Not a directory"):
        load(options(topics, topic, tmp_path / "file" / "out"))


@pytest.mark.full
def test_a_target_that_cannot_be_written_ends_the_load_and_the_next_run_goes_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """One line with the reason; readers see no partial files."""
    topics.create(topic)
    topics.fill(topic, 10)
    target = tmp_path / "out"
    wanted = options(topics, topic, target)
    load(wanted, spark=spark)
    topics.fill(topic, 10)
    # Root may write everywhere; a directory cannot be created in place of a file.
    temporary = target / "_aiokq_temporary"
    temporary.rmdir()
    temporary.write_text("")

    with pytest.raises(LoadFailed, match=r"_aiokq_temporary.*: Not a directory; fix this"):
        load(wanted, spark=spark)
    assert len(seen(target)) == 10
    temporary.unlink()
    load(wanted, spark=spark)

    assert seen(target) == sent(1, 20)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "aiokq-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root mounts a disk of its own, and not everywhere")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.full
@pytest.mark.parametrize("room", [256 * 1024, 0])
def test_a_disk_that_is_full_ends_the_load_and_the_next_run_goes_on(
    spark: SparkSession, topics: Topics, topic: str, small_disk: Path, room: int
) -> None:
    """There is no space for the rows, or not even for Spark's logs: the error says so.

    The files of the failed batch are deleted, because the space may be needed elsewhere.
    """
    topics.create(topic)
    topics.fill(topic, 10)
    target = small_disk / "out"
    wanted = options(topics, topic, target)
    load(wanted, spark=spark)
    topics.send(topic, [os.urandom(100_000) for _ in range(10)])
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(ballast, max(ballast.stat().st_size - room, 0))
    before = shutil.disk_usage(small_disk).free

    with pytest.raises(LoadFailed, match="No space left on device"):
        load(wanted, spark=spark)

    assert seen(target) == sent(1, 10)
    # Spark has logged what the batch reads, in a few pages.
    assert shutil.disk_usage(small_disk).free >= before - 64 * 1024
    ballast.unlink()
    load(wanted, spark=spark)
    assert seen(target) == sent(1, 20)
    assert verify_load(target, kafka=wanted.kafka).sound


# -- a driver that is killed


def killed(tmp_path: Path, order: dict[str, Any]) -> int:
    """Run a load in a process of its own; return its exit code."""
    with (tmp_path / "stderr").open("wb") as stderr:
        process = _started(order, stderr)
    try:
        return process.wait(600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _started(order: dict[str, Any], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.killed_load", json.dumps(order)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,
    )


POINTS = [
    pytest.param("offset log", marks=pytest.mark.full),
    pytest.param("sink", marks=pytest.mark.full),
    pytest.param("manifest", marks=pytest.mark.full),
    pytest.param("rows", marks=pytest.mark.full),
    "publish",
    pytest.param("commit log", marks=pytest.mark.full),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed_and_run_again_loads_each_record_once(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, point: str
) -> None:
    """SIGKILL of the driver and its JVM in the second batch, then a normal run."""
    topics.create(topic, 2)
    sends = topics.recorded_fill(topic, 75, 2)
    target = tmp_path / "out"
    named = {
        "to": str(target),
        "topics": [topic],
        "kafka": {"bootstrap.servers": topics.bootstrap_servers},
        "available_now": True,
        "records_per_batch": 50,
    }
    order = {
        "options": named,
        "at": point,
        "from": 1,
        "offset": 50,
        "once": str(tmp_path / "once"),
    }

    code = killed(tmp_path, order)
    assert code == -signal.SIGKILL, (tmp_path / "stderr").read_text()[-3000:]
    before = seen(target)
    assert len(set(before)) == len(before)
    assert len(before) < 150, "it was killed too late to show anything"
    # A worker of the killed driver may still be running.
    time.sleep(1)
    wanted = options(topics, topic, target, records_per_batch=50)
    load(wanted, spark=spark)

    assert seen(target) == sent(2, 75)
    assert_read(topics, topic, sends, rows(target))
    assert verify_load(target, kafka=wanted.kafka).sound
