"""How results are printed: tables for people, one JSON document for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

__all__ = ["bytes_fields", "print_json", "print_table"]


def print_json(value: object) -> None:
    """One JSON document on one line."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table; numbers stand at the right."""
    table = Table(title=title or None, title_justify="left")
    shown = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numbers = bool(shown) and all(isinstance(row[index], int) for row in shown)
        table.add_column(column, justify="right" if numbers else "left")
    for row in shown:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    Console().print(table)


def bytes_fields(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes for JSON: `name` as text where they are UTF-8, else `name_base64`."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
