"""The parts of the flights job that can be looked at without running it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from examples.flights import member, spark_session
from examples.flights.delays import Delay
from examples.flights.findings import Findings, Results, busiest, differing, total
from examples.flights.lake import Loaded
from examples.flights.plot import draw
from examples.flights.spark_report import delays_table
from examples.flights.spark_session import NO_JAVA, why_absent
from examples.flights.windows import Streamed

ROUTES: Results = {
    "JFK-LAX/8": {
        "route": "JFK-LAX",
        "hour": 8,
        "flights": 2,
        "arrived": 2,
        "minutes": 10,
        "worst": 12,
    },
    "JFK-LAX/9": {
        "route": "JFK-LAX",
        "hour": 9,
        "flights": 1,
        "arrived": 0,
        "minutes": 0,
    },
}
DAYS: Results = {
    "JFK/2013-01-01": {"flights": 2, "arrived": 2, "minutes": 10, "worst": 12},
    "JFK/2013-01-02": {"flights": 1, "arrived": 0, "minutes": 0},
}
BY_ROUTE = {"JFK - LAX": Delay(flights=3, arrived=2, total_minutes=10, worst_minutes=12)}


def findings(**changes: object) -> Findings:
    given: dict[str, object] = {
        "loaded": Loaded(told=3, rows=3, distinct=3, files=1, size=100),
        "streamed": Streamed(rows=3, batches=2, late=0, forgotten=0),
        "routes": ROUTES,
        "days": DAYS,
        "routes_topic": ROUTES,
        "days_topic": DAYS,
        "routes_records": 2,
        "days_records": 3,
    }
    return Findings(**{**given, **changes})  # type: ignore[arg-type]


def wrong(found: Findings) -> list[str]:
    return [what for what, count, wanted in found.checks(3, BY_ROUTE) if count != wanted]


def test_counts_that_agree_are_right() -> None:
    """A check that fails although nothing is lost would be switched off."""
    assert wrong(findings()) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"loaded": Loaded(3, 4, 3, 1, 100)}, "rows in the Parquet files"),
        ({"loaded": Loaded(3, 3, 2, 1, 100)}, "places in the log they come from"),
        ({"loaded": Loaded(2, 3, 3, 1, 100)}, "records that the load told of"),
        ({"streamed": Streamed(2, 1, 0, 0)}, "flights that the stream read"),
        ({"streamed": Streamed(3, 1, 1, 0)}, "flights behind the watermark"),
        ({"days_topic": {}}, "days that batch and stream differ in"),
        ({"routes_topic": {**ROUTES, "x": {}}}, "keys read back that differ"),
        ({"routes": {}}, "routes that differ from the group's"),
    ],
)
def test_a_record_that_is_lost_or_doubled_is_seen(changes: dict[str, object], told: str) -> None:
    """At each of the steps."""
    assert told in wrong(findings(**changes))


def test_results_are_summed_and_compared_by_key() -> None:
    """A key that only one of them has is a difference."""
    assert total(ROUTES) == 3
    assert differing(ROUTES, DAYS) == 4
    assert busiest(ROUTES) == ["JFK-LAX"]


def test_routes_that_nobody_arrived_on_are_shown(tmp_path: Path) -> None:
    """A cancelled flight has no delay: no division by zero in the table, nor in the picture."""
    table = delays_table(ROUTES)
    assert [list(column.cells) for column in table.columns][:3] == [["JFK - LAX"], ["-"], ["5"]]
    for name in ("a.svg", "a.png"):
        draw(ROUTES, DAYS, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1_000


def test_a_machine_without_java_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """make run on a bare machine ends with a traceback of Spark's."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert why_absent() == NO_JAVA
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    assert why_absent() == NO_JAVA
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\"' >&2\n")
    assert why_absent() is None
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None)
    assert why_absent() == "pyspark is not installed: pip install 'aiokq[spark]'"


def test_a_parent_that_is_busy_does_not_hold_up_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full pipe stopped a member's loop for its session's time: what it had told came again."""
    read = threading.Event()
    written: list[str] = []

    def write(line: str) -> None:
        assert read.wait(60)
        written.append(line)

    monkeypatch.setattr(member, "_write", write)
    first, second = member.tell({"n": 1}), member.tell({"n": 2})
    assert not first.done()
    read.set()
    second.result(60)
    assert written == ['{"n":1}\n', '{"n":2}\n']
