"""Arrow rows as records: nulls, headers, times, and the order within partitions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aiokq.spark.write_options import WriteColumns
from aiokq.spark.write_rows import PIECE_BYTES, Chunk, chunks, pieces

pa = pytest.importorskip("pyarrow")


def batch(**columns: Any) -> tuple[Any, WriteColumns]:
    """A batch of these columns, and where they are."""
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return made, WriteColumns(**{name: at for at, name in enumerate(columns)})


def test_keys_and_values_become_pairs_for_one_call() -> None:
    """The usual frame: anything slower than one list of pairs would be the sink's bottleneck."""
    rows, columns = batch(key=pa.array([b"a", None]), value=pa.array([b"1", b"2"]))

    assert chunks(rows, columns, "t") == [Chunk("t", None, [(b"a", b"1"), (None, b"2")])]


def test_text_is_written_as_utf8_and_null_stays_null() -> None:
    """A null value deletes a key of a compacted topic: as b"" it would keep it."""
    rows, columns = batch(key=pa.array(["ä", "b"]), value=pa.array(["ö", None]))

    assert chunks(rows, columns, "t")[0].records == [("ä".encode(), "ö".encode()), (b"b", None)]


def test_a_frame_without_keys_has_records_without_keys() -> None:
    """The key column is optional."""
    rows, columns = batch(value=pa.array([b"1", b"2"]))

    assert chunks(rows, columns, "t")[0].records == [(None, b"1"), (None, b"2")]


def test_headers_of_a_slice_are_those_of_its_rows() -> None:
    """Arrow keeps the headers of all rows in one array: a slice must not begin at its start."""
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

    assert [record[2:] for record in chunks(rows.slice(1), columns, "t")[0].records] == [
        (None, None),
        ([], None),
        ([("b", None), ("b", b"2")], None),
    ]


def test_times_are_milliseconds() -> None:
    """Spark's are microseconds: written as they are they would be in the year 50,000."""
    at = datetime(2024, 5, 6, 7, 8, 9, 123_999, UTC)
    rows, columns = batch(
        value=pa.array([b"0", b"1"]),
        timestamp=pa.array([at, None], pa.timestamp("us", tz="Europe/Berlin")),
    )

    assert [record[3:] for record in chunks(rows, columns, "t")[0].records] == [
        (1_714_979_289_123,),
        (None,),
    ]


def test_each_topic_and_partition_is_a_chunk_of_rows_in_order() -> None:
    """One call per row would be slow, and rows out of order would be wrong."""
    rows, columns = batch(
        value=pa.array([b"0", b"1", b"2", b"3"]),
        topic=pa.array(["x", "y", "x", "x"]),
        partition=pa.array([1, 1, 1, 0], pa.int32()),
    )

    assert chunks(rows, columns, None) == [
        Chunk("x", 1, [(None, b"0"), (None, b"2")]),
        Chunk("y", 1, [(None, b"1")]),
        Chunk("x", 0, [(None, b"3")]),
    ]


def test_the_topic_option_wins_over_the_column() -> None:
    """As in Spark's own connector."""
    rows, columns = batch(value=pa.array([b"0"]), topic=pa.array(["column"]))

    assert [chunk.topic for chunk in chunks(rows, columns, "option")] == ["option"]


def test_a_single_topic_in_the_column_is_one_chunk() -> None:
    """The usual case of the column."""
    rows, columns = batch(value=pa.array([b"0", b"1"]), topic=pa.array(["x", "x"]))

    assert chunks(rows, columns, None) == [Chunk("x", None, [(None, b"0"), (None, b"1")])]


def test_a_row_with_a_partition_stays_between_rows_whose_keys_choose() -> None:
    """A key may pick the very partition that another row names: their order is the frame's."""
    rows, columns = batch(
        value=pa.array([b"0", b"1", b"2"]), partition=pa.array([None, 0, None], pa.int32())
    )

    assert [(chunk.partition, len(chunk.records)) for chunk in chunks(rows, columns, "t")] == [
        (None, 1),
        (0, 1),
        (None, 1),
    ]


def test_a_row_without_a_topic_is_refused_in_sparks_words() -> None:
    """Written to the topic 'None' it would be lost."""
    rows, columns = batch(value=pa.array([b"0"]), topic=pa.array([None], pa.string()))

    with pytest.raises(ValueError, match="contains a null topic"):
        chunks(rows, columns, None)


def test_an_empty_batch_has_no_chunks() -> None:
    """A task may have no rows."""
    rows, columns = batch(value=pa.array([], pa.binary()))

    assert chunks(rows, columns, "t") == []
    assert list(pieces(rows)) == []


def test_a_batch_of_large_rows_is_cut() -> None:
    """Ten thousand rows of 1 MB come as one batch: as Python objects they would be there twice."""
    rows, _ = batch(value=pa.array([bytes(PIECE_BYTES // 4)] * 10))

    cut = list(pieces(rows))

    assert [piece.num_rows for piece in cut] == [3, 3, 3, 1]


def test_a_small_batch_is_one_piece() -> None:
    """Each piece is a call to another thread."""
    rows, _ = batch(value=pa.array([b"value"] * 10_000))

    assert [piece.num_rows for piece in pieces(rows)] == [10_000]
