"""Messages about failed lines: one for consecutive lines with the same error."""

from __future__ import annotations

import json

import pytest

from aiokq.cli.line_results import LineResults
from aiokq.cli.output import Output
from aiokq.core.errors import ConnectionLost, KafkaStorage
from aiokq.fastpath.produce import RecordMetadata


def line_results(*, as_json: bool = False, show_offsets: bool = False) -> LineResults:
    return LineResults("t", Output(as_json=as_json), show_offsets=show_offsets)


def test_complaints_come_when_the_reason_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """Complaints in the order of the input let users find the lines."""
    told = line_results()
    for number in (1, 2, 3):
        told.fail(number, ValueError("no separator"))
    assert capsys.readouterr().err == ""
    told.fail(7, ConnectionLost("gone"))
    assert capsys.readouterr().err == "aiokq: lines 1 to 3: no separator\n"
    told.complain()
    told.complain()
    err = capsys.readouterr().err
    assert err.startswith("aiokq: line 7: gone -> check that the broker runs")
    assert err.count("\n") == 1
    assert told.failed == 4


def test_lines_between_that_did_not_fail_are_not_claimed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The text `lines 1 to 9` would claim that nine lines failed."""
    told = line_results()
    told.fail(1, KafkaStorage())
    told.deliver(RecordMetadata("t", 0, 0, 0), 5)
    told.fail(9, KafkaStorage())
    told.complain()
    assert capsys.readouterr().err.startswith("aiokq: 2 lines from 1 to 9: ")


def test_nothing_is_summed_up_before_the_topic_was_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`0 records delivered` after a wrong topic name would hide the error above it."""
    line_results().print_summary()
    assert capsys.readouterr().out == ""


def test_json_has_offsets_and_a_summary_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read one JSON value per line."""
    told = line_results(as_json=True, show_offsets=True)
    told.deliver(RecordMetadata("t", 2, 7, 1000), 5)
    told.seconds, told.interrupted = 0.25, False
    told.print_summary()
    offset, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (offset["partition"], offset["offset"]) == (2, 7)
    assert summary == {
        "topic": "t",
        "delivered": 1,
        "failed": 0,
        "bytes": 5,
        "seconds": 0.25,
        "interrupted": False,
    }
