"""Conversion of JSON Schema and of Spark schemas to Arrow types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["arrow_of_json_schema", "arrow_of_spark"]

DEEPEST: Final = 64
"""Maximum depth of a schema; recursive definitions exceed it, and are refused."""


def arrow_of_spark(kind: object) -> pa.DataType:
    """Return the Arrow type for a Spark type.

    Args:
        kind: the Spark type as parsed JSON, such as ``"long"`` or ``{"type": "struct", ...}``.

    Raises:
        ValueError: `kind` is not a Spark type, or is a type that is not supported for values.
    """
    import pyarrow as pa

    simple = {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "binary": pa.binary(),
    }
    if isinstance(kind, str):
        if kind in simple:
            return simple[kind]
        if found := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind):
            return pa.decimal128(int(found[1]), int(found[2]))
        if re.fullmatch(r"(var)?char\(\d+\)", kind):
            return pa.string()
        raise ValueError(f"type {kind!r} is not supported for values")
    if not isinstance(kind, Mapping):
        raise ValueError(f"{kind!r} is not a Spark type")
    try:
        match kind["type"]:
            case "struct":
                if not kind["fields"]:
                    raise ValueError("a struct needs fields")
                return pa.struct([_spark_field(field) for field in kind["fields"]])
            case "array":
                element = arrow_of_spark(kind["elementType"])
                return pa.list_(pa.field("element", element, kind["containsNull"]))
            case "map":
                if kind["keyType"] != "string":
                    raise ValueError("the keys of a map must be strings")
                item = arrow_of_spark(kind["valueType"])
                return pa.map_(pa.string(), pa.field("value", item, kind["valueContainsNull"]))
            case other:
                raise ValueError(f"type {other!r} is not supported for values")
    except KeyError as error:
        raise ValueError(f"a type lacks {error}: {dict(kind)!r}") from None


def _spark_field(field: Mapping[str, object]) -> pa.Field:
    import pyarrow as pa

    return pa.field(
        str(field["name"]), arrow_of_spark(field["type"]), bool(field.get("nullable", True))
    )


def arrow_of_json_schema(schema: Mapping[str, object]) -> pa.DataType:
    """Return the Arrow type of values that match a JSON Schema.

    Objects become structs of their ``properties`` or, without properties, maps of
    ``additionalProperties``. Strings with the format date-time become timestamps, strings with the
    format date become dates, and strings with ``"contentEncoding": "base64"`` become binary values.

    Raises:
        ValueError: the schema is malformed, has no type, allows several types, or is recursive.
    """
    return _JsonSchema(schema).type(schema, "$", 0)


class _JsonSchema:
    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root

    def type(self, schema: object, where: str, depth: int) -> pa.DataType:
        import pyarrow as pa

        schema = self._resolved(schema, where, depth)
        match self._type_name(schema, where):
            case "object":
                return self._object(schema, where, depth)
            case "array":
                if not isinstance(schema.get("items"), Mapping):
                    raise ValueError(f"{where}: an array needs a schema in items")
                items = self.type(schema["items"], f"{where}[]", depth + 1)
                return pa.list_(pa.field("element", items))
            case "string":
                return self._string(schema)
            case "integer":
                return pa.int64()
            case "number":
                return pa.float64()
            case "boolean":
                return pa.bool_()
            case other:
                raise ValueError(f"{where}: type {other!r} is not supported")

    def _object(self, schema: Mapping[str, object], where: str, depth: int) -> pa.DataType:
        import pyarrow as pa

        properties = schema.get("properties")
        if properties is None:
            items = schema.get("additionalProperties")
            if not isinstance(items, Mapping):
                raise ValueError(
                    f"{where}: an object needs properties, or a schema in additionalProperties"
                )
            return pa.map_(pa.string(), self.type(items, f"{where}.*", depth + 1))
        if not isinstance(properties, Mapping):
            raise ValueError(f"{where}: properties is not an object")
        if not properties:
            raise ValueError(f"{where}: an object needs at least one property")
        required = schema.get("required", ())
        if not isinstance(required, Sequence):
            raise ValueError(f"{where}: required is not an array")
        return pa.struct(
            [
                pa.field(
                    name,
                    self.type(member, f"{where}.{name}", depth + 1),
                    name not in required or self._may_be_null(member, where, depth),
                )
                for name, member in properties.items()
            ]
        )

    def _string(self, schema: Mapping[str, object]) -> pa.DataType:
        import pyarrow as pa

        if schema.get("contentEncoding") == "base64":
            return pa.binary()
        match schema.get("format"):
            case "date-time":
                return pa.timestamp("us", tz="UTC")
            case "date":
                return pa.date32()
        return pa.string()

    def _resolved(self, schema: object, where: str, depth: int) -> Mapping[str, object]:
        """Return the schema with references resolved, and without a null alternative."""
        if depth > DEEPEST:
            raise ValueError(f"{where[:80]}: recursive, or deeper than {DEEPEST} levels")
        if not isinstance(schema, Mapping):
            raise ValueError(f"{where}: {schema!r} is not a schema")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._resolved(self._referred(reference, where), where, depth + 1)
        for word in ("anyOf", "oneOf"):
            options = schema.get(word)
            if isinstance(options, Sequence):
                others = [option for option in options if option != {"type": "null"}]
                if len(others) != 1:
                    raise ValueError(f"{where}: {word} of several types cannot be a column")
                return self._resolved(others[0], where, depth + 1)
        return schema

    def _referred(self, reference: str, where: str) -> object:
        found: object = self._root
        if not reference.startswith("#"):
            raise ValueError(f"{where}: $ref {reference!r} is in another document")
        for part in reference.removeprefix("#").strip("/").split("/"):
            if part and (not isinstance(found, Mapping) or part not in found):
                raise ValueError(f"{where}: $ref {reference!r} is not found")
            found = found[part] if part else found  # type: ignore[index]  # a Mapping
        return found

    def _type_name(self, schema: Mapping[str, object], where: str) -> object:
        name = schema.get("type")
        if isinstance(name, list):
            others = [other for other in name if other != "null"]
            if len(others) != 1:
                raise ValueError(f"{where}: several types ({name}) cannot be a column")
            return others[0]
        if name is None and "properties" in schema:
            return "object"
        if name is None:
            values = schema.get("enum")
            if isinstance(values, list) and all(isinstance(value, str) for value in values):
                return "string"
            raise ValueError(f"{where}: the schema has no type")
        return name

    def _may_be_null(self, schema: object, where: str, depth: int) -> bool:
        if not isinstance(schema, Mapping):
            return False
        name = schema.get("type")
        if isinstance(name, list) and "null" in name:
            return True
        options = schema.get("anyOf", schema.get("oneOf"))
        return isinstance(options, list) and {"type": "null"} in options
