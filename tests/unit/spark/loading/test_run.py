"""One run of a load, with a query that a test makes up."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
from aiokq.spark.loading.failures import LoadFailed
from aiokq.spark.loading.preflight import Preflight
from aiokq.spark.loading.run import LATE, STARTS, _Load
from aiokq.spark.loading.target import Target
from tests.unit.spark.loading.worlds import options

pytestmark = pytest.mark.build_independent


class Queries:
    """Queries that end as they are told to."""

    def __init__(self, *endings: str | None) -> None:
        self.endings = list(endings)
        self.started = 0

    def start(self) -> SimpleNamespace:
        self.started += 1
        return SimpleNamespace(isActive=False, id="query")

    def wait(self, query: object) -> None:
        ending = self.endings[self.started - 1]
        if ending is not None:
            raise LoadFailed(ending)


def run_of(tmp_path: Path, queries: Queries, monkeypatch: pytest.MonkeyPatch) -> _Load:
    wanted = options(tmp_path / "out", value_format="bytes", value_schema=None)
    nothing = Preflight(None, {})
    load = _Load(wanted, Target.of(wanted), None, None, nothing, None, threading.Event())  # type: ignore[arg-type]
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


@pytest.mark.parametrize(("ending", "starts"), [("a disk is full", 1), (LATE, STARTS)])
def test_what_does_not_pass_by_itself_ends_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, starts: int
) -> None:
    """And a Python that never starts does, too."""
    queries = Queries(*[ending] * STARTS)

    with pytest.raises(LoadFailed, match=ending):
        run_of(tmp_path, queries, monkeypatch).run()

    assert queries.started == starts
