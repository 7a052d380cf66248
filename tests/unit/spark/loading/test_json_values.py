"""JSON values: what is read, and what is refused for which reason."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from aiokq.spark.loading.json_schema import arrow_of_json_schema, arrow_of_spark
from aiokq.spark.loading.json_values import JsonReaders
from aiokq.spark.loading.values import RecordDecoder

FLIGHT = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("carrier", pa.string()),
        pa.field("delay", pa.float64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("legs", pa.list_(pa.struct([pa.field("to", pa.string())]))),
        pa.field("tags", pa.map_(pa.string(), pa.int32())),
        pa.field("price", pa.decimal128(6, 2)),
        pa.field("day", pa.date32()),
        pa.field("raw", pa.binary()),
        pa.field("late", pa.bool_()),
    ]
)


def decoded(*values: bytes | None, kind: pa.DataType = FLIGHT, prefix: bool = False):
    decoder = RecordDecoder(kind, JsonReaders(kind), prefix)
    return decoder.decode(pa.array(values, pa.binary()))


def test_each_type_is_read() -> None:
    """A column that silently became null would be noticed much later."""
    found = decoded(
        b'{"id": 7, "carrier": "UA", "delay": 3, "at": "2026-01-31T12:00:00+01:00", '
        b'"legs": [{"to": "SFO"}, null], "tags": {"a": 1}, "price": 12.50, "day": "2026-01-31", '
        b'"raw": "AAE=", "late": true, "more": 1}'
    )

    assert not found.errors
    assert found.values.to_pylist() == [
        {
            "id": 7,
            "carrier": "UA",
            "delay": 3.0,
            "at": datetime.datetime(2026, 1, 31, 11, tzinfo=datetime.UTC),
            "legs": [{"to": "SFO"}, None],
            "tags": [("a", 1)],
            "price": Decimal("12.50"),
            "day": datetime.date(2026, 1, 31),
            "raw": b"\x00\x01",
            "late": True,
        }
    ]


def test_zero_fits_a_decimal_without_a_digit_before_the_point() -> None:
    """Regression: 0 of decimal(2,2) was refused, so that its record became a dead letter."""
    kind = pa.decimal128(2, 2)
    for text, value in ((b"0", "0"), (b"0.00", "0"), (b"0.000", "0"), (b"0.25", "0.25")):
        assert JsonReaders(kind)()(text) == Decimal(value)
    with pytest.raises(ValueError, match="does not fit"):
        JsonReaders(kind)()(b"1")


def test_a_decimal_keeps_all_of_its_digits() -> None:
    """Regression: a number with more zeros than its scale was silently rounded to 28 digits."""
    kind = pa.decimal128(38, 2)

    found = decoded(b"123456789012345678901234567890.120", b"0.000", kind=kind)

    assert not found.errors
    assert found.values.to_pylist() == [Decimal("123456789012345678901234567890.12"), Decimal(0)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "$ is an array, not an object"),
        (b"{}", "$.id is required, and missing"),
        (b'{"id": null}', "$.id is required, and missing"),
        (b'{"id": "7"}', "$.id is a string, not an integer"),
        (b'{"id": 1.5}', "$.id is a number, not an integer"),
        (b'{"id": true}', "$.id is true or false, not an integer"),
        (b'{"id": 9223372036854775808}', "$.id is out of the range of 64 bits"),
        (b'{"id": 1, "carrier": 7}', "$.carrier is a number, not a string"),
        (b'{"id": 1, "delay": NaN}', "NaN is not a JSON number"),
        (b'{"id": 1, "delay": 1' + b"0" * 400 + b"}", "$.delay is out of the range of a double"),
        (b'{"id": 1, "delay": 1e400}', "$.delay is out of the range of a double"),
        (b'{"id": 1e30}', "$.id is out of the range of 64 bits"),
        (b'{"id": 1e999999}', "$.id is out of the range of 64 bits"),
        (b'{"id": 1, "at": "noon"}', "$.at is not a timestamp: 'noon'"),
        (b'{"id": 1, "legs": [{"to": "a"}, {"to": 1}]}', "$.legs[1].to is a number"),
        (b'{"id": 1, "tags": {"a": 3000000000}}', "$.tags.a is out of the range of 32 bits"),
        (b'{"id": 1, "price": 12.345}', "$.price does not fit decimal(6,2)"),
        (b'{"id": 1, "price": 12345}', "$.price does not fit decimal(6,2)"),
        (b'{"id": 1, "day": "2026-02-30"}', "$.day is not a date"),
        (b'{"id": 1, "raw": "***"}', "$.raw is not base64"),
        (b'{"id": 1, "carrier": "\\ud800"}', "surrogates not allowed"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_value_is_told_with_its_place(value: bytes, reason: str) -> None:
    """The good values around it keep their places, and the load continues."""
    found = decoded(b'{"id": 1}', value, None, b'{"id": 2}')

    assert list(found.errors) == [1]
    assert reason in found.errors[1]
    ids = [None if row is None else row["id"] for row in found.values.to_pylist()]
    assert ids == [1, None, None, 2]


def test_the_prefix_of_a_schema_registry_is_skipped() -> None:
    """A value without the prefix is an error, and not read from its sixth byte on."""
    found = decoded(b'\x00\x00\x00\x00\x07{"id": 1}', b'{"id": 2}', prefix=True)

    assert found.values.to_pylist()[0]["id"] == 1
    assert list(found.errors) == [1]


def test_a_json_schema_is_a_type() -> None:
    """With references, alternatives with null, and required members."""
    schema = json.loads(
        """{"type": "object", "required": ["id", "legs"], "$defs": {"leg": {"type": "object",
        "properties": {"to": {"type": "string"}}}}, "properties": {"id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"}, "delay": {"type": ["number", "null"]},
        "legs": {"type": "array", "items": {"$ref": "#/$defs/leg"}},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "kind": {"enum": ["a", "b"]}, "other": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}}
        """
    )

    assert arrow_of_json_schema(schema) == pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("delay", pa.float64()),
            pa.field(
                "legs",
                pa.list_(pa.field("element", pa.struct([pa.field("to", pa.string())]))),
                nullable=False,
            ),
            pa.field("tags", pa.map_(pa.string(), pa.int64())),
            pa.field("kind", pa.string()),
            pa.field("other", pa.bool_()),
        ]
    )


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "the schema has no type"),
        ({"type": "object"}, "an object needs properties"),
        ({"type": "object", "properties": {}}, "an object needs at least one property"),
        ({"type": "array"}, "an array needs a schema in items"),
        ({"type": ["string", "integer"]}, "several types"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "several types"),
        ({"$ref": "#/nowhere"}, "is not found"),
        ({"$ref": "other.json"}, "is in another document"),
        ({"type": "thing"}, "type 'thing' is not supported"),
        ({"type": "object", "properties": {"self": {"$ref": "#"}}}, "recursive"),
    ],
)
def test_a_schema_without_one_type_is_refused(schema: dict, reason: str) -> None:
    """It is refused before anything is loaded."""
    with pytest.raises(ValueError, match=reason):
        arrow_of_json_schema(schema)


def test_a_schema_of_sparks_is_a_type() -> None:
    """As `df.schema.json()` writes it."""
    types = pytest.importorskip("pyspark.sql.types")
    schema = (
        types.StructType()
        .add("id", "long", False)
        .add("price", "decimal(6,2)")
        .add("legs", types.ArrayType(types.StringType(), False))
        .add("tags", types.MapType(types.StringType(), types.IntegerType()))
        .add("at", "timestamp_ntz")
    )

    assert arrow_of_spark(json.loads(schema.json())) == pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(6, 2)),
            pa.field("legs", pa.list_(pa.field("element", pa.string(), nullable=False))),
            pa.field("tags", pa.map_(pa.string(), pa.int32())),
            pa.field("at", pa.timestamp("us")),
        ]
    )
    with pytest.raises(ValueError, match="variant"):
        arrow_of_spark("variant")
