"""Reads Avro values that are not in a container file, and converts Avro schemas to Arrow types.

fastavro reads the values; it is installed by the extra ``avro``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aiokq.spark.loading.values import Reader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["AvroReaders", "arrow_of_avro"]

_BAD: Final = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors that fastavro raises for bytes that are not a value of the schema."""

_NAMED: Final = ("record", "error", "enum", "fixed")
_READ_AS_STORED: Final = ("uuid", "duration")
"""Logical types that are ignored, because pyarrow does not accept fastavro's objects for them."""


@dataclass(frozen=True)
class AvroReaders:
    """Factory of readers for one schema; pickled and sent to the tasks.

    Args:
        schema: Avro schema as parsed JSON.
    """

    schema: object

    def __call__(self) -> Reader:
        """Return a reader, which raises ValueError for bytes that do not fit the schema."""
        import fastavro

        parsed = fastavro.parse_schema(cast("dict[str, object]", _as_stored(self.schema)))
        read_one = cast("Callable[..., object]", fastavro.schemaless_reader)

        def read(value: bytes) -> object:
            file = io.BytesIO(value)
            try:
                found = read_one(file, parsed, None)
            except _BAD as error:
                raise ValueError(f"not an Avro value of this schema: {_text(error)}") from error
            rest = len(value) - file.tell()
            if rest:
                raise ValueError(f"not an Avro value of this schema: {rest} bytes are left over")
            return found

        return read


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _as_stored(schema: object) -> object:
    if isinstance(schema, Mapping):
        return {
            name: _as_stored(value)
            for name, value in schema.items()
            if not (name == "logicalType" and value in _READ_AS_STORED)
        }
    if isinstance(schema, list):
        return [_as_stored(one) for one in schema]
    return schema


def arrow_of_avro(schema: object) -> pa.DataType:
    """Return the Arrow type of values of an Avro schema.

    Raises:
        ValueError: `schema` is not an Avro schema, or has a type that a column cannot have.
    """
    import fastavro

    try:
        fastavro.parse_schema(cast("dict[str, object]", schema))
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ValueError(f"not an Avro schema: {_text(error)}") from error
    except _BAD as error:
        raise ValueError(f"not an Avro schema: {_text(error)}") from error
    try:
        kind, _ = _Types().type(schema, "", "$")
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not an Avro schema: {error!r}") from error
    return kind


class _Types:
    """Arrow types of one schema; a named type can be used after its definition."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[pa.DataType, bool]] = {}
        self._open: set[str] = set()

    def type(self, schema: object, namespace: str, where: str) -> tuple[pa.DataType, bool]:
        """Return the Arrow type of a schema, and whether its values may be null."""
        if isinstance(schema, list):
            return self._union(schema, namespace, where)
        if isinstance(schema, str):
            return self._by_name(schema, namespace, where), False
        assert isinstance(schema, Mapping)
        if isinstance(schema["type"], list | dict):
            return self.type(schema["type"], namespace, where)
        logical = self._logical(schema, where)
        kind = str(schema["type"])
        if kind not in _NAMED:
            return logical or self._unnamed(schema, kind, namespace, where), False
        if schema.get("size") == 0 or (kind in ("record", "error") and not schema["fields"]):
            raise ValueError(
                f"{where}: a {kind} of zero bytes cannot be loaded, because an array could claim "
                "any number of such values"
            )
        name = str(schema["name"])
        if "." not in name:
            namespace = str(schema.get("namespace", namespace))
            name = f"{namespace}.{name}" if namespace else name
        else:
            namespace = name.rpartition(".")[0]
        self._open.add(name)
        found = logical or self._of_named(schema, kind, namespace, where)
        self._open.discard(name)
        self._named[name] = (found, False)
        return found, False

    def _union(self, schema: list[object], namespace: str, where: str) -> tuple[pa.DataType, bool]:
        others = [one for one in schema if one not in ("null", {"type": "null"})]
        if len(others) != 1:
            raise ValueError(f"{where}: a union of several types cannot be a column")
        return self.type(others[0], namespace, where)[0], len(others) < len(schema)

    def _by_name(self, name: str, namespace: str, where: str) -> pa.DataType:
        import pyarrow as pa

        simple = {
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "bytes": pa.binary(),
            "string": pa.string(),
        }
        if name in simple:
            return simple[name]
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        for candidate in (full, name):
            if candidate in self._open:
                raise ValueError(f"{where}: {name} is recursive, and cannot be a column")
            if candidate in self._named:
                return self._named[candidate][0]
        raise ValueError(f"{where}: type {name!r} cannot be a column")

    def _unnamed(
        self, schema: Mapping[str, object], kind: str, namespace: str, where: str
    ) -> pa.DataType:
        import pyarrow as pa

        if kind == "array":
            item, nullable = self.type(schema["items"], namespace, f"{where}[]")
            return pa.list_(pa.field("element", item, nullable))
        if kind == "map":
            item, nullable = self.type(schema["values"], namespace, f"{where}.*")
            return pa.map_(pa.string(), pa.field("value", item, nullable))
        return self._by_name(kind, namespace, where)

    def _of_named(
        self, schema: Mapping[str, object], kind: str, namespace: str, where: str
    ) -> pa.DataType:
        import pyarrow as pa

        if kind == "enum":
            return pa.string()
        if kind == "fixed":
            return pa.binary()
        fields = []
        for field in cast("list[Mapping[str, object]]", schema["fields"]):
            name = str(field["name"])
            member, nullable = self.type(field["type"], namespace, f"{where}.{name}")
            fields.append(pa.field(name, member, nullable))
        return pa.struct(fields)

    def _logical(self, schema: Mapping[str, object], where: str) -> pa.DataType | None:
        import pyarrow as pa

        match schema.get("logicalType"):
            case "decimal":
                precision, scale = schema.get("precision"), schema.get("scale", 0)
                if not isinstance(precision, int) or not isinstance(scale, int) or precision > 38:
                    raise ValueError(f"{where}: a decimal needs a precision of at most 38 digits")
                return pa.decimal128(precision, scale)
            case "date":
                return pa.date32()
            case "time-millis" | "time-micros":
                return pa.time64("us")
            case "timestamp-millis" | "timestamp-micros":
                return pa.timestamp("us", tz="UTC")
            case "local-timestamp-millis" | "local-timestamp-micros":
                return pa.timestamp("us")
            case str(other) if other.endswith("-nanos"):
                raise ValueError(f"{where}: {other} is not supported; use micros")
        return None
