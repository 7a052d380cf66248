"""Decoding of records and columns without the compiled core: slices instead of C loops.

Functions are long, to avoid calls per record. Tests: tests/property/test_core_parity.py.
"""

# Hot path, measured by benchmarks/micro/core.py (column "pure").

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

from aiokq.fastpath.pure import long_varint

Pairs: TypeAlias = Sequence[tuple[str, bytes | None]]


def _decode_headers(data: bytes, at: int, end: int, count: int) -> Pairs:
    out: list[tuple[str, bytes | None]] = []
    try:
        for _ in range(count):
            bits, at = long_varint(data, at, 32)
            size = bits >> 1
            if bits & 1 or size > end - at:
                raise IndexError
            name = data[at : at + size].decode("utf-8", "replace")
            bits, at = long_varint(data, at + size, 32)
            size = bits >> 1
            if bits & 1:
                out.append((name, None))
            elif size > end - at:
                raise IndexError
            else:
                out.append((name, data[at : at + size]))
                at += size
        if at != end:
            raise IndexError
    except IndexError:
        raise ValueError("a malformed header") from None
    return tuple(out)


def decode_batch(cursor: Any, count: int, kind: Any) -> tuple[list[Any], str | None]:
    """Return the open batch's records in reverse order, and the error after the last record.

    The error is None if all records are valid, or if a record reaches the stop offset.

    All records are decoded at once, because a call per record would cost as much as the decoding.
    Records before the position are left out. A None in the list stands for the first record at or
    after the stop offset. A field may be read past the end of its record: only the position after
    the last field is checked.

    Args:
        cursor: a Cursor whose batch was just opened.
        count: the number of records, from the batch header.
        kind: the class Record.
    """
    data = cursor.inner
    limit = len(data)
    topic = cursor.topic
    partition = cursor.partition
    base_offset = cursor.base_offset
    last_delta = cursor.last_delta
    base_timestamp = cursor.base_timestamp
    time_type = cursor.time_type
    append_time = time_type == 1
    epoch = cursor.epoch
    stop = cursor.stop
    next_offset = cursor.position
    skipping = base_offset < next_offset
    far = not -_FAR < base_timestamp < _FAR
    new = kind.__new__
    out: list[Any] = []
    at = 0
    error = None
    try:
        while count:
            # Varints of one or two bytes are decoded in place; `bits` is still zigzag-encoded.
            bits = data[at]
            if bits < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                bits += (more << 7) - 0x80
                at += 2
            else:
                bits, at = long_varint(data, at, 32)
            end = at + (bits >> 1)
            if bits & 1 or not bits or end > limit:
                raise ValueError("a malformed record")
            bits = data[at + 1]  # skips the attributes
            wide = far
            if bits < 0x80:
                at += 2
            else:
                bits, at = long_varint(data, at + 1, 64)
                wide = True
            delta = -(bits >> 1) - 1 if bits & 1 else bits >> 1
            bits = data[at]
            if bits < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                bits += (more << 7) - 0x80
                at += 2
            else:
                bits, at = long_varint(data, at, 32)
            offset = -(bits >> 1) - 1 if bits & 1 else bits >> 1
            bits = data[at]
            if bits < 0x80:
                at += 1
            else:
                bits, at = long_varint(data, at, 32)
            if bits & 1:
                key = None
            else:
                start = at
                at += bits >> 1
                key = data[start:at]
            bits = data[at]
            if bits < 0x80:
                at += 1
            elif (more := data[at + 1]) < 0x80:
                bits += (more << 7) - 0x80
                at += 2
            else:
                bits, at = long_varint(data, at, 32)
            if bits & 1:
                value = None
            else:
                start = at
                at += bits >> 1
                value = data[start:at]
            size = data[at]
            at += 1
            if size:
                bits, at = long_varint(data, at - 1, 32)
                size = -(bits >> 1) - 1 if bits & 1 else bits >> 1
            if at > end or not 0 <= size <= (end - at) // 2 or (size == 0 and at != end):
                raise ValueError("a malformed record")
            count -= 1
            offset += base_offset
            if offset < next_offset:
                if not skipping:
                    raise ValueError("record offsets are not increasing")
                at = end
                continue
            skipping = False
            if offset - base_offset > last_delta:
                raise ValueError("record offsets are not increasing")
            if offset >= stop:
                out.append(None)
                break
            if count == 0 and end != limit:
                raise ValueError("bytes after the last record")
            record = new(kind)
            record.headers = _decode_headers(data, at, end, size) if size else ()
            at = end
            record.topic = topic
            record.partition = partition
            record.offset = offset
            record.timestamp_type = time_type
            if append_time:
                record.timestamp_ms = base_timestamp
            else:
                delta += base_timestamp
                if wide:
                    delta = (delta + 2**63) % 2**64 - 2**63
                record.timestamp_ms = delta
            record.key = key
            record.value = value
            record.leader_epoch = epoch
            out.append(record)
            next_offset = offset + 1
    except (IndexError, ValueError) as problem:
        error = str(problem) if isinstance(problem, ValueError) else "a malformed record"
    out.reverse()
    return out, error


_FAR = 2**62


def packed(code: str, numbers: Sequence[int]) -> memoryview:
    """Return numbers as an Arrow buffer."""
    return memoryview(struct.pack(f"<{len(numbers)}{code}", *numbers))


def _bits(present: Sequence[bool]) -> memoryview | None:
    """Return Arrow's validity bits, least significant first; None if all values are present."""
    if all(present):
        return None
    bits = bytearray((len(present) + 7) // 8)
    for n, there in enumerate(present):
        if there:
            bits[n >> 3] |= 1 << (n & 7)
    return memoryview(bytes(bits))


def binary_column(
    values: Sequence[bytes | None],
) -> tuple[memoryview | None, memoryview, memoryview]:
    """Return the validity bits or None, the offsets and the bytes of a column."""
    offsets = [0]
    total = 0
    for value in values:
        if value is not None:
            total += len(value)
        offsets.append(total)
    return (
        _bits([value is not None for value in values]),
        packed("i", offsets),
        memoryview(b"".join([value for value in values if value])),
    )


def headers_column(rows: Sequence[Pairs]) -> tuple[memoryview | None, ...]:
    """Return rows of (name, value) pairs in the layout of Columns.headers.

    A row without pairs is null.
    """
    offsets = [0]
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    for row in rows:
        for name, value in row:
            names.append(name.encode())
            values.append(value)
        offsets.append(len(names))
    _, name_offsets, name_data = binary_column(names)
    return (
        _bits([bool(row) for row in rows]),
        packed("i", offsets),
        name_offsets,
        name_data,
        *binary_column(values),
    )
