"""Arrow rows as records: nulls, headers, timestamps, and the order within partitions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aiokq.spark.write_options import WriteColumns
from aiokq.spark.write_rows import Chunk, chunks

pa = pytest.importorskip("pyarrow")


def batch(**columns: Any) -> tuple[Any, WriteColumns]:
    """Return a batch of these columns, and their positions."""
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return made, WriteColumns(**{name: at for at, name in enumerate(columns)})


def records(chunk: Chunk) -> list[tuple[Any, ...]]:
    """Return (key, value, headers, timestamp_ms, partition) of each row."""
    return [chunk.rows.record(n) for n in range(len(chunk.rows))]


def test_text_is_written_as_utf8_and_null_stays_null() -> None:
    """A null value deletes its key in a compacted topic, an empty one does not."""
    rows, columns = batch(key=pa.array(["ä", "b"]), value=pa.array(["ö", None]))

    (chunk,) = chunks(rows, columns, "t")

    assert chunk.topic == "t"
    assert [record[:2] for record in records(chunk)] == [("ä".encode(), "ö".encode()), (b"b", None)]


def test_a_frame_without_keys_has_records_without_keys() -> None:
    """The key column is optional."""
    rows, columns = batch(value=pa.array([b"1", b"2"]))

    assert [r[:2] for r in records(chunks(rows, columns, "t")[0])] == [(None, b"1"), (None, b"2")]


def test_headers_of_a_slice_are_those_of_its_rows() -> None:
    """Arrow keeps the headers of all rows in one array, in which a slice has an offset."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array(
        [
            [{"key": "a", "value": b"1"}],
            None,
            [],
            [{"key": "b", "value": None}, {"key": "b", "value": b"2"}],
        ],
        kind,
    )
    rows, columns = batch(value=pa.array([b"0", b"1", b"2", b"3"]), headers=headers)

    assert [record[2:4] for record in records(chunks(rows.slice(1), columns, "t")[0])] == [
        (None, None),
        ([], None),
        ([("b", None), ("b", b"2")], None),
    ]


def test_times_are_milliseconds() -> None:
    """Spark has microseconds; written unchanged they would be in the year 50,000."""
    at = datetime(2024, 5, 6, 7, 8, 9, 123_999, UTC)
    rows, columns = batch(
        value=pa.array([b"0", b"1"]),
        timestamp=pa.array([at, None], pa.timestamp("us", tz="Europe/Berlin")),
    )

    assert [record[3:4] for record in records(chunks(rows, columns, "t")[0])] == [
        (1_714_979_289_123,),
        (None,),
    ]


def test_each_topic_has_its_rows_in_order() -> None:
    """One call per row would be slow, and rows out of order would be wrong."""
    rows, columns = batch(
        value=pa.array([b"0", b"1", b"2", b"3"]),
        topic=pa.array(["x", "y", "x", "x"]),
        partition=pa.array([1, 1, None, 0], pa.int32()),
    )

    assert [
        (chunk.topic, [(record[1], record[4]) for record in records(chunk)])
        for chunk in chunks(rows, columns, None)
    ] == [("x", [(b"0", 1), (b"2", None), (b"3", 0)]), ("y", [(b"1", 1)])]


def test_the_topic_option_wins_over_the_column() -> None:
    """As in Spark's own connector."""
    rows, columns = batch(value=pa.array([b"0"]), topic=pa.array(["column"]))

    assert [chunk.topic for chunk in chunks(rows, columns, "option")] == ["option"]


def test_a_single_topic_in_the_column_is_one_chunk() -> None:
    """The usual content of the column."""
    rows, columns = batch(value=pa.array([b"0", b"1"]), topic=pa.array(["x", "x"]))

    assert [(chunk.topic, len(chunk.rows)) for chunk in chunks(rows, columns, None)] == [("x", 2)]


def test_a_row_without_a_topic_is_refused_in_sparks_words() -> None:
    """Otherwise the row would be written to a topic 'None'."""
    rows, columns = batch(value=pa.array([b"0"]), topic=pa.array([None], pa.string()))

    with pytest.raises(ValueError, match="contains a null topic"):
        chunks(rows, columns, None)


def test_an_empty_batch_has_no_chunks() -> None:
    """A task may have no rows."""
    rows, columns = batch(value=pa.array([], pa.binary()))

    assert chunks(rows, columns, "t") == []
