"""Values of the configuration file: byte sizes, socket modes, and the positions of its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field

__all__ = ["ByteSize", "Mode", "Path", "largest_log_line", "lines_of"]

UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    "k": 1024,
    "kb": 1000,
    "kib": 1024,
    "m": 1024**2,
    "mb": 1000**2,
    "mib": 1024**2,
    "g": 1024**3,
    "gb": 1000**3,
    "gib": 1024**3,
}
"""The units of byte sizes, in lower case. A single letter is a power of 1024, as in Bruce's files.
"""

_SIZE: Final = re.compile(r"\s*([0-9]{1,15})\s*([A-Za-z]*)\s*")

Path: TypeAlias = tuple[str | int, ...]
"""The names of tables and the indexes in arrays that lead to an option; as in pydantic's errors."""


def _byte_size(value: object) -> object:
    if not isinstance(value, str):
        if isinstance(value, bool):
            raise ValueError("must be a number of bytes, or a text such as '128 MiB'")
        return value
    found = _SIZE.fullmatch(value)
    unit = None if found is None else UNITS.get(found[2].lower())
    if found is None or unit is None:
        raise ValueError("must be a number of bytes, or a text such as '128 MiB'")
    return int(found[1]) * unit


def _mode(value: object) -> object:
    if isinstance(value, str):
        if not re.fullmatch("0?[0-7]{3}", value):
            raise ValueError("must be three octal digits, such as '0222'")
        return int(value, 8)
    raise ValueError("must be a text of octal digits, such as '0222'")


ByteSize: TypeAlias = Annotated[int, BeforeValidator(_byte_size), Field(ge=0, le=2**50)]
"""A number of bytes, or a text such as "128 MiB", "64k" or "1 GB"."""

Mode: TypeAlias = Annotated[int, BeforeValidator(_mode)]
"""The permissions of a socket file, as a text of octal digits."""

LARGEST_TOPIC: Final = 32767
LINE_OVERHEAD: Final = 256


def largest_log_line(max_prefix_bytes: int) -> int:
    """Return the size that no line of the discard log exceeds."""
    # A byte of a topic takes at most 5 characters: an escaped backslash and xNN.
    return LINE_OVERHEAD + 5 * LARGEST_TOPIC + 2 * (4 * (max_prefix_bytes // 3 + 2))


_TABLE: Final = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_OPTION: Final = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[^=\s]+)*)\s*=")
_NAME: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


def lines_of(text: str) -> dict[Path, int]:
    """Return the line number of each table and option of a valid TOML document.

    The text is searched line by line. A line of a multi-line string may be mistaken for an option
    that does not exist; this line number is not used. Options of inline tables are not found.
    """
    lines: dict[Path, int] = {}
    arrays: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _TABLE.match(line)
        if header is not None and "=" not in header[2].split('"')[0]:
            names = _names(header[2])
            if header[1] == "[[":
                arrays[names] = arrays.get(names, -1) + 1
            table = _with_indexes(names, arrays)
            lines.setdefault(table, number)
            continue
        option = _OPTION.match(line)
        if option is not None:
            path: Path = table
            for name in _names(option[1]):
                path = (*path, name)
                lines.setdefault(path, number)
    return lines


def _names(text: str) -> tuple[str, ...]:
    return tuple(double or single or bare for double, single, bare in _NAME.findall(text))


def _with_indexes(names: tuple[str, ...], arrays: Mapping[Path, int]) -> Path:
    path: Path = ()
    for end in range(1, len(names) + 1):
        path = (*path, names[end - 1])
        if names[:end] in arrays:
            path = (*path, arrays[names[:end]])
    return path
