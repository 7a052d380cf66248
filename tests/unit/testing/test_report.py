"""Histories as files, and reports as text, JSON and pictures."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree

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

SVG = "{http://www.w3.org/2000/svg}"
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


def test_a_picture_has_a_lane_per_client_and_the_edges() -> None:
    """A browser shows it without another file."""
    root = ElementTree.fromstring(check(READ_TOO_SOON).svg())
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert texts[0] == "3 operations: 1 anomalies are condemned, 0 reported"
    assert {"p1", "c1", "send v1@0 t1", "poll v1@0", "commit t1"} <= set(texts)
    assert {"+0", "+2", "+4"} <= set(texts), "the time axis"
    lanes = {each.get("y") for each in root.iter(f"{SVG}rect")} - {None}
    assert len(lanes) == 2
    styles = [each.get("class") for each in root.iter(f"{SVG}path")]
    assert styles.count("edge") == 1, "from the send to the poll"
    assert styles.count("transaction") == 1, "from the send to the commit"


def test_a_picture_shows_any_value() -> None:
    """Values come from strangers."""
    value = "<b>&\x00\ud800"
    polls = [Poll("c1", (Polled("t", 0, 0, value),), start=n, end=n) for n in (1, 2)]
    root = ElementTree.fromstring(check(polls).svg().encode())
    assert "poll <b>&\ufffd\ufffd@0" in [each.text for each in root.iter(f"{SVG}text")]


def test_a_picture_of_nothing_has_the_headline() -> None:
    """A clean history is no error."""
    root = ElementTree.fromstring(check([]).svg())
    assert [each.text for each in root.iter(f"{SVG}text")] == [
        "0 operations: 0 anomalies are condemned, 0 reported"
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


def test_an_unfinished_last_line_of_a_list_is_left_out() -> None:
    """Regression: the list was read again from its first line, so that no line was its last."""
    output = io.StringIO()
    write_history(READ_TOO_SOON, output)
    lines = output.getvalue().splitlines(keepends=True)
    assert list(read_history([*lines, '{"op":"se'])) == READ_TOO_SOON


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
        '{"op":' * 10_000,
    ],
    ids=lambda line: line[:60],
)
def test_a_wrong_line_is_named(line: str) -> None:
    """A line that is skipped could hide what it says."""
    with pytest.raises(HistoryError, match="line 2: "):
        list(read_history(['{"op":"copy","input":"a","output":"b"}\n', line + "\n"]))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(HistoryError, match="not UTF-8"):
        list(read_history(path))
