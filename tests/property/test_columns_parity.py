"""Columns of hostile batches: both builds return the same valid Arrow data or the same error.

The batch header contains the number, size and timestamps of the records; most other numbers are in
the record headers. Any of them may be wrong here, under a valid checksum.
"""

from __future__ import annotations

import struct
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq.core.errors import CorruptRecord
from aiokq.records.codecs import RecordCodecs
from aiokq.records.compression import compress
from aiokq.records.legacy import Message, encode_message_set
from tests import cores

pa = pytest.importorskip("pyarrow")
compiled, pure = cores.core("compiled"), cores.core("pure")
CODECS = RecordCodecs()
thorough = settings(max_examples=2 * settings.default.max_examples)

EDGES = [-(2**63), -(2**31), -2, -1, 0, 1, 7, 2**31 - 1, 2**62, 2**63 - 5, 2**63 - 1]
FIELDS = {
    "base_offset": (">q", 0),
    "length": (">i", 8),
    "leader_epoch": (">i", 12),
    "magic": (">b", 16),
    "attributes": (">h", 21),
    "last_offset_delta": (">i", 23),
    "base_timestamp": (">q", 27),
    "max_timestamp": (">q", 35),
    "producer_id": (">q", 43),
    "count": (">i", 57),
}


def varint(value: int, padding: int = 0) -> bytes:
    """Return a zigzag varint with `padding` unnecessary bytes."""
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits >= 0x80:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def sized(data: bytes, padding: int = 0) -> bytes:
    return varint(len(data), padding) + data


nothing = st.sampled_from([varint(-1), varint(-1), varint(-2), varint(-(2**31))])
padding = st.sampled_from([0, 0, 0, 1, 4])
values = st.one_of(nothing, st.builds(sized, st.binary(max_size=9), padding))
names = st.one_of(st.just(b"name"), st.just("ü€".encode()), st.just(b"\xed\xa0\x80"), st.binary())
pairs = st.builds(lambda name, value: sized(name) + value, names, values)
whole_headers = st.one_of(
    st.just(varint(0)),
    st.lists(pairs, min_size=1, max_size=3).map(lambda these: varint(len(these)) + b"".join(these)),
    # More pairs than fit into one byte of validity bits, and counts of several bytes.
    st.builds(lambda pair, count: varint(count) + count * pair, pairs, st.sampled_from([9, 70])),
)
hostile_headers = st.one_of(
    st.builds(
        lambda count, pad, rest: varint(count, pad) + rest,
        st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 200, 2**31 - 1]),
        padding,
        st.binary(max_size=40),
    ),
    st.binary(max_size=40),
)


@st.composite
def records(draw: st.DrawFn, delta: int) -> bytes:
    """Draw one record; one of ten has a wrong size."""
    times = draw(st.sampled_from([0, 1, -1, 2**40, 2**63 - 1]))
    headers = draw(st.one_of(whole_headers, whole_headers, hostile_headers))
    body = b"\0" + varint(times) + varint(delta) + draw(values) + draw(values) + headers
    lie = draw(st.sampled_from([*[0] * 9, 1, -1]))
    return varint(len(body) + lie) + body


@st.composite
def batches(draw: st.DrawFn, offset: int) -> bytes:
    """Draw one batch of format 2 with a valid checksum."""
    count = draw(st.integers(1, 4))
    payload = b"".join(draw(records(delta)) for delta in range(count))
    codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
    body = compress(codec, payload) if codec else payload
    attributes = codec | draw(st.sampled_from([0, 0, 8, 0x10, 0x20]))
    said = draw(st.sampled_from([count] * 5 + [0, count + 1, 2**31 - 1]))
    last = draw(st.sampled_from([count - 1, count + 2, max(said - 1, 0)]))
    batch = bytearray(
        struct.pack(
            ">qiibIhiqqqhii",
            *(offset, 49 + len(body), 3, 2, 0, attributes, last, 1000, 2000, 1, 0, 0, said),
        )
        + body
    )
    for name in draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=1)):
        form, at = FIELDS[name]
        size = struct.calcsize(form)
        number = draw(st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1)))
        batch[at : at + size] = (number % 256**size).to_bytes(size, "big")
    batch[17:21] = compiled.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@st.composite
def old_sets(draw: st.DrawFn, offset: int) -> bytes:
    """Draw messages of the older formats, some of them damaged."""
    magic = draw(st.integers(0, 1))
    messages = [
        Message(offset + at, draw(st.sampled_from([-1, 0, 5, 2**63 - 1])), b"k", b"v" * at)
        for at in range(draw(st.integers(1, 3)))
    ]
    data = bytearray(encode_message_set(messages, magic, draw(st.sampled_from([0, 0, 1, 2, 3]))))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), max_size=1)):
        data[at % len(data)] = byte
    return bytes(data)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    parts = [
        draw(st.one_of(batches(number * 5), batches(number * 5), old_sets(number * 5)))
        for number in range(draw(st.integers(1, 3)))
    ]
    return b"".join(parts)


def cursor(core: SimpleNamespace, data: bytes, options: dict[str, Any]) -> Any:
    return core.Cursor("t", 0, data, codecs=CODECS, max_batch_bytes=1 << 20, **options)


def state(reading: Any) -> tuple[Any, ...]:
    return (
        reading.position,
        reading.handed,
        reading.last_handed_offset,
        reading.leader_epoch,
        reading.bytes_left,
        reading.exhausted,
    )


def as_columns(
    core: SimpleNamespace,
    data: bytes,
    names: list[str] | None,
    options: dict[str, Any],
    max_bytes: int | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return the rows and all other results; read a corrupt batch twice, then skip it."""
    reading = cursor(core, data, options)
    rows: list[Any] = []
    log: list[Any] = []
    refused = 0
    while not reading.exhausted:
        try:
            columns = reading.columns(names, max_bytes)
        except CorruptRecord as error:
            log.append(str(error))
            rows.append("corrupt")
            refused += 1
            if refused % 2 == 0:
                reading.skip_batch()
                rows.pop()
        else:
            if len(columns):
                table = columns.to_arrow()
                table.validate(full=True)
                # Compare numbers, because times after the year 9999 cannot be datetimes.
                at = table.schema.get_field_index("timestamp")
                if at >= 0:
                    numbers = table.column(at).cast(pa.int64())
                    table = table.set_column(at, "timestamp", numbers)
                rows += table.to_pylist()
        log.append(state(reading))
    return rows, log


def one_by_one(core: SimpleNamespace, data: bytes, options: dict[str, Any]) -> list[Any]:
    reading = cursor(core, data, options)
    rows: list[Any] = []
    while True:
        try:
            record = next(reading)
        except StopIteration:
            return rows
        except CorruptRecord:
            rows.append("corrupt")
            reading.skip_batch()
        else:
            rows.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "topic": "t",
                    "partition": 0,
                    "offset": record.offset,
                    "timestamp": (record.timestamp_ms * 1000 + 2**63) % 2**64 - 2**63,
                    "timestampType": record.timestamp_type,
                    "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                }
            )


options = st.fixed_dictionaries(
    {
        "start_offset": st.sampled_from([0, 0, 1, 3, 6]),
        "stop_offset": st.sampled_from([None, None, 2, 7]),
        "check_crcs": st.booleans(),
        "aborted": st.sampled_from([None, None, [], [(1, 0)], [(1, 5), (2, 0)]]),
    }
)
wanted = st.sampled_from([None, None, ["headers"], ["value"], ["key", "offset"], ["timestamp"]])


@given(logs(), wanted, options, st.sampled_from([None, None, 1, 100]))
@thorough
def test_hostile_batches_give_the_same_columns_or_the_same_error(
    data: bytes, names: list[str] | None, options: dict[str, Any], max_bytes: int | None
) -> None:
    """For a wrong header count, one build raised an error and the other one returned data."""
    one, two = (as_columns(core, data, names, options, max_bytes) for core in (compiled, pure))
    assert one == two


@pytest.mark.parametrize("core", [compiled, pure], ids=["compiled", "pure"])
@given(data=logs(), options=options)
@thorough
def test_columns_equal_the_records(
    core: SimpleNamespace, data: bytes, options: dict[str, Any]
) -> None:
    """Spark reads columns and consumers read records; both must get the same data."""
    rows, _ = as_columns(core, data, None, options)
    assert rows == one_by_one(core, data, options)


@pytest.mark.parametrize("core", [compiled, pure], ids=["compiled", "pure"])
def test_names_that_grow_in_arrow_cost_a_constant_multiple(core: SimpleNamespace) -> None:
    """Each byte that is not valid UTF-8 becomes three bytes in Arrow."""
    head = struct.pack(">qiibIhiqqqhii", 0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    pair = sized(b"\xff" * 100) + varint(-1)
    body = b"\0\0\0\1\1" + varint(2000) + 2000 * pair
    batch = bytearray(head + sized(body))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    batch[17:21] = compiled.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    tracemalloc.start()
    try:
        columns = cursor(core, bytes(batch), {"start_offset": 0}).columns(["headers"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bytes(columns.headers[3]) == "\ufffd".encode() * 200_000
    assert peak < 20 * len(batch)
