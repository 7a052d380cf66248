"""Owns what is found wrong in a log directory: the finding, and how bad it is."""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["Finding", "Severity"]


class Severity(enum.Enum):
    """How bad it is."""

    ERROR = "error"
    """Records are damaged or missing, or would be read wrong."""

    WARNING = "warning"
    """The next start mends it from the records, or removes it; none of them is lost."""


class Finding(NamedTuple):
    """Something that is not as it should be.

    Attributes:
        path: of the file or directory.
        position: in bytes, where it is known.
    """

    severity: Severity
    path: str
    position: int | None
    message: str
