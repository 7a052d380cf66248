"""Times on the command line: ISO 8601, @MILLISECONDS, or a duration before now."""

from __future__ import annotations

import datetime
from typing import Final

import typer

from aiokq.core import limits
from aiokq.core.numbers import parse_number

__all__ = ["TIME_SYNTAX", "parse_time", "time_text"]

TIME_SYNTAX: Final = (
    "2026-01-31T12:00:00Z (without a zone: local time), @MS since 1970, or PT1H ago"
)


def parse_time(text: str, now_ms: int) -> int:
    """Return a time in milliseconds since 1970.

    Raises:
        typer.BadParameter: the text is not a time, or the time is before 1970 or too large.
    """
    from aiokq.consumer.rules import duration_ms

    time_ms = -1
    try:
        if text.startswith("@"):
            time_ms = parse_number(text[1:], limits.INT64_MAX)
        elif text[:1] in ("P", "p"):
            time_ms = now_ms - duration_ms(text)
        else:
            # A date and time without a zone is local time, as in other tools.
            time_ms = round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{text[:40]!r} is not a time: write {TIME_SYNTAX}") from None
    if not 0 <= time_ms <= limits.INT64_MAX:
        raise typer.BadParameter(f"{text[:40]!r} is before 1970 or out of range")
    return time_ms


def time_text(timestamp_ms: int) -> str | None:
    """Return a time as ISO 8601 in UTC with milliseconds; None for a negative (missing) timestamp.

    A timestamp outside the range of `datetime` is returned as a number.
    """
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
