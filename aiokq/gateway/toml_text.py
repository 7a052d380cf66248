"""`TomlText`: builds the text of a TOML file option by option.

Tests: tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import TypeAlias

from aiokq.gateway.xml_values import KIB, MIB

__all__ = ["Table", "TomlText", "Value", "printable", "size_text", "write_table"]

Value: TypeAlias = str | int | float | bool


Table: TypeAlias = dict[str, Value | dict[str, Value]]


class TomlText:
    """Text of a TOML file."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def comment(self, text: str) -> None:
        self.lines += textwrap.wrap(
            text, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
        )

    def table(self, header: str) -> None:
        self.lines += ["", header]

    def set(self, name: str, value: Value | Mapping[str, Value], note: str = "") -> None:
        line = f"{name} = {toml_value(value)}"
        self.lines.append(f"{line:<38} # {note}" if note else line)

    def text(self) -> str:
        return "\n".join(self.lines).strip("\n") + "\n"


def size_text(value: int) -> Value:
    """Return a number of bytes for the file, in MiB or KiB if that gives a whole number."""
    if value and value % MIB == 0:
        return f"{value // MIB} MiB"
    if value and value % KIB == 0:
        return f"{value // KIB} KiB"
    return value


def write_table(toml: TomlText, table: Mapping[str, Value | Mapping[str, Value]]) -> None:
    for name, value in table.items():
        toml.set(name, value)


def toml_value(value: Value | Mapping[str, Value]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a valid TOML string, except that TOML requires DEL to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {toml_value(one)}" for name, one in value.items()) + " }"
    return repr(value)


def printable(text: str) -> str:
    return json.dumps(text)
