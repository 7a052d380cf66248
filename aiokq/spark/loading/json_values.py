"""Conversion of JSON values to Arrow types, with one converter per type.

A value that does not match its type is an error: for example a number for a string, or 1.5 for an
integer. Members that the schema does not have are left out. Missing members become null if the
schema allows null.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from aiokq.spark.loading.values import Reader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["JsonReaders"]

Convert: TypeAlias = Callable[[object, str], object]
"""Function from a JSON value and its path in the document to a value for `pyarrow.array`."""

_WORDS: Final = {
    bool: "true or false",
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    type(None): "null",
}


@dataclass(frozen=True)
class JsonReaders:
    """Factory of readers for one type; pickled and sent to the tasks."""

    kind: pa.DataType

    def __call__(self) -> Reader:
        """Return a function from a JSON document to a value of the column's type; None for null."""
        convert = _converter(self.kind)
        parse_float = Decimal if _has_decimals(self.kind) else float

        def read(value: bytes) -> object:
            try:
                # Floats are parsed as Decimal if the type has decimals, because floats would lose
                # digits.
                document = json.loads(
                    value, parse_float=parse_float, parse_constant=_refuse_constant
                )
            except RecursionError:
                raise ValueError("nested too deeply") from None
            except ValueError as error:
                raise ValueError(f"not JSON: {error}") from error
            if document is None:
                return None
            return convert(document, "$")

        return read


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _has_decimals(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(n).type) for n in range(kind.num_fields))


def _converter(kind: pa.DataType) -> Convert:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_map(kind):
        return _map(_converter(kind.item_type))
    if types.is_list(kind):
        return _list(_converter(kind.value_type))
    if types.is_string(kind):
        return _of(str)
    if types.is_boolean(kind):
        return _of(bool)
    if types.is_integer(kind):
        return _integer(kind.bit_width)
    if types.is_floating(kind):
        return _floating
    if types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return _timestamp(zoned=kind.tz is not None)
    if types.is_date(kind):
        return _parsed(datetime.date.fromisoformat, "a date, 2026-01-31")
    if types.is_time(kind):
        return _parsed(datetime.time.fromisoformat, "a time, 12:30:00")
    assert types.is_binary(kind), kind
    return _parsed(_base64, "base64")


def _wrong(value: object, where: str, wanted: str) -> ValueError:
    return ValueError(f"{where} is {_WORDS.get(type(value), 'something else')}, not {wanted}")


def _of(kind: type) -> Convert:
    def convert(value: object, where: str) -> object:
        if type(value) is not kind:
            raise _wrong(value, where, _WORDS[kind])
        return value

    return convert


_WIDEST: Final = 20
"""Exponent above which a Decimal fits no integer type.

A Decimal with a larger exponent is refused before it is divided by 1, because the division raises
an error above 28 digits.
"""


def _integer(bits: int) -> Convert:
    limit = 2 ** (bits - 1)

    def convert(value: object, where: str) -> object:
        if isinstance(value, Decimal) and value.adjusted() > _WIDEST:
            raise ValueError(f"{where} is out of the range of {bits} bits")
        if isinstance(value, float | Decimal) and value == value // 1:
            value = int(value)
        if type(value) is not int:
            raise _wrong(value, where, "an integer")
        if not -limit <= value < limit:
            raise ValueError(f"{where} is out of the range of {bits} bits")
        return value

    return convert


def _floating(value: object, where: str) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(value, where, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise ValueError(f"{where} is out of the range of a double")
    return number


def _decimal(precision: int, scale: int) -> Convert:
    def convert(value: object, where: str) -> object:
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            raise _wrong(value, where, "a number")
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise ValueError(f"{where} is not a decimal number") from None
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int):
            raise ValueError(f"{where} is not a decimal number")
        if exponent < -scale:
            # The context has enough precision for all digits, because the default context silently
            # rounds to 28 digits.
            number = number.normalize(Context(prec=len(digits)))
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        whole = len(digits) + exponent if number else 0
        if -exponent > scale or whole > precision - scale:
            raise ValueError(f"{where} does not fit decimal({precision},{scale})")
        return number

    return convert


def _timestamp(*, zoned: bool) -> Convert:
    def convert(value: object, where: str) -> object:
        if not isinstance(value, str):
            raise _wrong(value, where, "a timestamp as a string, 2026-01-31T12:00:00Z")
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{where} is not a timestamp: {value!r}") from None
        if zoned:
            # Timestamps without a zone are in UTC, as everywhere in a load.
            return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        if moment.tzinfo is not None:
            raise ValueError(f"{where} has a time zone, but its type has none: {value!r}")
        return moment

    return convert


def _parsed(parse: Callable[[str], object], what: str) -> Convert:
    def convert(value: object, where: str) -> object:
        if not isinstance(value, str):
            raise _wrong(value, where, f"a string with {what}")
        try:
            return parse(value)
        except ValueError:
            raise ValueError(f"{where} is not {what}: {value[:80]!r}") from None

    return convert


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _list(item: Convert) -> Convert:
    def convert(value: object, where: str) -> object:
        if not isinstance(value, list):
            raise _wrong(value, where, "an array")
        return [
            None if element is None else item(element, f"{where}[{number}]")
            for number, element in enumerate(value)
        ]

    return convert


def _map(item: Convert) -> Convert:
    def convert(value: object, where: str) -> object:
        if not isinstance(value, dict):
            raise _wrong(value, where, "an object")
        return [
            (key, None if element is None else item(element, f"{where}.{key}"))
            for key, element in value.items()
        ]

    return convert


def _struct(kind: pa.StructType) -> Convert:
    fields = [(field.name, _converter(field.type), field.nullable) for field in kind]

    def convert(value: object, where: str) -> object:
        if not isinstance(value, dict):
            raise _wrong(value, where, "an object")
        found: dict[str, object] = {}
        for name, member, nullable in fields:
            element = value.get(name)
            if element is not None:
                found[name] = member(element, f"{where}.{name}")
            elif nullable:
                found[name] = None
            else:
                raise ValueError(f"{where}.{name} is required, and missing")
        return found

    return convert
