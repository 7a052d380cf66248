"""Avro values, decoded with a schema from a file."""

from __future__ import annotations

import datetime
import io
import tracemalloc
from decimal import Decimal

import pyarrow as pa
import pytest

from aiokq.spark.loading.avro_values import AvroReaders, arrow_of_avro
from aiokq.spark.loading.values import RecordDecoder

fastavro = pytest.importorskip("fastavro")


FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6,
                                   "scale": 2}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "legs", "type": {"type": "array", "items": {"type": "record", "name": "Leg",
                                  "fields": [{"name": "to", "type": "string"}]}}},
    ],
}  # fmt: skip
ROW = {
    "id": 7,
    "carrier": None,
    "at": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC),
    "price": Decimal("12.50"),
    "uid": "c0ffee00-0000-4000-8000-000000000001",
    "kind": "A",
    "again": "B",
    "tags": {"a": 1},
    "legs": [{"to": "SFO"}],
}


def encoded(row: dict, schema: object = FLIGHT) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), row)
    return file.getvalue()


def decoded(*values: bytes | None, prefix: bool = False):
    decoder = RecordDecoder(arrow_of_avro(FLIGHT), AvroReaders(FLIGHT), prefix)
    return decoder.decode(pa.array(values, pa.binary()))


def test_each_type_is_read() -> None:
    """Logical types become columns of their own types."""
    found = decoded(encoded(ROW), None)

    assert not found.errors
    assert found.values.to_pylist() == [ROW | {"tags": [("a", 1)]}, None]


def test_bytes_that_are_no_value_are_bad() -> None:
    """Truncated, too long or random bytes each get an error; the other values are read."""
    good = encoded(ROW)
    found = decoded(good, good[:-3], good + b"x", b"\xff" * 30, b"", good)

    assert list(found.errors) == [1, 2, 3, 4]
    assert "1 bytes are left over" in found.errors[2]
    assert [row and row["id"] for row in found.values.to_pylist()] == [7, None, None, None, None, 7]


def test_the_prefix_of_a_schema_registry_is_skipped() -> None:
    """Confluent's serializers write it."""
    found = decoded(b"\x00\x00\x00\x00\x01" + encoded(ROW), encoded(ROW), prefix=True)

    assert found.values.to_pylist()[0]["id"] == 7
    assert list(found.errors) == [1]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("nothing", "not an Avro schema"),
        ({"type": "record", "name": "R"}, "not an Avro schema"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]},
            "a union of several types",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]},
            "R is recursive",
        ),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "use micros"),
        # Otherwise seven bytes could stand for an array of two thousand million items.
        ({"type": "array", "items": "null"}, "type 'null' cannot be a column"),
        ({"type": "array", "items": ["null"]}, "a union of several types"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "zero bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "of zero bytes"),
        (
            {
                "type": "array",
                "items": {
                    "type": "fixed",
                    "name": "F",
                    "size": 0,
                    "logicalType": "decimal",
                    "precision": 2,
                },
            },
            "array of length 0",
        ),
    ],
)
def test_a_schema_without_columns_is_refused(schema: object, reason: str) -> None:
    """It is refused before anything is loaded."""
    with pytest.raises(ValueError, match=reason):
        arrow_of_avro(schema)


ONE = {"type": "record", "name": "One", "fields": [{"name": "a", "type": ["null", "int"]}]}
ITEMS: list[object] = [
    *("boolean", "int", "long", "float", "double", "bytes", "string"),
    ["null", "long"],
    {"type": "enum", "name": "E", "symbols": ["A"]},
    {"type": "fixed", "name": "F", "size": 1},
    {"type": "bytes", "logicalType": "decimal", "precision": 4},
    {"type": "array", "items": "int"},
    {"type": "map", "values": "int"},
    ONE,
]


@pytest.mark.parametrize("items", ITEMS, ids=str)
@pytest.mark.parametrize("kind", ["array", "map"])
def test_a_value_that_claims_more_than_it_has_is_bad_at_once(kind: str, items: object) -> None:
    """Regression: a few bytes that announce billions of items filled the memory of a task."""
    schema = {"type": kind, "items" if kind == "array" else "values": items}
    read = AvroReaders(schema)()
    for count in (2**31, 2**62):
        for sized in (count, -count):
            for rest in (b"", b"\x00", b"\x02" * 100, b"\x00" * 100):
                hostile = long(sized) + (long(1) if sized < 0 else b"") + rest
                tracemalloc.start()
                try:
                    with pytest.raises(ValueError, match="not an Avro value of this schema"):
                        read(hostile)
                    assert tracemalloc.get_traced_memory()[1] < 2**20
                finally:
                    tracemalloc.stop()


def long(value: int) -> bytes:
    """Encode a long as Avro does: zigzag, seven bits per byte."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, "long", value)
    return file.getvalue()
