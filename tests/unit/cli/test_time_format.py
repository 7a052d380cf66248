"""Parsing and printing of times."""

from __future__ import annotations

import datetime

import pytest
import typer

from aiokq.cli.time_format import parse_time, time_text

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20.250+01:00", NOW + 250),
        ("@1700000000000", NOW),
        ("@0", 0),
        ("PT1H", NOW - 3_600_000),
        ("p1dt0.5s", NOW - 86_400_500),
    ],
)
def test_a_time_is_read(text: str, milliseconds: int):
    """There are three ways to write a time."""
    assert parse_time(text, NOW) == milliseconds


def test_a_time_without_a_zone_is_local():
    """As in `date`, UTC needs a Z."""
    local = datetime.datetime(2023, 11, 14, 12).timestamp() * 1000
    assert parse_time("2023-11-14T12:00", NOW) == local


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "@",
        "@soon",
        "@-1",
        "@+1",
        "@1_000",
        "@ 1",
        "@\u0661",
        "P",
        "PT",
        "P1Y",
        "PT\u0661H",
        "2023-13-01",
        "1969-01-01",
        "@" + "9" * 30,
        "@" + "9" * 5000,
        "P" + "9" * 5000 + "D",
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_what_is_no_time_is_refused(text: str):
    """It must not become 1970."""
    with pytest.raises(typer.BadParameter):
        parse_time(text, NOW)


def test_a_time_is_printed_in_utc():
    """Two machines must print the same."""
    assert time_text(NOW + 7) == "2023-11-14T22:13:20.007Z"
    assert time_text(-1) is None
    assert time_text(2**62) == str(2**62)
