"""`aiokq check`: a history file, without a cluster."""

from __future__ import annotations

from pathlib import Path

from aiokq.testing import Poll, Polled, write_history
from tests.unit.cli.harness import CommandLine

RECORD = Polled("t", 0, 0, "v1")


def saved(path: Path, *polls: Poll) -> str:
    with path.open("w") as output:
        write_history(polls, output)
    return str(path)


def test_a_clean_history_is_no_failure(alone: CommandLine, tmp_path: Path) -> None:
    """Scripts look at the exit code."""
    done = alone("check", saved(tmp_path / "h.jsonl", Poll("c", (RECORD,))), servers=None)
    assert done.lines == ["1 operations: 0 anomalies are condemned, 0 reported"]
    assert done.code == 0


def test_a_condemned_anomaly_is_a_failure(alone: CommandLine, tmp_path: Path) -> None:
    """Text and JSON say the same."""
    path = saved(tmp_path / "h.jsonl", Poll("c", (RECORD,)), Poll("c", (RECORD,)))
    done = alone("check", path, servers=None)
    assert "nonmonotonic-poll (1, CONDEMNED)" in done.lines
    assert done.code == 1
    done = alone("check", path, "--json", servers=None)
    assert [each["kind"] for each in done.json["anomalies"]] == ["nonmonotonic-poll"]
    assert done.code == 1


def test_a_picture_is_written_to_a_file(alone: CommandLine, tmp_path: Path) -> None:
    """The text is printed as without it, and a file that cannot be written is a failure."""
    path = saved(tmp_path / "h.jsonl", Poll("c", (RECORD,)), Poll("c", (RECORD,)))
    plain = alone("check", path, servers=None)
    drawn = alone("check", path, "--svg", str(tmp_path / "h.svg"), servers=None)
    assert (drawn.lines, drawn.code) == (plain.lines, plain.code)
    assert (tmp_path / "h.svg").read_text().startswith("<svg ")
    failed = alone("check", path, "--svg", str(tmp_path / "missing" / "h.svg"), servers=None)
    assert "No such file or directory" in failed.complaint
    assert failed.code == 1


def test_a_wrong_line_is_explained(alone: CommandLine, tmp_path: Path) -> None:
    """A file of another format must not look clean."""
    path = tmp_path / "h.jsonl"
    path.write_text("{}\n")
    done = alone("check", str(path), servers=None)
    assert "line 1: " in done.complaint
    assert done.code == 1
