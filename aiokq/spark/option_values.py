"""Parsers of option values: flags, numbers and durations.

If the text of an error does not name the option, "option NAME: " is put before the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from aiokq.errors import ConfigError

__all__ = ["duration", "flag", "number", "of_option", "positive"]


@contextmanager
def of_option(name: str) -> Iterator[None]:
    """Put "option NAME: " before the message of a ConfigError that the block raises."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"option {name}: {error}") from error


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in {"true", "false"}:
        raise ConfigError(f'option {name}: For input string: "{value}" (expected true or false)')
    return value.strip().lower() == "true"


def number(given: Mapping[str, str], name: str, default: int) -> int:
    value = _integer(given, name)
    return default if value is None else value


def positive(given: Mapping[str, str], name: str, refusal: str | None = None) -> int | None:
    value = _integer(given, name)
    if value is not None and value <= 0:
        raise ConfigError(refusal or f"{name} must be positive")
    return value


def _integer(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        return int(text.strip())
    except ValueError:
        raise ConfigError(
            f'option {name}: For input string: "{text}" (expected a number)'
        ) from None


_UNITS: Final = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def duration(given: Mapping[str, str], name: str, default: str) -> float:
    """Parse a duration such as "15m"; return seconds. A number without a unit is milliseconds.

    Source: Spark `JavaUtils.timeStringAs`.
    """
    text = given.get(name.lower(), default).strip().lower()
    found = re.fullmatch(r"(-?[0-9]+)([a-z]+)?", text)
    if found is None or found[2] not in {None, *_UNITS}:
        raise ConfigError(
            f"option {name}: Time must be specified as seconds (s), milliseconds (ms), "
            f"microseconds (us), minutes (m or min), hour (h), or day (d). E.g. 50s, 100ms, or "
            f"250us. Got {text!r}"
        )
    return int(found[1]) * _UNITS[found[2] or "ms"]
