"""`config_text`, which formats the value of a config for Kafka."""

from __future__ import annotations

import math

__all__ = ["config_text"]


def config_text(value: str | int | float | bool | None) -> str | None:
    """Return a config value in Kafka's text format; None stays None.

    Raises:
        ValueError: the value is NaN or infinite.
        TypeError: the value is not a str, number, bool or None.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a valid config value")
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float):
        raise TypeError(f"the value of a config must be a str, a number or a bool, not {value!r}")
    return str(value)
