"""ExportFailed: which rows could not be written; ColumnError: which column does not do."""

from __future__ import annotations

from pathlib import Path

from aiokq.errors import ConfigError, KafkaError

__all__ = ["ColumnError", "ExportFailed"]


class ExportFailed(KafkaError):
    """An export ended before all rows were acknowledged; the cause says why.

    With a file for `resume` the same call again goes on where it was.
    """


class ColumnError(ConfigError):
    """A file has no such column, or one of another type.

    Attributes:
        option: what the column was given as, a field of `ExportColumns`.
        problem: the message without it.
    """

    def __init__(self, option: str, file: str | Path, problem: str) -> None:
        self.option = option
        self.problem = f"{file}: {problem}"
        super().__init__(f"{option}: {self.problem}")
