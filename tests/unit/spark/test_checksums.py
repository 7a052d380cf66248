"""Checksums of rows: equal for equal rows in any order, different for different rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aiokq.spark.checksums import batch_checksum, checksum
from aiokq.spark.write_options import WriteColumns

pa = pytest.importorskip("pyarrow")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ALL = WriteColumns(value=0, key=1, topic=2, partition=3, timestamp=4, headers=5)
TIME = datetime(2026, 1, 31, tzinfo=UTC)
ROWS = [
    ("v", b"k", "t", 1, TIME, [{"key": "a", "value": b"1"}]),
    (None, None, "u", 2, None, None),
]


def total(rows: list[tuple[object, ...]], columns: WriteColumns = ALL) -> int:
    kinds = (
        pa.string(),
        pa.binary(),
        pa.string(),
        pa.int32(),
        pa.timestamp("us", "UTC"),
        HEADERS,
    )
    arrays = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)]
    return batch_checksum(pa.record_batch(arrays, names=list("abcdef")), columns)


def test_the_order_of_rows_does_not_count() -> None:
    """A shuffle delivers the rows of a task in another order when the batch is repeated."""
    assert total(ROWS) == total(ROWS[::-1]) != 0


@pytest.mark.parametrize("column", range(6))
def test_each_column_that_is_written_counts(column: int) -> None:
    """Otherwise a row that went to another topic or partition would pass as repeated."""
    changed = list(ROWS[0])
    changed[column] = ROWS[1][column]

    assert total([tuple(changed), ROWS[1]]) != total(ROWS)


def test_rows_that_exchange_a_part_are_others() -> None:
    """The parts of a row belong together."""
    first, second = (list(row) for row in ROWS)
    first[3], second[3] = second[3], first[3]

    assert total([tuple(first), tuple(second)]) != total(ROWS)


def test_columns_that_are_not_written_do_not_count() -> None:
    """The checksum of a row is that of its record."""
    assert total(ROWS, WriteColumns(value=0, key=1)) == sum(
        [checksum(b"k", b"v"), checksum(None, None)]
    )
    assert checksum(b"", b"") != checksum(None, b"") != checksum(b"", None)
