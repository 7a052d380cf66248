"""The ranges of the numbers in Kafka's protocol, and functions that check numeric arguments.

Every public numeric argument is checked by the call that receives it. An unchecked argument would
raise an OverflowError later, in C or while a request is encoded. aiokq.fastpath has its own checks
of the partition and timestamp of a record. Tests: tests/sim/test_numbers.py, which reads the
arguments from the signatures.
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
    "share",
    "timestamp_ms",
    "whole",
]

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

MAX_SECONDS: Final = INT32_MAX / 1000
"""Longest time to wait, in seconds (24.8 days): Kafka's timeouts are 32-bit milliseconds."""

_POWERS: Final = {
    INT16_MAX: "2**15 - 1",
    INT32_MAX: "2**31 - 1",
    INT64_MAX: "2**63 - 1",
    -INT64_MAX: "-2**63 + 1",
}


def whole(
    value: int, name: str, low: int, high: int, *, error: type[ValueError] = ValueError
) -> int:
    """Return `value` if it is an int from `low` to `high`; bools are refused.

    Args:
        name: name of the argument, for the message.
        error: class of the error for a number outside the range.

    Raises:
        TypeError: `value` is not an int.
        ValueError: `value` is outside the range; the class is `error`.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if not low <= value <= high:
        raise error(
            f"{name}={value}: must be from {_POWERS.get(low, low)} to {_POWERS.get(high, high)}"
        )
    return value


def partition(value: int, name: str = "partition", *, error: type[ValueError] = ValueError) -> int:
    """Return `value` if it is a valid partition number."""
    return whole(value, name, 0, INT32_MAX, error=error)


def offset(value: int, name: str = "offset", *, error: type[ValueError] = ValueError) -> int:
    """Return `value` if it is a valid offset in a log."""
    return whole(value, name, 0, INT64_MAX, error=error)


def timestamp_ms(
    value: int, name: str = "timestamp_ms", *, error: type[ValueError] = ValueError
) -> int:
    """Return `value` if it is a valid timestamp in milliseconds since 1970."""
    return whole(value, name, 0, INT64_MAX, error=error)


def count(value: int, name: str, low: int = 1, *, error: type[ValueError] = ValueError) -> int:
    """Return `value` if it is an int from `low` to `INT32_MAX`."""
    return whole(value, name, low, INT32_MAX, error=error)


def share(value: float, name: str, *, error: type[ValueError] = ValueError) -> float:
    """Return `value` if it is a number from 0 to 1.

    Raises:
        TypeError: `value` is not a number.
        ValueError: `value` is outside the range; the class is `error`.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not 0 <= value <= 1:
        raise error(f"{name}={value}: must be from 0 to 1")
    return value


def optional_seconds(value: float | None, name: str = "timeout", *, positive: bool = False) -> None:
    """Check a time as `seconds` does; None is valid, too."""
    if value is not None:
        seconds(value, name, positive=positive)


def seconds(value: float, name: str = "timeout", *, positive: bool = False) -> None:
    """Check a time to wait, in seconds.

    Infinity is refused: to wait without a limit, repeat the call in a loop.

    Args:
        positive: whether 0 is refused too.

    Raises:
        TypeError: `value` is not a number.
        ValueError: `value` is NaN, negative or greater than `MAX_SECONDS`, or 0 if `positive` is
            True.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    fits = 0 <= value <= MAX_SECONDS and not (positive and value == 0)
    if not fits or math.isnan(value):
        raise ValueError(
            f"{name}={value}: must be a finite number of seconds, "
            f"{'more than 0' if positive else 'from 0'} to {MAX_SECONDS}"
        )
