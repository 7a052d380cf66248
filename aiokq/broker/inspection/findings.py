"""Findings of a check of a log directory."""

from __future__ import annotations

import enum

from aiokq.core.named_tuple import NamedTuple

__all__ = ["Finding", "Severity"]


class Severity(enum.Enum):
    """The severity of a finding."""

    ERROR = "error"
    """Records are damaged or missing, or would be read wrongly."""

    WARNING = "warning"
    """A deviation without loss of records; as a rule the next start repairs or removes it."""


class Finding(NamedTuple):
    """One error or warning.

    Attributes:
        path: path of the file or directory.
        position: byte offset in the file, None if unknown.
    """

    severity: Severity
    path: str
    position: int | None
    message: str
