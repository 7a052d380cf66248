"""RecordColumns and append_columns: rows read from Arrow's buffers, in both builds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.core.errors import DeliveryFailed, RecordTooLarge, UnknownTopicOrPartition
from aiokq.records.codecs import RecordCodecs
from aiokq.records.legacy import encode_message_set
from aiokq.records.record import RawRecord

pa = pytest.importorskip("pyarrow")

Make = Callable[..., Any]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = [
    (b"k0", b"v0", [("h", b"x"), ("n", None)], 1_000, None),
    (None, b"v1", None, None, 2),
    (b"", None, [("\u00fc" * 90, b"")], 3_000, None),
    (b"k3", b"", [], 5_000, 0),
    (b"k" * 200, b"v" * 9000, None, None, None),
] * 7


def arrow(rows: list[Any] = ROWS) -> Any:
    """Return rows of (key, value, headers, timestamp_ms, partition) as an Arrow batch."""
    keys, values, headers, times, partitions = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array(
                [None if t is None else 1000 * t + 999 for t in times], pa.timestamp("us", "UTC")
            ),
            "partition": pa.array(partitions, pa.int32()),
        }
    )


def test_rows_are_those_of_the_batch(core: SimpleNamespace) -> None:
    """Nulls, empty values, and a timestamp that is truncated to milliseconds."""
    columns = core.RecordColumns.from_arrow(arrow())

    assert [columns.record(n) for n in range(len(columns))] == ROWS
    assert repr(columns) == "<RecordColumns of 35 records>"
    with pytest.raises(IndexError):
        columns.record(35)


@pytest.mark.parametrize("start", [1, 8, 13])
def test_a_slice_has_its_own_rows(core: SimpleNamespace, start: int) -> None:
    """Arrow's slices share the whole buffers, so validity bits may begin inside a byte."""
    columns = core.RecordColumns.from_arrow(arrow().slice(start, 11))

    assert [columns.record(n) for n in range(11)] == ROWS[start : start + 11]


def test_text_of_any_width_is_its_utf8(core: SimpleNamespace) -> None:
    """With an option Spark uses 64-bit offsets for text."""
    for kind in (pa.string(), pa.large_string()):
        batch = pa.record_batch({"value": pa.array(["\u00e4", None], kind)})
        columns = core.RecordColumns.from_arrow(batch)
        assert [columns.record(n)[1] for n in range(2)] == ["\u00e4".encode(), None]


def test_a_batch_that_was_read_goes_out_as_it_is(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """from_arrow() reverses to_arrow(), without offsets and topics."""
    records = [(b"k", b"v%d" % n, [("h", b"x")], n) for n in range(20)]
    batch = cursor(encode(records), 0).columns().to_arrow()

    columns = core.RecordColumns.from_arrow(batch)

    assert [columns.record(n) for n in range(20)] == [(*record, 0) for record in records]


def test_a_record_without_a_time_is_sent_with_that_of_sending(
    core: SimpleNamespace, cursor: Make
) -> None:
    """Regression: records from before Kafka 0.10 have timestamp -1 and were rejected."""
    old = [RawRecord(n, time, None, b"v") for n, time in enumerate((5000, -1, 6000))]
    batch = cursor(encode_message_set(old, 1), codecs=RecordCodecs()).columns().to_arrow()

    columns = core.RecordColumns.from_arrow(batch)

    assert [columns.record(n)[3] for n in range(3)] == [5000, None, 6000]
    with pytest.raises(ValueError, match="timestamp of record 0 is negative: -2001 microseconds"):
        core.RecordColumns.from_arrow(arrow([(None, b"v", None, -3, None)]))


def test_rows_become_the_bytes_that_records_become(core: SimpleNamespace, bench: Make) -> None:
    """Partitions, batches and their bytes are the same with both methods."""
    made = [bench(3, seed=5), bench(3, seed=5)]
    rows = [
        (key, value, heads, time or 7, partition) for key, value, heads, time, partition in ROWS
    ]

    columns = core.RecordColumns.from_arrow(arrow([(*row[:3], row[3], row[4]) for row in rows]))
    deliveries, consumed = made[0].accumulator.append_columns("t", columns)
    one_by_one = [
        made[1].append("t", value, key, partition, time, heads)
        for key, value, heads, time, partition in rows
    ]

    assert consumed == len(deliveries) == len(rows)
    assert [(d.partition, d.timestamp_ms) for d in deliveries[:]] == [
        (d.partition, d.timestamp_ms) for d in one_by_one
    ]
    assert [bytes(b.stamp()) for b in made[0].opened] == [bytes(b.stamp()) for b in made[1].opened]


def test_rows_without_room_wait_and_go_on_where_they_were(
    core: SimpleNamespace, bench: Make
) -> None:
    """A batch of Spark may be larger than buffer_memory."""
    made = bench(1, buffer_memory=20_000, batch_size=4096)
    rows = [(None, b"%04d" % n * 100, None, None, None) for n in range(120)]
    columns = core.RecordColumns.from_arrow(arrow(rows))
    values = []

    deliveries, done = made.accumulator.append_columns("t", columns)
    while True:
        assert len(deliveries) == done
        for batch in made.opened:
            values += [value for _, value, _, _ in batch.records()]
            batch.complete(0)
        made.opened.clear()
        slot = made.route.slots[0]
        slot.take_open()
        if done == len(rows):
            break
        made.accumulator.waiting = 1
        assert made.accumulator.append_columns("t", columns, start=done, into=deliveries) == (
            deliveries,
            done,
        )
        _, done = made.accumulator.append_columns(
            "t", columns, start=done, into=deliveries, waited=True
        )

    assert values == [row[1] for row in rows]
    with pytest.raises(ValueError, match="do not continue the previous call"):
        made.accumulator.append_columns("t", columns, start=1, into=deliveries, waited=True)
    with pytest.raises(ValueError, match="requires `into`"):
        made.accumulator.append_columns("t", columns, start=1)


def test_rows_for_an_unknown_topic_wait_for_its_partitions(
    core: SimpleNamespace, bench: Make
) -> None:
    """The first rows of a task come before the topic's metadata."""
    made = bench(0)
    rows = [row for row in ROWS if row[4] != 2]
    columns = core.RecordColumns.from_arrow(arrow(rows))

    deliveries, done = made.accumulator.append_columns("t", columns)
    made.accumulator.set_route("t", 2, range(2), lambda slot: made.owner)

    assert done == len(rows)
    assert [d.timestamp_ms for d in deliveries[:3:2]] == [1000, 5000]
    assert {d.partition for d in deliveries[:]} == {0, 1}


async def test_a_failure_names_the_rows_it_is_about(core: SimpleNamespace, bench: Make) -> None:
    """One of three partitions failed; the rows of the others were delivered."""
    made = bench(3)
    rows = [(None, b"v", None, n, n % 3) for n in range(9)]
    columns = core.RecordColumns.from_arrow(arrow(rows))

    deliveries, _ = made.accumulator.append_columns("t", columns)
    for batch in made.opened:
        if batch.partition == 1:
            batch.fail(ValueError("no"))
        else:
            batch.complete(100 * batch.partition)

    with pytest.raises(DeliveryFailed) as caught:
        await deliveries
    assert [error is None for error in caught.value.errors] == [n % 3 != 1 for n in range(9)]
    assert (await deliveries[8]).offset == 202
    assert (await deliveries[8]).timestamp_ms == 8


def test_what_cannot_be_a_record_is_refused_before_any_row_is_taken(
    core: SimpleNamespace, bench: Make
) -> None:
    """Half of a batch in the log and an error would be the worst outcome."""
    made = bench(2, max_record_bytes=5000)

    def append(*rows: Any) -> None:
        columns = core.RecordColumns.from_arrow(arrow([(None, b"v", None, None, None), *rows]))
        made.accumulator.append_columns("t", columns)

    with pytest.raises(UnknownTopicOrPartition, match="'t' has 2 partitions"):
        append((None, b"v", None, None, 2))
    with pytest.raises(RecordTooLarge, match="record 1 has 6000 bytes"):
        append((None, bytes(6000), None, None, None))
    with pytest.raises(ValueError, match="partition -1: partitions are numbered from 0"):
        append((None, b"v", None, None, -1))
    with pytest.raises(ValueError, match="timestamp of record 1"):
        append((None, b"v", None, -5, None))
    with pytest.raises(TypeError, match="a header's name is str, not NoneType"):
        append((None, b"v", [(None, b"x")], None, None))
    with pytest.raises(TypeError, match="columns are RecordColumns"):
        made.accumulator.append_columns("t", arrow())
    assert made.accumulator.used_bytes == 0


@pytest.mark.parametrize(
    ("offsets", "data", "text"),
    [
        ([0, 3, 2], b"abc", "value: offset 2 is 2, must be from 3 to 3"),
        ([0, 1, 4], b"abc", "value: offset 2 is 4, must be from 1 to 3"),
        ([-1, 1, 2], b"abc", "value: offset 0 is -1, must be from 0 to 3"),
        ([0, 1], b"abc", "value: 8 bytes, 12 are required"),
    ],
)
def test_offsets_outside_the_bytes_are_refused(
    core: SimpleNamespace, offsets: list[int], data: bytes, text: str
) -> None:
    """The compiled core would read beyond the buffer."""
    packed = struct.pack(f"={len(offsets)}i", *offsets)

    with pytest.raises(ValueError, match=text):
        core.RecordColumns(2, value=(None, packed, data))


@pytest.mark.parametrize("count", [-1, 2**31, 2**62 - 1, 2**63 - 1])
def test_more_rows_than_offsets_can_have_are_refused(core: SimpleNamespace, count: int) -> None:
    """Four times that number overflows 64 bits, and a small buffer would seem sufficient."""
    with pytest.raises(ValueError, match="must be from 0 to"):
        core.RecordColumns(count, value=(None, bytes(8), b""))


@pytest.mark.parametrize("partitions", [0, 1])
def test_a_header_whose_name_is_no_utf_8_stops_no_batch(
    core: SimpleNamespace, bench: Make, partitions: int
) -> None:
    """Regression: Spark casts any bytes to text, and the error came after half of the rows."""
    made = bench(partitions)
    starts = struct.pack("=2i", 0, 1)
    headers = (None, struct.pack("=3i", 0, 0, 1), starts, b"\xff", None, starts, b"x")
    value = (None, struct.pack("=3i", 0, 1, 2), b"ab")

    _, done = made.accumulator.append_columns(
        "t", core.RecordColumns(2, value=value, headers=headers)
    )
    made.accumulator.set_route("t", 1, range(1), lambda slot: made.owner)

    assert done == 2
    assert [record[:3] for record in made.opened[0].records()] == [
        (None, b"a", []),
        (None, b"b", [("\ufffd", b"x")]),
    ]


def test_times_finer_than_a_millisecond_are_cut_off(core: SimpleNamespace) -> None:
    """pandas has nanoseconds; coarser timestamps that do not fit are rejected."""
    for unit, time in (("ns", 1_999_999), ("us", 1_999), ("ms", 1)):
        batch = pa.record_batch(
            {"value": pa.array([b"v"]), "timestamp": pa.array([time], pa.timestamp(unit))}
        )
        assert core.RecordColumns.from_arrow(batch).record(0)[3] == 1
    far = pa.record_batch(
        {"value": pa.array([b"v"]), "timestamp": pa.array([2**62], pa.timestamp("s"))}
    )
    with pytest.raises(ValueError, match="out of bounds"):
        core.RecordColumns.from_arrow(far)


def test_a_buffer_that_may_change_is_copied(core: SimpleNamespace) -> None:
    """Offsets are checked only once, so a later change could lead outside the buffer."""
    offsets, data = bytearray(struct.pack("=2i", 0, 3)), bytearray(b"abc")
    columns = core.RecordColumns(1, value=(None, offsets, data))

    offsets[:] = struct.pack("=2i", 0, 1 << 30)
    data[:] = b"xyz"

    assert columns.record(0)[1] == b"abc"


def test_what_was_checked_does_not_change_under_a_view_that_only_reads(
    core: SimpleNamespace, bench: Make
) -> None:
    """`toreadonly()` protects only the view: the owner of the memory may still write to it.

    Regression: offsets changed after the check led outside the buffer, partitions to no slot.
    """
    memory = {
        "offsets": bytearray(struct.pack("=3i", 0, 1, 2)),
        "names": bytearray(struct.pack("=3i", 0, 1, 2)),
        "rows": bytearray(struct.pack("=3i", 0, 1, 2)),
        "bits": bytearray([0b11]),
        "times": bytearray(struct.pack("=2q", 5000, 6000)),
        "partitions": bytearray(struct.pack("=2i", 0, 1)),
    }
    view = {name: memoryview(part).toreadonly() for name, part in memory.items()}
    columns = core.RecordColumns(
        2,
        value=(view["bits"], view["offsets"], b"ab"),
        key=(view["bits"], view["offsets"], b"kl"),
        headers=(
            *(view["bits"], view["rows"], view["names"], b"hi"),
            *(view["bits"], view["names"], b"xy"),
        ),
        timestamp=(view["bits"], view["times"]),
        partition=(view["bits"], view["partitions"]),
    )
    made = bench(2)
    expected = [
        (b"k", b"a", [("h", b"x")], 5, 0),
        (b"l", b"b", [("i", b"y")], 6, 1),
    ]

    for part in memory.values():
        part[:] = b"\x7f" * len(part)

    assert [columns.record(n) for n in range(2)] == expected
    deliveries, _ = made.accumulator.append_columns("t", columns)
    assert [(d.partition, d.timestamp_ms) for d in deliveries[:]] == [(0, 5), (1, 6)]
    sent = {batch.partition: batch.records() for batch in made.opened}
    assert sent == {0: [(b"k", b"a", [("h", b"x")], 5)], 1: [(b"l", b"b", [("i", b"y")], 6)]}


def test_accepted_rows_are_not_read_again(core: SimpleNamespace, bench: Make) -> None:
    """The memory may be reused for the next batch once the call has returned."""
    memory = bytearray(b"first")
    columns = core.RecordColumns(
        1, value=(None, struct.pack("=2i", 0, 5), memoryview(memory).toreadonly())
    )
    made = bench(1)

    made.accumulator.append_columns("t", columns)
    memory[:] = b"later"

    assert made.opened[0].records()[0][1] == b"first"
    assert columns.record(0)[1] == b"later"  # a reference: contents are not copied twice


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("value", pa.array([1])),
        ("key", pa.array([1.5])),
        ("headers", pa.array(["h"])),
        ("timestamp", pa.array([1])),
        ("partition", pa.array([1], pa.int64())),
    ],
)
def test_a_column_of_another_type_is_named(core: SimpleNamespace, name: str, array: Any) -> None:
    """Its bytes would be misinterpreted."""
    columns = {"value": pa.array([b"v"]), name: array}

    with pytest.raises(TypeError, match=f"column {name} must be "):
        core.RecordColumns.from_arrow(pa.record_batch(columns))


def test_values_are_needed(core: SimpleNamespace) -> None:
    """In a batch without values the value column most likely has another name."""
    with pytest.raises(ValueError, match="the column `value` is missing: there are key"):
        core.RecordColumns.from_arrow(pa.record_batch({"key": pa.array([b"k"])}))


def test_no_rows_are_no_records(core: SimpleNamespace, bench: Make) -> None:
    """An empty Arrow array may have no buffers at all."""
    batch = arrow().slice(0, 0)
    for empty in (batch, pa.record_batch({"value": pa.array([], pa.binary())})):
        deliveries, done = bench(1).accumulator.append_columns(
            "t", core.RecordColumns.from_arrow(empty)
        )
        assert (len(deliveries), done) == (0, 0)


@pytest.mark.parametrize("index", [-1, 1, 2**31, 2**63, 2**64, -(2**64)])
def test_a_row_that_is_not_there_is_an_index_error(core: SimpleNamespace, index: int) -> None:
    """Regression: an index beyond C's range raised OverflowError in one of the builds."""
    offsets = struct.pack("<2i", 0, 1)
    columns = core.RecordColumns(1, value=(None, offsets, b"v"))
    for call in (columns.record, columns.size):
        with pytest.raises(IndexError):
            call(index)


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (-1, ValueError),
        (2**31, ValueError),
        (2**64, ValueError),
        (1.0, TypeError),
        (True, TypeError),
    ],
)
def test_a_count_that_cannot_be_is_refused(
    core: SimpleNamespace, count: object, error: type[Exception]
) -> None:
    """Rows are counted in 32 bits."""
    with pytest.raises(error, match="count"):
        core.RecordColumns(count, value=(None, b"", b""))


def test_rows_are_sorted_by_partition(core: SimpleNamespace) -> None:
    """Rows without a partition come first, then ascending partitions, each with rows in order."""
    columns = core.RecordColumns.from_arrow(arrow())

    rows = columns.rows_by_partition()

    assert list(rows) == [None, 0, 2]
    assert list(rows[2]) == [1, 6, 11, 16, 21, 26, 31]
    assert [list(found) for found in rows.values()] == [
        [n for n, row in enumerate(ROWS) if row[4] == partition] for partition in rows
    ]


@pytest.mark.parametrize("top", [65_534, 65_535, 2**31 - 1])
def test_rows_of_high_partitions_are_sorted_too(core: SimpleNamespace, top: int) -> None:
    """Counters for so many partitions would need too much memory."""
    columns = core.RecordColumns.from_arrow(
        arrow([(None, b"v", None, None, partition) for partition in (top, None, 7, top)])
    )

    rows = columns.rows_by_partition()

    assert {partition: list(found) for partition, found in rows.items()} == {
        None: [1],
        7: [2],
        top: [0, 3],
    }
    assert list(rows) == [None, 7, top]


def test_rows_without_partitions_are_all_rows(core: SimpleNamespace) -> None:
    """No column, or no row."""
    batch = pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})

    assert {
        key: list(rows)
        for key, rows in core.RecordColumns.from_arrow(batch).rows_by_partition().items()
    } == {None: [0, 1]}
    assert core.RecordColumns.from_arrow(batch.slice(0, 0)).rows_by_partition() == {}


def test_rows_fit_up_to_a_size_and_a_number(core: SimpleNamespace) -> None:
    """The size of a row is that of size(), plus the overhead."""
    columns = core.RecordColumns.from_arrow(arrow())
    rows = columns.rows_by_partition()[0]
    sizes = [columns.size(n) for n in range(len(columns))]

    assert columns.fitting(None, 10**9) == (35, sum(sizes))
    assert columns.fitting(None, sum(sizes[:3])) == (3, sum(sizes[:3]))
    assert columns.fitting(None, sum(sizes[:3]) - 1) == (2, sum(sizes[:2]))
    assert columns.fitting(None, 10**9, max_rows=2) == (2, sum(sizes[:2]))
    assert columns.fitting(None, 10**9, max_rows=0) == (0, 0)
    assert columns.fitting(None, 0) == (0, 0)
    assert columns.fitting(rows, 10**9, overhead=5) == (7, sum(sizes[n] for n in rows) + 35)
    assert columns.fitting(rows[2:4], 10**9) == (2, sizes[rows[2]] + sizes[rows[3]])
    for wrong in (-1, 35):
        with pytest.raises(IndexError, match=f"row {wrong} of 35"):
            columns.fitting(struct.pack("=2i", 0, wrong), 10**9)
    with pytest.raises(ValueError, match="5 bytes are not int32 indexes"):
        columns.fitting(b"12345", 10**9)


def test_a_batch_is_built_of_rows_and_records(core: SimpleNamespace) -> None:
    """The batch has the bytes of a batch that was filled record by record."""
    columns = core.RecordColumns.from_arrow(arrow())
    rows = columns.rows_by_partition()[2]
    options = {"batch_size": 10**6, "buffer_memory": 10**9, "max_record_bytes": 10**6}
    accumulator = core.Accumulator(**options)
    slot = core.Slot("t", 2)
    record = (b"k", b"v", [("h", None)], None)

    batch = core.build_batch(
        accumulator, slot, [(columns, rows), record, (columns, None)], 77, 5000
    )

    expected = [columns.record(n) for n in (*rows, *range(35))]
    expected.insert(len(rows), (*record, None))
    records = [(key, value, heads or [], time or 77) for key, value, heads, time, _ in expected]
    assert batch.records() == records
    assert (batch.topic, batch.partition, batch.slot) == ("t", 2, slot)
    one_by_one, _ = accumulator.new_batch(slot, records)
    assert bytes(batch.stamp()) == bytes(one_by_one.stamp())
    batch.complete(-1)
    one_by_one.complete(-1)
    assert accumulator.used_bytes == 0


def test_a_batch_that_cannot_be_built_leaves_nothing(core: SimpleNamespace) -> None:
    """Too many rows, a wrong row, or none: the memory is free again."""
    columns = core.RecordColumns.from_arrow(arrow())
    accumulator = core.Accumulator(batch_size=10**6, buffer_memory=10**9, max_record_bytes=40_000)
    slot = core.Slot("t", 0)

    with pytest.raises(RecordTooLarge, match="do not fit into a batch of 40000 bytes"):
        core.build_batch(accumulator, slot, [(columns, None)], 77)
    with pytest.raises(IndexError, match="row 35 of 35"):
        core.build_batch(accumulator, slot, [(columns, struct.pack("=2i", 0, 35))], 77)
    with pytest.raises(ValueError, match="at least one record"):
        core.build_batch(accumulator, slot, [], 77)
    assert accumulator.used_bytes == 0
    assert accumulator.batch_size == 40_000
