"""Conversion of rows to records: which column becomes which part."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from aiokq.errors import ConfigError
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.records import Row, rows

LOADED = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def one(batch: pa.RecordBatch, columns: ExportColumns) -> Row:
    (row,) = rows(batch, columns.of(batch.schema.names))
    return row


def test_rows_of_kafka_records_become_what_they_were() -> None:
    """A backup is restored as the original records, not as JSON of offsets and timestamps."""
    found = ExportColumns().of([*LOADED, "headers"])
    assert (found.key, found.value, found.headers) == ("key", "value", "headers")
    assert (found.timestamp, found.partition) == ("timestamp", None)
    assert ExportColumns(partition="partition").of(LOADED).value == "value"


def test_other_rows_are_json_of_all_columns() -> None:
    """Rows with a column that Kafka records do not have lose none of their columns."""
    found = ExportColumns(key="id").of(["id", "value", "amount"])
    assert found.fields == ("id", "value", "amount")
    assert found.value is None
    assert ExportColumns(fields=()).of(LOADED).fields == tuple(LOADED)
    assert ExportColumns(fields=("key",)).of(LOADED).fields == ("key",)
    assert ExportColumns(value="key").of(LOADED).key is None


def test_a_value_has_one_meaning() -> None:
    """If both are given, one of them would be ignored."""
    with pytest.raises(ConfigError, match="not both"):
        ExportColumns(value="a", fields=("b",)).of(["a", "b"])


def test_bytes_and_text_are_taken_as_they_are() -> None:
    """Bytes that are not UTF-8, text with a quote, and null are sent unchanged."""
    for column, expected in (
        (pa.array([b"\xff"]), b"\xff"),
        (pa.array([b"\xff"], pa.large_binary()), b"\xff"),
        (pa.array([b"ab"], pa.binary(2)), b"ab"),
        (pa.array(['"ü']), '"ü'.encode()),
        (pa.array(["x"], pa.large_string()), b"x"),
        (pa.array(["x"]).dictionary_encode(), b"x"),
        (pa.array([None], pa.binary()), None),
        (pa.array([1.5]), b"1.5"),
    ):
        batch = pa.record_batch({"k": column, "v": column})
        assert one(batch, ExportColumns(key="k", value="v")).record[:2] == (expected, expected)


@pytest.mark.parametrize(
    ("column", "milliseconds"),
    [
        (pa.array([1_500], pa.int64()), 1_500),
        (pa.array([2], pa.timestamp("s")), 2_000),
        (pa.array([1_999], pa.timestamp("us", "UTC")), 1),
        (pa.array([-1_000_001], pa.timestamp("ns")), -2),
        (pa.array([-1_000], pa.timestamp("us", "UTC")), None),
        (pa.array([-1], pa.int64()), None),
        (pa.array([7], pa.timestamp("ms", "No/Where")), 7),
        (pa.array([date(1970, 1, 2)]), 86_400_000),
        (pa.array([None], pa.timestamp("us")), None),
    ],
    ids=str,
)
def test_times_are_milliseconds(column: pa.Array, milliseconds: int | None) -> None:
    """Unknown zones, nanoseconds, times before 1970, and -1 for records without a timestamp.

    Producers reject -1, so an export could never get past such a record.
    """
    batch = pa.record_batch({"t": column, "v": pa.array(["v"])})
    assert one(batch, ExportColumns(value="v", timestamp="t")).record[3] == milliseconds


def test_headers_come_from_one_column_and_from_several() -> None:
    """Both may be given; null is no header, an empty text is a header."""
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}]], HEADER)
    batch = pa.record_batch(
        {"h": headers, "n": pa.array([5]), "x": pa.array([None], pa.string()), "v": pa.array(["v"])}
    )
    columns = ExportColumns(value="v", headers="h", header_columns={"n": "n", "x": "x"})
    assert one(batch, columns).record[2] == [("a", b"1"), ("a", None), ("n", b"5")]
    nothing = pa.record_batch({"h": pa.array([None], HEADER), "v": pa.array(["v"])})
    assert one(nothing, ExportColumns(value="v", headers="h")).record[2] is None


def test_a_missing_column_is_named_with_those_there_are() -> None:
    """A typing error in a column name is found in the tenth file."""
    schema = pa.schema([("id", pa.int64())])
    with pytest.raises(ConfigError, match=r"f\.parquet: there is no column 'ID'; there are id, d"):
        ExportColumns(key="ID", fields=("id",)).check(schema, "f.parquet", ["d"])


@pytest.mark.parametrize("what", ["headers", "timestamp", "partition"])
def test_a_column_of_a_wrong_type_is_named(what: str) -> None:
    """A text column for a number would otherwise fail in the middle of an export."""
    columns = ExportColumns(value="t", **{what: "t"})
    with pytest.raises(
        ConfigError, match=f"column 't' is string; the column of the {what} must be"
    ):
        columns.check(pa.schema([("t", pa.string())]), "f")
    with pytest.raises(ConfigError, match="of the path"):
        columns.check(pa.schema([]), "f", ["t"])


def test_the_mapping_is_told_in_words() -> None:
    """Users who gave no columns have to see what was chosen."""
    told = ExportColumns(key="a", partition="p").of(["a", "b", "c", "d", "e", "p"]).describe()
    assert told == "key: a; value: JSON of a, b, c, d and 2 more; partition: p"
    assert ExportColumns().of(LOADED).describe() == "key: key; value: value; timestamp: timestamp"
