"""Cursor: returns each record once, advances only then, and survives hostile bytes."""

from __future__ import annotations

import contextlib
import pickle
import random
import struct
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aiokq.core.errors import CorruptRecord
from aiokq.records.codecs import RecordCodecs
from aiokq.records.control import ControlType
from aiokq.records.legacy import encode_message_set
from aiokq.records.record import RawRecord

Make = Callable[..., object]


def simple(count: int) -> list[tuple[object, ...]]:
    return [(b"k%d" % n, b"v%d" % n, None, 1000 + n) for n in range(count)]


def fields(record: object) -> tuple[object, ...]:
    return (
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )


def patched(batch: bytes, core: SimpleNamespace, **header: int) -> bytes:
    """Return the batch with changed header fields and a matching CRC."""
    data = bytearray(batch)
    places = {
        "base_offset": (">q", 0),
        "length": (">i", 8),
        "magic": (">b", 16),
        "attributes": (">h", 21),
        "last_offset_delta": (">i", 23),
        "base_timestamp": (">q", 27),
        "max_timestamp": (">q", 35),
        "producer_id": (">q", 43),
        "count": (">i", 57),
    }
    for name, value in header.items():
        form, at = places[name]
        struct.pack_into(form, data, at, value)
    data[17:21] = core.crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def control(core: SimpleNamespace, base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    """Return a control batch: one record whose key is (version, type)."""
    key = struct.pack(">hh", 0, kind)
    record = bytes([0, 0, 0]) + bytes([len(key) << 1]) + key + bytes([0, 0])
    body = bytes([len(record) << 1]) + record
    size = 49 + len(body)
    batch = struct.pack(
        ">qiibIhiqqqhii", base_offset, size, 0, 2, 0, 0x30, 0, 5, 5, producer_id, 0, -1, 1
    )
    return patched(batch + body, core)


def test_every_field_comes_back(encode: Make, cursor: Make) -> None:
    """Null and empty keys and values, headers, timestamps before and after the first."""
    batch = encode(
        [
            (b"k", b"v", [("h", b"x"), ("n", None), ("ü", b"")], 1000),
            (None, b"", None, 5),
            (b"", None, None, 2**40),
            (b"k" * 9000, b"v" * 70_000, None, 1001),
        ],
        base_offset=500,
    )
    got = [fields(record) for record in cursor(batch)]
    assert got == [
        ("t", 0, 500, 1000, 0, b"k", b"v", (("h", b"x"), ("n", None), ("ü", b"")), 3),
        ("t", 0, 501, 5, 0, None, b"", (), 3),
        ("t", 0, 502, 2**40, 0, b"", None, (), 3),
        ("t", 0, 503, 1001, 0, b"k" * 9000, b"v" * 70_000, (), 3),
    ]


def test_batches_of_another_implementation_are_read(cursor: Make) -> None:
    """aiokafka's builder, with every codec it supports."""
    for codec in (0, 1, 2, 3, 4):
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
        for n in range(500):
            builder.append(n, 1000 + n, b"k%d" % n, b"v" * 50, [("h", b"%d" % n)])
        records = list(cursor(bytes(builder.build())))
        assert [r.offset for r in records] == list(range(500))
        assert records[499].headers == (("h", b"499"),)
        assert records[499].timestamp_ms == 1499


def test_the_position_moves_exactly_with_each_record(encode: Make, cursor: Make) -> None:
    """A record that was not returned is neither counted nor lost."""
    reading = cursor(encode(simple(5), base_offset=100) + encode(simple(5), base_offset=105), 100)
    assert (reading.position, reading.handed, reading.last_handed_offset) == (100, 0, -1)
    for n, record in enumerate(reading):
        assert record.offset == 100 + n
        assert reading.position == 101 + n
        assert reading.handed == 1 + n
        assert reading.last_handed_offset == 100 + n
        assert reading.leader_epoch == 3
    assert reading.exhausted
    assert reading.bytes_left == 0


def test_reading_may_begin_inside_a_batch(encode: Make, cursor: Make) -> None:
    """A fetch returns whole batches; records before the position are skipped."""
    data = encode(simple(10), base_offset=0) + encode(simple(10), base_offset=10)
    for start in (0, 1, 9, 10, 15, 19, 20):
        assert [r.offset for r in cursor(data, start)] == list(range(start, 20))
    reading = cursor(data, 50)
    assert list(reading) == []
    assert reading.position == 50


def test_reading_may_stop_anywhere(encode: Make, cursor: Make) -> None:
    """A bounded read ends at its stop offset, which is then its position."""
    data = encode(simple(10), base_offset=0) + encode(simple(10), base_offset=15)
    for stop in (0, 1, 5, 10, 12, 15, 16, 25):
        reading = cursor(data, 0, stop_offset=stop)
        offsets = [*range(10), *range(15, 25)]
        assert [r.offset for r in reading] == [o for o in offsets if o < stop]
        assert reading.position == stop
        assert reading.exhausted
    reading = cursor(data, 0, stop_offset=100)
    assert len(reading.take(100)) == 20
    assert reading.take(1) == []
    assert reading.position == 25


def test_a_last_batch_that_is_cut_short_is_left(encode: Make, cursor: Make) -> None:
    """A fetch ends at max_bytes; the rest comes with the next fetch."""
    first, second = encode(simple(5)), encode(simple(5), base_offset=5)
    for cut in (0, 5, 16, 17, 40, len(second) - 1):
        reading = cursor(first + second[:cut])
        assert len(list(reading)) == 5
        assert reading.position == 5
        assert reading.bytes_left == cut
        assert reading.partial_batch_bytes == (0 if cut == 0 else 17 if cut < 17 else len(second))


def test_gaps_of_compaction_are_jumped(core: SimpleNamespace, encode: Make, cursor: Make) -> None:
    """A compacted batch keeps its last offset without its last records, or without any."""
    compacted = patched(encode(simple(3)), core, last_offset_delta=9)
    empty = patched(encode(simple(1), base_offset=10)[:61], core, count=0, length=49)
    reading = cursor(compacted + empty + encode(simple(1), base_offset=20))
    seen = [(record.offset, reading.position) for record in reading]
    assert seen == [(0, 1), (1, 2), (2, 10), (20, 21)]
    reading = cursor(compacted + empty)
    assert len(list(reading)) == 3
    assert reading.position == 11


def test_log_append_time_is_one_for_the_batch(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """The broker sets it in the header; the records keep the producer's deltas."""
    batch = patched(encode(simple(3)), core, attributes=8, max_timestamp=7777)
    assert [(r.timestamp_ms, r.timestamp_type) for r in cursor(batch)] == [(7777, 1)] * 3


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_opened_by_the_codecs_handed_in(
    encode: Make, cursor: Make, codec: int
) -> None:
    """A batch is decompressed when it is reached."""
    data = encode(simple(100), codec=codec) + encode(simple(100), base_offset=100, codec=codec)
    assert [r.value for r in cursor(data, 50)] == [b"v%d" % (n % 100) for n in range(50, 200)]


def test_a_bomb_is_capped(encode: Make, cursor: Make) -> None:
    """A batch with a false small size must not fill the memory."""
    batch = encode([(None, bytes(1 << 19), None, 1)], codec=1)
    assert len(batch) < 2000
    reading = cursor(batch, max_batch_bytes=1 << 18)
    with pytest.raises(CorruptRecord, match="decompress"):
        next(reading)
    assert reading.position == 0


def test_control_batches_are_passed_over(core: SimpleNamespace, encode: Make, cursor: Make) -> None:
    """Each takes an offset, but is not returned as a record."""
    data = (
        encode(simple(2))
        + control(core, 2, 9, ControlType.COMMIT)
        + encode(simple(2), base_offset=3)
        + control(core, 5, 9, ControlType.ABORT)
    )
    reading = cursor(data)
    assert [r.offset for r in reading] == [0, 1, 3, 4]
    assert reading.position == 6


def test_read_committed_hides_aborted_transactions(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """From an aborted transaction's first offset to its marker, for its producer only."""

    def part(base_offset: int, producer_id: int) -> bytes:
        return encode(
            simple(2),
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    data = (
        part(0, 7)
        + part(2, 8)
        + encode(simple(2), base_offset=4)
        + control(core, 6, 7, ControlType.ABORT)
        + part(7, 7)
        + control(core, 9, 8, ControlType.COMMIT)
        + control(core, 10, 7, ControlType.COMMIT)
        + part(11, 8)
        + control(core, 13, 8, ControlType.ABORT)
    )
    reading = cursor(data, aborted=[(8, 11), (7, 0)])
    assert [r.offset for r in reading] == [2, 3, 4, 5, 7, 8]
    assert reading.position == 14
    assert [r.offset for r in cursor(data, aborted=[])] == [0, 1, 2, 3, 4, 5, 7, 8, 11, 12]
    assert [r.offset for r in cursor(data)] == [0, 1, 2, 3, 4, 5, 7, 8, 11, 12]
    for start, left in ((3, [3, 4, 5, 7, 8]), (7, [7, 8]), (8, [8]), (9, [])):
        reading = cursor(data, start, aborted=[(7, 0), (8, 11)])
        assert [r.offset for r in reading] == left, "transactions that ended before hide nothing"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_legacy_messages_are_read_too(
    core: SimpleNamespace, encode: Make, cursor: Make, magic: int, codec: int
) -> None:
    """As written by old producers: several entries, then a v2 batch."""
    raw = [RawRecord(n, 1000 + n, b"k%d" % n, b"v%d" % n) for n in range(6)]
    old = encode_message_set(raw[:3], magic, codec) + encode_message_set(raw[3:], magic, codec)
    codecs = RecordCodecs()
    for start in range(7):
        data = old + encode(simple(2), base_offset=6)
        reading = cursor(data + b"\0" * 10, start, codecs=codecs)
        records = list(reading)
        assert [r.offset for r in records] == list(range(start, 8))
        assert [r.value for r in records][: 6 - start] == [b"v%d" % n for n in range(start, 6)]
        assert reading.position == 8
    if magic == 1:
        assert [r.timestamp_ms for r in cursor(old, codecs=codecs)] == list(range(1000, 1006))


@pytest.mark.parametrize("codec", [0, 1])
def test_what_has_no_time_says_so(
    core: SimpleNamespace, encode: Make, cursor: Make, codec: int
) -> None:
    """Format 0 has no timestamp, which Java calls NoTimestampType, -1; also in mixed logs."""

    def old(first: int, magic: int, timestamp_ms: int) -> bytes:
        raw = [RawRecord(n, timestamp_ms, None, b"v") for n in (first, first + 1)]
        return encode_message_set(raw, magic, codec)

    data = old(0, 1, 7) + old(2, 0, -1) + old(4, 1, -1) + encode(simple(2), base_offset=6)
    data += old(8, 0, -1)
    expected = [(7, 0)] * 2 + [(-1, -1)] * 2 + [(-1, 0)] * 2 + [(1000, 0), (1001, 0)]
    expected += [(-1, -1)] * 2
    reading = cursor(data, codecs=RecordCodecs())
    assert [(r.timestamp_ms, r.timestamp_type) for r in reading] == expected
    columns = cursor(data, codecs=RecordCodecs()).columns(["timestamp", "timestampType"])
    assert struct.unpack("<10q", columns.timestamp) == tuple(1000 * ms for ms, _ in expected)
    assert struct.unpack("<10i", columns.timestamp_type) == tuple(kind for _, kind in expected)


def test_a_damaged_legacy_message_is_corrupt(cursor: Make) -> None:
    """Their CRC-32 is checked while reading."""
    old = bytearray(encode_message_set([RawRecord(0, 5, b"k", b"value")], 1, 0))
    old[-1] ^= 1
    with pytest.raises(CorruptRecord):
        next(cursor(old, codecs=RecordCodecs()))


def test_a_wrong_crc_stops_before_the_batch(encode: Make, cursor: Make) -> None:
    """Iteration raises the error once, the methods each time; skip_batch() continues after it."""
    bad = bytearray(encode(simple(5), base_offset=5))
    bad[-1] ^= 1
    reading = cursor(encode(simple(5)) + bad + encode(simple(5), base_offset=10))
    assert len(reading.take(5)) == 5
    with pytest.raises(CorruptRecord, match=r"CRC-32C.*offset 5"):
        next(reading)
    assert list(reading) == list(reading) == []
    for again in (reading.next_batch, reading.columns, lambda: reading.take(1)):
        with pytest.raises(CorruptRecord, match=r"CRC-32C.*offset 5") as caught:
            again()
        assert caught.value.topic_partition == ("t", 0)
        assert "offset 5 of t-0; seek(('t', 0), 10) skips this batch" in str(caught.value)
        assert (reading.position, reading.exhausted) == (5, False)
    assert list(reading) == []
    reading.skip_batch()
    assert reading.position == 10
    assert [r.offset for r in reading] == [10, 11, 12, 13, 14]


def test_the_check_can_be_left_out(encode: Make, cursor: Make) -> None:
    """check_crcs=False does it, as in Java's consumer."""
    bad = bytearray(encode(simple(5)))
    bad[17] ^= 1
    assert len(list(cursor(bad, check_crcs=False))) == 5


def test_what_stands_before_a_bad_record_is_handed_over(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """Inside a batch as well as between batches, with every way of reading."""
    bad = patched(encode(simple(5))[:-1], core, length=len(encode(simple(5))) - 13)
    for read in ("next", "take", "next_batch", "columns"):
        reading = cursor(bad)
        if read == "next":
            got = [next(reading).offset for _ in range(4)]
        elif read == "columns":
            got = list(range(len(reading.columns())))
        else:
            got = [r.offset for r in (reading.take(9) if read == "take" else reading.next_batch())]
        assert got == [0, 1, 2, 3]
        assert reading.position == 4
        with pytest.raises(CorruptRecord, match=r"malformed.*seek\(\('t', 0\), 5\)"):
            next(reading)
        assert reading.position == 4
        reading.skip_batch()
        assert reading.position == 5
        assert list(reading) == []


def test_damage_behind_the_stop_offset_is_not_met(encode: Make, cursor: Make) -> None:
    """The valid records of a damaged batch can be read, repeatedly."""
    data = bytearray(encode(simple(5)))
    data[len(encode(simple(3)))] = 1  # the length of the fourth record
    for stop in (1, 3):
        reading = cursor(bytes(data), stop_offset=stop, check_crcs=False)
        assert [r.offset for r in reading] == list(range(stop))
        assert (reading.position, reading.exhausted) == (stop, True)
        columns = cursor(bytes(data), stop_offset=stop, check_crcs=False)
        assert (len(columns.columns()), columns.position, columns.exhausted) == (stop, stop, True)
    with pytest.raises(CorruptRecord):
        list(cursor(bytes(data), stop_offset=4, check_crcs=False))


def test_headers_that_lie_are_corrupt(core: SimpleNamespace, encode: Make, cursor: Make) -> None:
    """Each number of the header is changed, with a matching CRC."""
    batch = encode(simple(3))
    for lie in (
        {"count": 4},
        {"count": 2},
        {"count": -1},
        {"count": 2**31 - 1},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"magic": 3},
        {"magic": -1},
        {"length": 48},
        {"length": 0},
        {"length": -5},
        {"attributes": 5},
        {"attributes": 7},
        {"attributes": 1},
    ):
        reading = cursor(patched(batch, core, **lie))
        with pytest.raises(CorruptRecord):
            reading.take(10) and reading.take(10)
        reading.skip_batch()
        with contextlib.suppress(CorruptRecord):  # if the length was changed
            list(reading)


def test_records_that_do_not_rise_are_corrupt(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """A repeated offset, or one after the batch's last offset, would misplace the position."""
    batch = bytearray(encode([(None, b"a", None, 1), (None, b"b", None, 1)]))
    at = batch.index(b"b") - 3
    assert batch[at] == 2  # the second record's offset delta, 1 in zigzag encoding
    for delta in (0, 1, 4, 126):
        batch[at] = delta
        reading = cursor(patched(bytes(batch), core))
        assert next(reading).offset == 0
        with pytest.raises(CorruptRecord, match="not increasing"):
            next(reading)


def test_batches_that_go_back_are_passed_over(encode: Make, cursor: Make) -> None:
    """The position never decreases, whatever a broker sends."""
    data = encode(simple(5), base_offset=10) + encode(simple(5), base_offset=3)
    data += encode(simple(10), base_offset=8)
    reading = cursor(data, 0)
    assert [r.offset for r in reading] == list(range(10, 18))


def test_damage_gives_corrupt_record_and_nothing_else(
    core: SimpleNamespace, cursor: Make, encode: Make
) -> None:
    """Random damage with a matching CRC gives a typed error or records, never a crash."""
    random_ = random.Random(11)
    plain = encode([(b"k%d" % n, b"v" * n, [("h", b"x" * n)], n) for n in range(20)])
    packed = encode([(b"k%d" % n, b"v" * n, [("h", b"x" * n)], n) for n in range(20)], codec=3)
    for _ in range(1500):
        data = bytearray(random_.choice((plain, packed)))
        for _ in range(random_.randint(1, 6)):
            data[random_.randrange(21, len(data))] = random_.choice((0, 1, 2, 127, 128, 254, 255))
        data = data[: random_.choice((len(data), random_.randrange(61, len(data) + 1)))]
        length = len(data) - 12
        batch = patched(bytes(data), core, length=length, magic=2)
        for read in ("take", "columns"):
            reading = cursor(batch * 2, random_.choice((0, 7)))
            for _ in range(8):
                try:
                    if read == "take":
                        for record in reading.take(50):
                            fields(record)
                    else:
                        reading.columns()
                except CorruptRecord:
                    reading.skip_batch()


def test_records_do_not_keep_the_fetched_bytes(encode: Make, cursor: Make) -> None:
    """A record that is kept for a day must not keep a megabyte alive."""
    data = bytearray(encode(simple(50)))
    reading = cursor(data)
    records = list(reading)
    del reading
    data.extend(b"!")  # raises BufferError while an export exists
    assert records[49].value == b"v49"


def test_a_batch_at_a_time(encode: Make, cursor: Make) -> None:
    """next_batch() returns the rest of the current batch, take() a limited number of records."""
    data = encode(simple(5)) + encode(simple(5), base_offset=5)
    reading = cursor(data)
    assert next(reading).offset == 0
    assert [r.offset for r in reading.next_batch()] == [1, 2, 3, 4]
    assert reading.position == 5
    assert [r.offset for r in reading.take(3)] == [5, 6, 7]
    assert (reading.position, reading.handed) == (8, 8)
    assert [r.offset for r in reading.next_batch()] == [8, 9]
    assert reading.next_batch() == []
    reading = cursor(data)
    assert [r.offset for r in reading.take(7)] == list(range(7))
    assert reading.take(0) == []
    assert [r.offset for r in reading.take(7)] == [7, 8, 9]


def test_skipping_the_rest_of_an_open_batch(encode: Make, cursor: Make) -> None:
    """skip_batch() may also be called before the end of a batch."""
    reading = cursor(encode(simple(5)) + encode(simple(5), base_offset=5))
    next(reading)
    reading.skip_batch()
    assert reading.position == 5
    assert next(reading).offset == 5
    reading.skip_batch()
    reading.skip_batch()
    assert list(reading) == []
    assert reading.position == 10


def test_a_record_is_a_value(core: SimpleNamespace, encode: Make, cursor: Make) -> None:
    """Equal, hashable, picklable, and short in a log line."""
    batch = encode([(b"k", b"v" * 1000, [("h", b"x")], 5)])
    (one,), (two,) = cursor(batch), cursor(batch)
    assert one == two
    assert hash(one) == hash(two)
    assert one != core.Record("t", 0, 0, 5)
    assert one != "t"
    assert len(repr(one)) < 150
    assert "headers=1" in repr(one)
    assert fields(pickle.loads(pickle.dumps(one))) == fields(one)


def test_garbage_of_every_length_is_survived(cursor: Make) -> None:
    """No byte after the end is read; with a debug allocator such a read would crash this test."""
    random_ = random.Random(5)
    for length in range(200):
        for data in (bytes(length), b"\xff" * length, random_.randbytes(length), b"\x02" * length):
            reading = cursor(data)
            try:
                reading.take(10)
            except (CorruptRecord, AssertionError):
                reading.skip_batch()


class CountingCodecs(RecordCodecs):
    """Counts the batches that are decompressed."""

    def __init__(self, core: SimpleNamespace) -> None:
        super().__init__(core.crc32c)
        self.opened = 0

    def decompress(self, codec: int, data: memoryview, limit: int) -> bytes:
        self.opened += 1
        return super().decompress(codec, data, limit)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("read", range(7))
def test_a_fork_goes_on_from_where_its_cursor_is(
    core: SimpleNamespace, encode: Make, read: int, codec: int
) -> None:
    """Cursor and fork advance independently, and share the decompressed batch."""
    data = encode(simple(3), codec=codec) + encode(simple(3), base_offset=3, codec=codec)
    codecs = CountingCodecs(core)
    cursor = core.Cursor("t", 0, data, start_offset=0, codecs=codecs)
    assert [record.offset for record in cursor.take(read)] == list(range(read))
    open_batches = codecs.opened
    fork = cursor.fork()
    assert (fork.position, fork.handed) == (cursor.position, cursor.handed) == (read, read)
    rest = [fields(record) for record in fork]
    assert [fields(record) for record in cursor] == rest
    assert [place[2] for place in rest] == list(range(read, 6))
    unopened = 2 - (read + 2) // 3
    assert codecs.opened == (open_batches + 2 * unopened if codec else 0)


@pytest.mark.parametrize("stop", range(7))
def test_a_fork_may_end_before_its_cursor_and_never_behind_it(
    core: SimpleNamespace, encode: Make, cursor: Make, stop: int
) -> None:
    """This holds within the open batch as well."""
    whole = cursor(encode(simple(3)) + encode(simple(3), base_offset=3), stop_offset=5)
    whole.take(1)
    fork = whole.fork(stop)
    assert [record.offset for record in fork] == list(range(1, min(stop, 5)))
    assert fork.exhausted
    assert len(whole.fork(stop).columns(())) == max(0, min(stop, 5) - 1)
    assert [record.offset for record in whole] == [1, 2, 3, 4]


def test_a_fork_hides_what_its_cursor_hides(
    core: SimpleNamespace, encode: Make, cursor: Make
) -> None:
    """The fork knows the markers that its cursor has read."""

    def of_a_transaction(base_offset: int) -> bytes:
        batch = encode(simple(2), base_offset=base_offset)
        return patched(batch, core, attributes=0x10, producer_id=7)

    abort = control(core, 4, 7, ControlType.ABORT)
    data = encode(simple(2)) + of_a_transaction(2) + abort + of_a_transaction(5)
    one = cursor(data, aborted=[(7, 2)])
    for expected in (0, 1, 5, 6):
        assert [record.offset for record in one.fork()][:1] == [expected]
        one.take(1)
    assert not one.more()


def test_a_fork_of_a_cursor_that_has_raised_raises_the_same(encode: Make, cursor: Make) -> None:
    """The cursor itself raises it again as well."""
    batch = bytearray(encode(simple(3)))
    batch[-1] ^= 1
    one = cursor(bytes(batch))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="a wrong CRC-32C"):
            one.more()
        fork = one.fork()
        assert fork.raised is not None
        with pytest.raises(CorruptRecord, match="a wrong CRC-32C"):
            fork.take(1)


def test_more_opens_a_batch_and_moves_over_nothing_that_is_handed_over(
    core: SimpleNamespace, encode: Make
) -> None:
    """The position passes skipped batches, but no records that are still to be returned."""
    marker = control(core, 0, 7, ControlType.COMMIT)
    codecs = CountingCodecs(core)
    data = (
        marker + encode(simple(2), base_offset=1, codec=4) + control(core, 3, 7, ControlType.COMMIT)
    )
    one = core.Cursor("t", 0, data, start_offset=0, codecs=codecs)
    for position in (1, 2):
        assert one.more()
        assert one.more()
        assert one.position == position
        assert [record.offset for record in one.take(1)] == [position]
    assert codecs.opened == 1
    assert not one.more()
    assert (one.position, one.exhausted) == (4, True)
