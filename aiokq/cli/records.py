"""Formats of printed records: text for people, JSON, and raw bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from aiokq.cli.output import Json
from aiokq.cli.record_options import PrintOptions
from aiokq.cli.time_format import time_text

if TYPE_CHECKING:
    from aiokq.fastpath.consume import Record

__all__ = ["Format", "formatter", "json_bytes", "record_json", "shown", "unescaped"]

NULL: Final = "<null>"
_TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
"""Kafka's names of the timestamp types; records of format 0 have no timestamp."""


class Format(StrEnum):
    """Format of printed records."""

    TEXT = "text"
    """A line for people; control characters, and bytes that are not UTF-8, are escaped."""
    JSON = "json"
    """A JSON object per line, with all parts of the record."""
    RAW = "raw"
    """The unchanged bytes of the value, then a line feed; on request, key and separator first."""


def formatter(kind: Format, parts: PrintOptions) -> Callable[[Record], bytes]:
    """Return the function that formats a record as bytes, with a line feed."""
    if kind is Format.JSON:
        return _json_line
    if kind is Format.RAW:
        separator = parts.separator.encode()
        if parts.keys:
            return lambda record: (record.key or b"") + separator + (record.value or b"") + b"\n"
        return lambda record: (record.value or b"") + b"\n"
    return lambda record: _text_line(record, parts)


def shown(data: bytes | None) -> str:
    """Return bytes as text that is safe on a terminal.

    Bytes that are not UTF-8 become \\xNN. Control and other invisible characters, including line
    feeds but not tabs, are escaped as in Python. None becomes `<null>`.
    """
    if data is None:
        return NULL
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def unescaped(text: str) -> str:
    r"""Return the character for the escapes `\t`, `\0` and `\\`; return other text unchanged.

    These characters are hard to type in shells.
    """
    for escape, char in (("\\t", "\t"), ("\\0", "\0"), ("\\\\", "\\")):
        if text == escape:
            return char
    return text


def record_json(record: Record) -> Json:
    """Return a record as a JSON object.

    Keys, values and header values are strings if they are UTF-8, else `{"base64": "..."}`.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": _TIMESTAMP_TYPES[record.timestamp_type],
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }


def _json_line(record: Record) -> bytes:
    text = json.dumps(record_json(record), ensure_ascii=False, separators=(",", ":"))
    return text.encode() + b"\n"


def json_bytes(data: bytes | None) -> Json:
    """Return bytes as a string if they are UTF-8, else as `{"base64": "..."}`; None as null."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _text_line(record: Record, parts: PrintOptions) -> bytes:
    columns = []
    if parts.offsets:
        columns.append(f"{record.topic}-{record.partition}@{record.offset}")
    if parts.timestamps:
        columns.append(time_text(record.timestamp_ms) or "-")
    if parts.keys:
        columns.append(shown(record.key))
    if parts.headers:
        pairs = (f"{shown(name.encode())}={shown(value)}" for name, value in record.headers)
        columns.append(",".join(pairs) or "-")
    columns.append(shown(record.value))
    return parts.separator.join(columns).encode() + b"\n"
