"""One run of a load, with a query that a test makes up."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import SparkSession

from aiokq import TopicPartition
from aiokq.spark.loading import run
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.manifest import LoadedFile, LoadedPartition, Manifest
from aiokq.spark.loading.preflight import Preflight
from aiokq.spark.loading.run import LATE, STARTS, _Load
from aiokq.spark.loading.summary import Loaded, LoadSummary, TopicLoad
from aiokq.spark.loading.target import Target
from tests.unit.spark.loading.worlds import options


class Queries:
    """Queries that end as they are told to, some after they have loaded something."""

    def __init__(self, *endings: str | None, loading: Collection[int] = ()) -> None:
        self.endings = list(endings)
        self.loading = loading
        self.started = 0
        self.load: _Load | None = None

    def start(self) -> SimpleNamespace:
        self.started += 1
        return SimpleNamespace(isActive=False, id="query")

    def wait(self, query: object) -> None:
        if self.started in self.loading:
            assert self.load is not None
            self.load._loaded.offsets += 1
        ending = self.endings[self.started - 1]
        if ending is not None:
            raise LoadFailed(ending)


def run_of(tmp_path: Path, queries: Queries, monkeypatch: pytest.MonkeyPatch) -> _Load:
    wanted = options(tmp_path / "out", value_format="bytes", value_schema=None)
    nothing = Preflight(None, {})
    load = _Load(wanted, Target.of(wanted), None, None, nothing, None, threading.Event())  # type: ignore[arg-type]
    queries.load = load
    monkeypatch.setattr(load, "_writer", lambda: queries)
    monkeypatch.setattr(load, "_wait", queries.wait)
    return load


def test_a_query_whose_python_started_too_late_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives it ten seconds, which a busy machine may take; nothing is wrong with the load."""
    queries = Queries(f"{LATE}.", f"{LATE}.", None)

    summary = run_of(tmp_path, queries, monkeypatch).run()

    assert (queries.started, summary.query) == (3, "query")


def test_late_starts_are_counted_from_the_last_batch_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that goes on for weeks ended at its fifth late start, of which each had passed."""
    queries = Queries(*[LATE] * (2 * STARTS - 3), None, loading={STARTS - 1})

    run_of(tmp_path, queries, monkeypatch).run()

    assert queries.started == 2 * STARTS - 2


@pytest.mark.parametrize(("ending", "starts"), [("a disk is full", 1), (LATE, STARTS)])
def test_what_does_not_pass_by_itself_ends_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, starts: int
) -> None:
    """And a Python that never starts does, too."""
    queries = Queries(*[ending] * STARTS)

    with pytest.raises(LoadFailed, match=ending):
        run_of(tmp_path, queries, monkeypatch).run()

    assert queries.started == starts


def test_a_second_ctrl_c_does_not_wait_for_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Once more to end at once", it says; it waited for the batch all the same."""
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


def test_a_batch_counts_once_however_often_spark_runs_it() -> None:
    """It was recovered, or it was done and Spark did not know; only sums of batches are kept."""
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
    """`asyncio.to_thread(load, ...)`: there the session is not the active one, but it is there."""
    there = SimpleNamespace(_jvm=None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", there)

    with run._session(None, "local[1]", {}, quiet=True) as session:
        assert session is there
