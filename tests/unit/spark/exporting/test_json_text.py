"""Arrow columns as JSON text."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from aiokq.spark.exporting.json_text import documents, plain_texts


def test_a_row_is_an_object_of_its_columns_in_their_order() -> None:
    """Some consumers rely on the order of fields; text may be in any script."""
    columns = [("b", pa.array([1, None])), ("a", pa.array(["ü€😀", '"\n']))]
    assert documents(columns) == ['{"b":1,"a":"ü€😀"}'.encode(), b'{"b":null,"a":"\\"\\n"}']


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([2**63 - 1, -1]), [2**63 - 1, -1]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array([True, None]), [True, None]),
        (pa.array([0.1, float("nan"), float("-inf")]), [0.1, "NaN", "-Infinity"]),
        (pa.array([Decimal("1.50")]), ["1.50"]),
        (pa.array([date(2026, 1, 31)]), ["2026-01-31"]),
        (pa.array([time(1, 2, 3)], pa.time32("s")), ["01:02:03"]),
        (pa.array([0], pa.timestamp("s")), ["1970-01-01T00:00:00"]),
        (pa.array([1, None], pa.timestamp("ns", "UTC")), ["1970-01-01T00:00:00.000000001Z", None]),
        (pa.array([0], pa.timestamp("us", "No/Where")), ["1970-01-01T00:00:00.000000Z"]),
        (pa.array([timedelta(seconds=1.5)]), [1.5]),
        (pa.array([b"\xff\x00"]), ["/wA="]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.array([None, None]), [None, None]),
    ],
    ids=str,
)
def test_types_that_json_lacks_lose_nothing(column: pa.Array, found: list[object]) -> None:
    """Decimals keep all digits, and NaN becomes a string, because JSON has no NaN."""
    texts = documents([("v", column)])
    assert [json.loads(text)["v"] for text in texts] == found


def test_what_is_nested_is_nested() -> None:
    """Structs, lists and maps are written with all they contain."""
    kind = pa.struct(
        [
            ("list", pa.list_(pa.float64())),
            ("map", pa.map_(pa.int32(), pa.decimal128(4, 2))),
            ("time", pa.timestamp("us", "UTC")),
            ("bytes", pa.binary()),
        ]
    )
    row = {
        "list": [1.5, float("inf"), None],
        "map": [(1, Decimal("2.50"))],
        "time": datetime(2026, 1, 31, tzinfo=UTC),
        "bytes": b"\xff",
    }
    (text,) = documents([("v", pa.array([row], kind))])
    assert json.loads(text)["v"] == {
        "list": [1.5, "Infinity", None],
        "map": {"1": "2.50"},
        "time": "2026-01-31T00:00:00Z",
        "bytes": "/w==",
    }


def test_a_key_that_is_a_number_is_its_digits() -> None:
    """Other programs look up keys, so numbers and dates have no quotes."""
    assert plain_texts(pa.array([42, None])) == [b"42", None]
    assert plain_texts(pa.array([date(2026, 1, 31)])) == [b"2026-01-31"]
    assert plain_texts(pa.array([{"a": 1}])) == [b'{"a":1}']
