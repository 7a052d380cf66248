"""Errors of an export: ExportFailed for rows, ColumnError for columns."""

from __future__ import annotations

from pathlib import Path

from aiokq.errors import ConfigError, KafkaError

__all__ = ["ColumnError", "ExportFailed"]


class ExportFailed(KafkaError):
    """An export ended before all rows were acknowledged.

    With a journal (`resume`), repeating the call continues the export.
    """


class ColumnError(ConfigError):
    """A file lacks a column, or the column has the wrong type.

    Attributes:
        option: the field of `ExportColumns` that names the column.
        problem: the message without `option`.
    """

    def __init__(self, option: str, file: str | Path, problem: str) -> None:
        self.option = option
        self.problem = f"{file}: {problem}"
        super().__init__(f"{option}: {self.problem}")
