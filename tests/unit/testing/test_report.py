"""Histories as files, and reports as text, JSON and pictures."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from aiokq.testing import (
    AnomalyKind,
    EndTransaction,
    HistoryError,
    Outcome,
    Poll,
    Polled,
    Send,
    check,
    read_history,
    write_history,
)
from tests.unit.testing.correct_log import correct_history

READ_TOO_SOON = [
    Send("p1", "t", "v1", Outcome.OK, 0, 0, "t1", 1, 2),
    Poll("c1", (Polled("t", 0, 0, "v1"),), start=3, end=4),
    EndTransaction("p1", "t1", True, Outcome.OK, 5, 6),
]


def test_a_report_shows_operations_and_a_picture() -> None:
    """The reader must see why, without the history."""
    assert check(READ_TOO_SOON).text().splitlines() == [
        "3 operations: 1 anomalies are condemned, 0 reported",
        "",
        "precommitted-read (1, CONDEMNED)",
        f"  {AnomalyKind.PRECOMMITTED_READ.definition}",
        "  read_committed returns records of committed transactions only.",
        "  - t-0@0: 'v1' was read before the commit of transaction t1 was called",
        '      {"op":"send","process":"p1","topic":"t","value":"v1","outcome":"ok","partition":0,'
        '"offset":0,"txn":"t1","start":1,"end":2}',
        '      {"op":"poll","process":"c1","records":[["t",0,0,"v1"]],'
        '"isolation":"read_committed","start":3,"end":4}',
        '      {"op":"end","process":"p1","txn":"t1","commit":true,"outcome":"ok",'
        '"start":5,"end":6}',
        "      p1 [send v1@0 t1]             [commit t1]",
        "      c1                [poll v1@0]",
    ]


def test_a_report_as_json_has_every_operation() -> None:
    """Programs get what people get."""
    found = json.loads(check(READ_TOO_SOON).to_json())
    assert found["ok"] is False
    (anomaly,) = found["anomalies"]
    assert anomaly["kind"] == "precommitted-read"
    assert [each["op"] for each in anomaly["operations"]] == ["send", "poll", "end"]


def test_text_shows_some_anomalies_of_each_kind() -> None:
    """A broken cluster has thousands."""
    again = [Poll("c1", (Polled("t", 0, 0, "v1"),)) for _ in range(20)]
    report = check([READ_TOO_SOON[0], *again])
    assert len(report.by_kind()[AnomalyKind.NONMONOTONIC_POLL]) == 19
    assert "  - and 16 more" in report.text(shown=3).splitlines()


def test_a_file_reads_as_what_was_written(tmp_path: Path) -> None:
    """The format is for others, too."""
    history = correct_history(1)
    path = tmp_path / "history.jsonl"
    with path.open("w") as output:
        write_history(history, output)
    assert list(read_history(path)) == history
    assert check(path) == check(history)


def test_an_unfinished_last_line_is_left_out() -> None:
    """A killed recorder leaves one behind."""
    output = io.StringIO()
    write_history(READ_TOO_SOON, output)
    assert list(read_history(io.StringIO(output.getvalue() + '{"op":"se'))) == READ_TOO_SOON


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"op":"sned"}',
        '{"op":"send","process":"p","topic":"t","value":1,"outcome":"ok"}',
        '{"op":"send","process":"p","topic":"t","value":"v","outcome":"fine"}',
        '{"op":"send","process":"p","topic":"t","value":"v","outcome":"ok","offset":1}',
        '{"op":"end","process":"p","txn":"t","commit":"yes","outcome":"ok"}',
        '{"op":"poll","process":"c","records":[["t",0]]}',
    ],
)
def test_a_wrong_line_is_named(line: str) -> None:
    """A line that is skipped could hide what it says."""
    with pytest.raises(HistoryError, match="line 2: "):
        list(read_history(['{"op":"copy","input":"a","output":"b"}\n', line + "\n"]))
