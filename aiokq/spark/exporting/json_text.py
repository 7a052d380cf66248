"""Arrow columns as JSON text, one document per row; no I/O.

Decimals, and floats that JSON lacks (NaN, Infinity), become strings, so that nothing is lost; other
numbers become JSON numbers. Times are ISO 8601, in UTC ("Z") if the column has a zone; a time in a
struct, list or map has the UTC offset of its zone instead. Bytes are base64; null is null.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["documents", "plain_texts"]

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def documents(columns: Sequence[tuple[str, pa.Array]]) -> list[bytes]:
    """Return each row as a JSON object of the columns, in their order."""
    names = [name for name, _ in columns]
    rows = zip(*(_plain(column) for _, column in columns), strict=True)
    return [_encode(dict(zip(names, row, strict=True))).encode() for row in rows]


def plain_texts(column: pa.Array) -> list[bytes | None]:
    """Return each value as JSON text; strings are not quoted, and null is None."""
    return [
        None if value is None else (value if isinstance(value, str) else _encode(value)).encode()
        for value in _plain(column)
    ]


def _plain(column: pa.Array) -> Iterable[Plain]:
    """Return the values of a column in a form that `json` can write."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        texts: list[Plain] = column.cast(pa.string()).to_pylist()
        return texts
    values: list[Plain] = column.to_pylist()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind):
        return values
    if pa.types.is_floating(kind):
        return [_number(value) for value in values]
    return [_value(value, kind) for value in values]


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _times(column: pa.Array) -> Iterable[Plain]:
    """Return ISO 8601 texts with the column's precision; "Z" follows if the column has a zone."""
    import pyarrow as pa

    kind = column.type
    zone = "" if kind.tz is None else "Z"
    texts = column.cast(pa.int64()).cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
    return [None if text is None else text.replace(" ", "T") + zone for text in texts]


def _number(value: Plain) -> Plain:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _value(value: object, kind: pa.DataType) -> Plain:
    """Return a value of a struct, list, map or other column in a form that `json` can write."""
    import pyarrow as pa

    if value is None or isinstance(value, str | bool | int | float):
        return _number(value)
    if isinstance(value, dict):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        if pa.types.is_map(kind):
            return {
                _key(_value(name, kind.key_type)): _value(item, kind.item_type)
                for name, item in value
            }
        return [_value(item, kind.value_type) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, Decimal) else _encode(str(value))


def _key(value: Plain) -> str:
    return value if isinstance(value, str) else _encode(value)
