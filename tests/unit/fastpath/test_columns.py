"""Columns: records in Arrow's layout, with the column names of Spark's Kafka source."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from aiokq.core.errors import CorruptRecord

pa = pytest.importorskip("pyarrow")

Make = Callable[..., object]

RECORDS = [
    (b"k0", b"v0", [("h", b"x"), ("n", None)], 1_000),
    (None, b"v1", None, 2_000),
    (b"", None, [("ü", b"")], 3_000),
    (b"k3", b"", None, 4_000),
] * 5


def test_arrow_has_the_columns_of_sparks_kafka_source(encode: Make, cursor: Make) -> None:
    """Schema and values are the same; a record without headers has null, as in Spark."""
    table = cursor(encode(RECORDS, base_offset=7), 7).columns().to_arrow()
    table.validate(full=True)
    header = pa.struct(
        [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    )
    assert table.schema.types == [
        pa.binary(),
        pa.binary(),
        pa.string(),
        pa.int32(),
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
        pa.int32(),
        pa.list_(header),
    ]
    assert table.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    rows = table.to_pylist()
    assert [row["key"] for row in rows] == [record[0] for record in RECORDS]
    assert [row["value"] for row in rows] == [record[1] for record in RECORDS]
    assert [row["offset"] for row in rows] == list(range(7, 27))
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("t", 0, 0)}
    assert rows[1]["timestamp"] == datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC)
    assert rows[0]["headers"] == [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]
    assert rows[1]["headers"] is None
    assert rows[2]["headers"] == [{"key": "ü", "value": b""}]


@pytest.mark.parametrize("codec", [0, 3])
def test_many_batches_make_one_table(encode: Make, cursor: Make, codec: int) -> None:
    """Buffers grow over batches, whose validity bits do not start at byte boundaries."""
    sizes = [1, 3, 7, 8, 9, 64, 13]
    data = b""
    expected = []
    for size in sizes:
        records = [
            (None if n % 3 else b"k%d" % n, None if n % 5 == 2 else b"v" * n, None, n)
            for n in range(size)
        ]
        data += encode(records, base_offset=len(expected), codec=codec)
        expected += records
    for start in (0, 2, 50):
        reading = cursor(data, start)
        table = reading.columns().to_arrow()
        table.validate(full=True)
        assert table.column("key").to_pylist() == [r[0] for r in expected[start:]]
        assert table.column("value").to_pylist() == [r[1] for r in expected[start:]]
        assert table.column("offset").to_pylist() == list(range(start, sum(sizes)))
        assert reading.position == reading.handed + start == sum(sizes)


def test_only_what_is_asked_for_is_filled(encode: Make, cursor: Make) -> None:
    """A query that needs only values must not decode keys."""
    columns = cursor(encode(RECORDS)).columns(["offset", "value"])
    assert (columns.names, len(columns)) == (("offset", "value"), 20)
    assert columns.key is None
    assert columns.headers is None
    assert columns.timestamp is None
    assert columns.to_arrow().schema.names == ["offset", "value"]
    assert cursor(encode(RECORDS)).columns(["topic"]).to_arrow().num_rows == 20
    with pytest.raises(ValueError, match="no column 'offsets'"):
        cursor(b"").columns(["offsets"])


def test_the_rest_follows_what_was_read_one_by_one(encode: Make, cursor: Make) -> None:
    """Records and columns may be read in turn; each record is returned once."""
    reading = cursor(encode(RECORDS) + encode(RECORDS, base_offset=20))
    assert next(reading).offset == 0
    assert len(reading.columns()) == 39
    assert len(reading.columns()) == 0
    assert reading.position == 40


def test_nothing_makes_an_empty_table(cursor: Make) -> None:
    """It has the same schema and no rows."""
    table = cursor(b"").columns().to_arrow()
    table.validate(full=True)
    assert table.num_rows == 0
    assert len(table.schema) == 8


def test_a_stop_offset_bounds_columns(encode: Make, cursor: Make) -> None:
    """Spark reads exact offset ranges."""
    reading = cursor(encode(RECORDS), 3, stop_offset=11)
    assert reading.columns(["offset"]).to_arrow().column("offset").to_pylist() == list(range(3, 11))
    assert reading.position == 11


@pytest.mark.parametrize("codec", [0, 1])
def test_columns_end_with_the_batch_that_fills_them(encode: Make, cursor: Make, codec: int) -> None:
    """Zeros compress a thousandfold, so columns of a whole fetch would have no size limit."""
    rows = [(None, bytes(1000), None, n) for n in range(10)]
    data = b"".join(encode(rows, base_offset=at, codec=codec) for at in range(0, 50, 10))
    reading = cursor(data)

    counts = []
    while not reading.exhausted:
        counts.append(len(reading.columns(["value"], max_bytes=15_000)))
    assert counts == [20, 20, 10]
    assert reading.position == 50

    reading = cursor(data, 5)
    next(reading)
    assert [len(reading.columns([], 1)), len(reading.columns([], max_bytes=None))] == [4, 40]
    assert len(cursor(data).columns(["offset"], 0)) == 10


def test_names_that_are_not_utf8_are_replaced(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """Arrow's strings are UTF-8; records replace such names in the same way."""
    batch = bytearray(encode([(None, b"v", [("name", b"x"), ("ok", b"y")], 1)]))
    at = batch.index(b"name")
    batch[at : at + 4] = b"\xff\xfe\xfd\xfc"
    batch[17:21] = core.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    (record,) = cursor(batch)
    assert record.headers == (("�" * 4, b"x"), ("ok", b"y"))
    table = cursor(batch).columns().to_arrow()
    table.validate(full=True)
    assert table.column("headers").to_pylist() == [
        [{"key": "�" * 4, "value": b"x"}, {"key": "ok", "value": b"y"}]
    ]


def test_what_stands_before_a_bad_batch_is_handed_over(encode: Make, cursor: Make) -> None:
    """The error is raised by the next call."""
    bad = bytearray(encode(RECORDS, base_offset=20))
    bad[-1] ^= 1
    reading = cursor(encode(RECORDS) + bad)
    assert len(reading.columns()) == 20
    with pytest.raises(CorruptRecord):
        reading.columns()


def test_the_buffers_are_plain_memory(encode: Make, cursor: Make) -> None:
    """Without pyarrow users can read them with numpy.frombuffer()."""
    columns = cursor(encode(RECORDS[:4])).columns()
    valid, offsets, data = columns.value
    assert struct.unpack("<5i", offsets) == (0, 2, 4, 4, 4)
    assert bytes(data) == b"v0v1"
    assert valid[0] & 0xF == 0b1011
    assert struct.unpack("<4q", columns.timestamp) == (1_000_000, 2_000_000, 3_000_000, 4_000_000)


def test_arrow_outlives_the_cursor(encode: Make, cursor: Make) -> None:
    """The table owns its memory."""
    data = bytearray(encode(RECORDS))
    table = cursor(data).columns().to_arrow()
    data[:] = bytes(len(data))
    assert table.column("key").to_pylist()[:4] == [b"k0", None, b"", b"k3"]
