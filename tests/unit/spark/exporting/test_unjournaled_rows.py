"""Rows that are in the log already, recognized by their contents."""

from __future__ import annotations

from aiokq.spark.exporting.records import Row
from aiokq.spark.exporting.unjournaled_rows import Place, UnjournaledRows

Headers = list[tuple[str, bytes | None]]


def row(
    value: bytes | None,
    key: bytes | None = None,
    headers: Headers | None = None,
    time: int | None = None,
    partition: int | None = None,
) -> Row:
    return Row((key, value, headers, time), partition)


def test_a_row_is_taken_as_often_as_it_is_there() -> None:
    """Of several equal rows only as many count as sent as the log has."""
    arrived = UnjournaledRows()
    for offset in (3, 8):
        arrived.add(None, b"v", (), 5, Place(1, offset))
    assert arrived.take(row(b"w")) is None
    assert [arrived.take(row(b"v")) for _ in range(3)] == [Place(1, 3), Place(1, 8), None]
    assert len(arrived) == 0


def test_a_row_that_says_its_partition_is_found_in_that_one_only() -> None:
    """An equal row in another partition is another row."""
    arrived = UnjournaledRows()
    arrived.add(None, b"v", (), None, Place(1, 3))
    assert arrived.take(row(b"v", partition=0)) is None
    assert arrived.take(row(b"v", partition=1)) == Place(1, 3)


def test_keys_headers_and_nothing_are_told_apart() -> None:
    """Null differs from an empty value, and a header from a key."""
    contents: list[tuple[bytes | None, bytes | None, Headers]] = [
        (None, b"", []),
        (b"", None, []),
        (None, None, []),
        (b"", b"", []),
        (None, b"", [("", None)]),
        (None, b"", [("", b"")]),
        (None, b"", [("a", b"b")]),
        (None, b"", [("a", b""), ("b", b"")]),
        (b"a", b"b", []),
        (b"ab", b"", []),
    ]
    for there in range(len(contents)):
        arrived = UnjournaledRows()
        arrived.add(*contents[there], 1, Place(0, 0))
        found = [
            number
            for number, (key, value, headers) in enumerate(contents)
            if arrived.take(row(value, key, headers)) is not None
        ]
        assert found == [there]


def test_times_count_where_rows_have_them_and_the_broker_keeps_them() -> None:
    """Measurements may differ in their timestamp only; with LogAppendTime the broker sets it."""
    arrived = UnjournaledRows()
    arrived.add(None, b"v", (), 20, Place(0, 0))
    assert arrived.take(row(b"v", time=10)) is None
    assert arrived.take(row(b"v", time=20)) == Place(0, 0)
    arrived.add(None, b"v", (), None, Place(0, 1))
    assert arrived.take(row(b"v", time=10)) == Place(0, 1)


def test_a_row_without_a_time_is_found_by_the_rest() -> None:
    """Regression: a null timestamp had become the time of sending, so the row was sent again."""
    arrived = UnjournaledRows()
    for offset, time in enumerate((10, 1_700_000_000_000, 30)):
        arrived.add(None, b"v", (), time, Place(0, offset))
    taken = [arrived.take(row(b"v", time=time)) for time in (10, None, 30)]
    assert taken == [Place(0, 0), Place(0, 1), Place(0, 2)]
