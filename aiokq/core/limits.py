"""Owns which numbers Kafka can carry: the range of each kind, and what is said past it.

Every public argument that is a number is checked by these, at the call: past it there is C, or the
wire, where the same number would be an OverflowError in the middle of something. The compiled core
has the ranges of partitions and timestamps itself, for records. Tests: tests/sim/test_numbers.py,
which takes the arguments from the signatures.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = [
    "INT16_MAX",
    "INT32_MAX",
    "INT64_MAX",
    "MAX_SECONDS",
    "count",
    "offset",
    "optional_seconds",
    "partition",
    "seconds",
    "timestamp_ms",
    "whole",
]

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

MAX_SECONDS: Final = INT32_MAX / 1000
"""24.8 days: Kafka's timeouts are milliseconds of 32 bits."""

_POWERS: Final = {
    INT16_MAX: "2**15 - 1",
    INT32_MAX: "2**31 - 1",
    INT64_MAX: "2**63 - 1",
    -INT64_MAX: "-2**63 + 1",
}


def whole(
    value: int, name: str, low: int, high: int, *, error: type[ValueError] = ValueError
) -> int:
    """The number, if it is an int from `low` to `high`; True and False are none.

    Args:
        name: of the argument, for the message.
        error: what is raised past the range.

    Raises:
        TypeError: it is no int.
        ValueError: it is past the range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {value!r}")
    if not low <= value <= high:
        raise error(
            f"{name}={value}: it is from {_POWERS.get(low, low)} to {_POWERS.get(high, high)}"
        )
    return value


def partition(value: int, name: str = "partition", *, error: type[ValueError] = ValueError) -> int:
    """A partition's number."""
    return whole(value, name, 0, INT32_MAX, error=error)


def offset(value: int, name: str = "offset", *, error: type[ValueError] = ValueError) -> int:
    """An offset that a log can have."""
    return whole(value, name, 0, INT64_MAX, error=error)


def timestamp_ms(
    value: int, name: str = "timestamp_ms", *, error: type[ValueError] = ValueError
) -> int:
    """Milliseconds since 1970."""
    return whole(value, name, 0, INT64_MAX, error=error)


def count(value: int, name: str, low: int = 1, *, error: type[ValueError] = ValueError) -> int:
    """How many of something, or how many bytes."""
    return whole(value, name, low, INT32_MAX, error=error)


def optional_seconds(value: float | None, name: str = "timeout", *, positive: bool = False) -> None:
    """As `seconds`, where None means a default of the caller's."""
    if value is not None:
        seconds(value, name, positive=positive)


def seconds(value: float, name: str = "timeout", *, positive: bool = False) -> None:
    """Checks a time to wait, in seconds.

    Infinity is refused: to wait without a limit, wait in a loop.

    Args:
        positive: 0 is refused, too.

    Raises:
        TypeError: it is no number.
        ValueError: it is NaN, infinite, negative or more than Kafka's timeouts hold.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is a number of seconds, not {value!r}")
    fits = 0 <= value <= MAX_SECONDS and not (positive and value == 0)
    if not fits or math.isnan(value):
        raise ValueError(
            f"{name}={value}: it is a finite number of seconds, "
            f"{'more than 0' if positive else 'from 0'} to {MAX_SECONDS}"
        )
