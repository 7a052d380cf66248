"""One run of a load, with queries that the test simulates."""

from __future__ import annotations

import errno
import threading
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from aiokq import TopicPartition
from aiokq.spark.loading import run
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.manifest import LoadedFile, LoadedPartition, Manifest
from aiokq.spark.loading.options import OptionError
from aiokq.spark.loading.preflight import Preflight
from aiokq.spark.loading.run import LATE, START_PATIENCE, _Load
from aiokq.spark.loading.summary import Loaded, LoadSummary, TopicLoad
from aiokq.spark.loading.target import Target
from tests.unit.spark.loading.worlds import options


class Queries:
    """Simulated queries with given outcomes, some after they have loaded records.

    Attributes:
        seconds: duration of each query.
        time: simulated clock, which also advances in `wait` of the stop event.
    """

    def __init__(
        self, *endings: str | None, loading: Collection[int] = (), seconds: float = 12.0
    ) -> None:
        self.endings = list(endings)
        self.loading = loading
        self.seconds = seconds
        self.time = 1000.0
        self.started = 0
        self.pauses: list[float] = []
        self.load: _Load | None = None

    def start(self) -> SimpleNamespace:
        self.started += 1
        self.time += self.seconds
        return SimpleNamespace(isActive=False, id="query")

    def wait(self, query: object) -> None:
        if self.started in self.loading:
            assert self.load is not None
            self.load._loaded.offsets += 1
        ending = self.endings[min(self.started, len(self.endings)) - 1]
        if ending is not None:
            raise LoadFailed(ending)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds


def run_of(tmp_path: Path, queries: Queries, monkeypatch: pytest.MonkeyPatch) -> _Load:
    wanted = options(tmp_path / "out", value_format="bytes", value_schema=None)
    nothing = Preflight(None, {})
    stop = threading.Event()
    load = _Load(wanted, Target.of(wanted), None, None, nothing, None, stop)  # type: ignore[arg-type]
    queries.load = load
    monkeypatch.setattr(load, "_writer", lambda: queries)
    monkeypatch.setattr(load, "_wait", queries.wait)
    monkeypatch.setattr(stop, "wait", queries.pause)
    monkeypatch.setattr(run.time, "monotonic", lambda: queries.time)
    return load


def test_a_query_whose_python_started_too_late_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python worker may take longer than Spark's ten seconds on a busy machine."""
    queries = Queries(f"{LATE}.", f"{LATE}.", None)

    summary = run_of(tmp_path, queries, monkeypatch).run()

    assert (queries.started, summary.query) == (3, "query")


def test_late_starts_are_tried_again_for_ten_minutes_ever_more_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: five late starts within a busy minute ended a load of weeks."""
    queries = Queries(LATE)

    with pytest.raises(LoadFailed, match=r"times in 1\d minutes: .* continues the load"):
        run_of(tmp_path, queries, monkeypatch).run()

    assert queries.pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert START_PATIENCE <= queries.time - 1000 - queries.seconds < START_PATIENCE + 60
    assert queries.started == len(queries.pauses) + 1 > 10


@pytest.mark.parametrize(
    ("loading", "seconds"), [(range(1, 100, 9), 12.0), ((), 500.0)], ids=["batches", "nothing new"]
)
def test_late_starts_are_counted_from_the_last_query_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loading: Collection[int], seconds: float
) -> None:
    """Regression: late starts weeks apart, each of which had passed, ended a load."""
    queries = Queries(*[LATE] * 100, None, loading=loading, seconds=seconds)

    run_of(tmp_path, queries, monkeypatch).run()

    assert queries.started == 101


def test_what_does_not_pass_by_itself_ends_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at once."""
    queries = Queries("a disk is full")

    with pytest.raises(LoadFailed, match="a disk is full"):
        run_of(tmp_path, queries, monkeypatch).run()

    assert (queries.started, queries.pauses) == (1, [])


def test_a_load_that_is_told_to_stop_before_it_began_starts_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after Ctrl-C during Spark's start a query was started, and ended much later."""
    queries = Queries(None)
    load = run_of(tmp_path, queries, monkeypatch)
    load._stop.set()

    summary = load.run()

    assert (queries.started, summary.query, summary.interrupted) == (0, None, True)


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"),
                                   ConnectionRefusedError(111, "Connection refused")])  # fmt: skip
def test_a_jvm_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Regression: a JVM killed for its memory use ended in a traceback of py4j."""
    queries = Queries(None)
    load = run_of(tmp_path, queries, monkeypatch)

    class Gone:
        id = "query"

        @property
        def isActive(self) -> bool:
            raise error

    def gone(query: object) -> None:
        raise error

    monkeypatch.setattr(queries, "start", Gone)
    monkeypatch.setattr(load, "_wait", gone)

    with pytest.raises(LoadFailed, match=r"JVM has ended.* continues the load"):
        load.run()


def test_a_second_ctrl_c_does_not_wait_for_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the message said "once more to end at once", but the load awaited the batch."""
    queries = Queries(None)
    load = run_of(tmp_path, queries, monkeypatch)
    stopped: list[str] = []
    query = SimpleNamespace(isActive=True, id="query", stop=lambda: stopped.append("query"))

    def interrupted(query: object) -> None:
        load._stopping = True  # the first one
        raise KeyboardInterrupt

    monkeypatch.setattr(queries, "start", lambda: query)
    monkeypatch.setattr(load, "_wait", interrupted)

    with load._at_work, pytest.raises(KeyboardInterrupt):
        load.run()

    assert stopped == ["query"]


@pytest.mark.parametrize("schema", ["none.json", "{", '{"type": "widget"}'])
def test_a_schema_that_is_refused_leaves_no_directories(tmp_path: Path, schema: str) -> None:
    """Regression: a misspelt schema left an empty target and an empty directory of dead letters."""
    with pytest.raises(OptionError, match="value_schema: "):
        run.load(options(tmp_path / "out", value_schema=schema))
    assert not list(tmp_path.iterdir())


def test_a_batch_that_fails_while_the_load_is_told_to_stop_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: on a full disk the load said "ended after this batch" of a failed batch."""
    load = run_of(tmp_path, Queries(None), monkeypatch)

    def stopped(query: object) -> None:
        load._stopping = True
        load._failure = OSError(errno.ENOSPC, "No space left on device", "/lake/file")

    monkeypatch.setattr(load, "_wait", stopped)

    with pytest.raises(LoadFailed, match="/lake/file: No space left on device; free some space"):
        load.run()


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_a_disk_that_is_full_when_a_load_goes_on_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """All files of a batch were complete, but there was no space to make it visible."""
    load = run_of(tmp_path, Queries(None), monkeypatch)
    error = OSError(errno.ENOSPC, "No space", *(["/lake/file"] if named else []))

    def full() -> None:
        raise error

    monkeypatch.setattr(load, "_batches", SimpleNamespace(recover=full))

    where = "/lake/file" if named else str(tmp_path / "out")
    with pytest.raises(LoadFailed, match=rf"^{where}: No space left on device; free some space"):
        load.run()


def test_a_batch_counts_once_however_often_spark_runs_it() -> None:
    """A batch may be recovered, or repeated by Spark after it was done; only sums are kept."""
    tp = TopicPartition("t", 0)
    loaded = Loaded()
    for batch in (4, 4, 5, 5):
        part = LoadedPartition(10 * batch, 10 * batch + 10, 7, 2)
        file = LoadedFile("part", 7, 100)
        loaded.add(Manifest(batch, "query", {tp: part}, (file,)))

    summary = LoadSummary.of(Path("out"), "query", loaded, 1.0, interrupted=False)

    assert (loaded.last, loaded.offsets) == (5, 20)
    assert (summary.batches, summary.rows, summary.files, summary.size) == (2, 14, 2, 200)
    assert summary.topics == {"t": TopicLoad(14, 4)}
    assert not any(isinstance(held, list) for held in vars(loaded).values())


def test_a_session_of_another_thread_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """In `asyncio.to_thread(load, ...)` the session exists, but is not the active one."""
    there = SimpleNamespace(_jvm=None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", there)

    with run._session(None, "local[1]", {}, quiet=True) as session:
        assert session is there
