"""Output of commands: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from aiokq.cli.error_text import FAILED, explain, one_line

if TYPE_CHECKING:
    from aiokq.core.errors import KafkaError

__all__ = ["Json", "Output", "OutputClosed", "complain", "discard_output", "error_json"]

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | dict[str, Json] | None"


class OutputClosed(Exception):
    """The reader of the output closed the pipe, as `head` does."""


class Output:
    """The output of one command.

    Results go to stdout, problems and notes to stderr. On a terminal, Rich prints the tables; in a
    pipe, tables are aligned columns without colours, never truncated.

    Attributes:
        as_json: whether the command was given --json.
        exit_code: exit code of the command; a printed problem sets it to 1.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.exit_code = 0
        self._stdout = sys.stdout

    @property
    def terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return self._stdout.isatty()

    def line(self, text: str = "") -> None:
        """Print one line of text."""
        try:
            self._stdout.write(_encodable(text, self._stdout.encoding) + "\n")
            if self.terminal:
                self._stdout.flush()
        except BrokenPipeError:
            raise OutputClosed from None

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged to the buffer of stdout."""
        try:
            self._stdout.buffer.write(data)
        except BrokenPipeError:
            raise OutputClosed from None

    def flush(self) -> None:
        """Write buffered output to stdout."""
        try:
            self._stdout.flush()
        except BrokenPipeError:
            raise OutputClosed from None

    def document(self, value: Json) -> None:
        """Print one indented JSON document."""
        self.line(json.dumps(value, indent=2, ensure_ascii=False))

    def json_line(self, value: Json) -> None:
        """Print one JSON value on one line."""
        self.line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table. Columns of numbers are aligned to the right; None is printed as "-"."""
        cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
        right = [
            bool(rows) and all(cell is None or isinstance(cell, int) for cell in column)
            for column in zip(*rows, strict=True)
        ] or [False] * len(columns)
        if self.terminal:
            self._rich_table(columns, cells, right)
        else:
            self._plain_table(columns, cells, right)

    def problem(self, what: str, error: KafkaError) -> None:
        """Print the failure of the item `what` on one line, and set exit code 1."""
        self.flush()
        complain(f"{what}: {explain(error).removeprefix(f'{what}: ')}")
        self.exit_code = FAILED

    def trouble(self, text: str) -> None:
        """Print a problem for which there is no KafkaError, and set exit code 1."""
        self.flush()
        complain(text)
        self.exit_code = FAILED

    def note(self, text: str) -> None:
        """Print a note, which is not part of the result, as one line on stderr."""
        self.flush()
        print(one_line(text), file=sys.stderr)

    def _plain_table(
        self, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
    ) -> None:
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            aligned = (
                cell.rjust(width) if to_right else cell.ljust(width)
                for cell, width, to_right in zip(row, widths, right, strict=True)
            )
            self.line("  ".join(aligned).rstrip())

    def _rich_table(
        self, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
    ) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name, to_right in zip(columns, right, strict=True):
            table.add_column(name, justify="right" if to_right else "left", overflow="fold")
        for row in cells:
            table.add_row(*row)
        console = Console(file=self._stdout, markup=False, emoji=False, highlight=False)
        try:
            console.print(table)
        except BrokenPipeError:
            raise OutputClosed from None


def error_json(error: KafkaError | None) -> Json:
    """Return an error as a value for a JSON document; None (null in JSON) if there is no error."""
    if error is None:
        return None
    name = getattr(error, "name", type(error).__name__)
    return {"code": getattr(error, "code", None), "name": name, "message": error.message}


def complain(text: str, *, command: str = "aiokq") -> None:
    """Print one line on stderr."""
    print(f"{command}: {one_line(text)}", file=sys.stderr)


def discard_output() -> None:
    """Redirect stdout to the null device, so that the flush at exit succeeds.

    Otherwise it would fail again if the pipe is closed or the disk is full.

    Source: the note on SIGPIPE in the documentation of Python's `signal`.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


def _encodable(text: str, encoding: str) -> str:
    """Escape characters that the output's encoding lacks, so that printing them does not fail."""
    if text.isascii():
        return text
    return text.encode(encoding, "backslashreplace").decode(encoding)
