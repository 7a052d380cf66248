"""Findings of a check of a log directory."""

from __future__ import annotations

import enum

from aiokq.core.named_tuple import NamedTuple

__all__ = ["Finding", "Severity"]


class Severity(enum.Enum):
    """How serious a finding is."""

    ERROR = "error"
    """Data is damaged or missing, would be read or written wrongly, or prevents a start."""

    WARNING = "warning"
    """A deviation that does not prove a loss of records; the next start usually repairs it."""


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
