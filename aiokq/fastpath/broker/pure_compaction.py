"""The loops of log compaction in Python, for builds without the compiled core; see cleaner.h.

Tests: tests/unit/fastpath/test_compaction.py runs both implementations.
"""

# Hot path, measured by benchmarks/log_compaction.py with the pure core.

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from aiokq.fastpath.pure import VARINT, crc32c

WALK_END, WALK_OTHER, WALK_FULL, WALK_CORRUPT = range(4)
ONE, TRUSTED, KEEP_ALL, HORIZON = 1, 2, 4, 8

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CODEC, _APPEND_TIME, _TRANSACTION, _HAS_HORIZON = 0x07, 0x08, 0x30, 0x40


class Malformed(Exception):
    """The content of a batch contradicts its header."""


class _Batch(NamedTuple):
    at: int
    end: int
    fields: tuple[int, ...]

    @property
    def attributes(self) -> int:
        return self.fields[5]

    @property
    def base_offset(self) -> int:
        return self.fields[0]

    @property
    def last_offset(self) -> int:
        return self.fields[0] + self.fields[6]


def hashed(secret: bytes, key: bytes) -> bytes:
    """Return the hash that represents a key in the map."""
    return hashlib.blake2b(key, digest_size=16, key=secret).digest()


def _read_batch(data: bytes, at: int, flags: int) -> _Batch | int | None:
    """Return the batch at `at`; None if it is incomplete; a WALK_ reason if it is not read."""
    if len(data) - at < 17:
        return None
    size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
    if size > len(data) - at:
        return None
    if data[at + 16] != 2:
        return WALK_OTHER
    if size < _HEADER.size:
        return WALK_CORRUPT
    fields = _HEADER.unpack_from(data, at)
    if not flags & ONE and fields[5] & (_CODEC | _TRANSACTION):
        return WALK_OTHER
    if not flags & TRUSTED and crc32c(memoryview(data)[at + 21 : at + size], 0) != fields[4]:
        return WALK_CORRUPT
    if fields[12] < 0 or fields[6] < 0:
        return WALK_CORRUPT
    return _Batch(at, at + size, fields)


def _varint(data: bytes, at: int, end: int, most: int) -> tuple[int, int]:
    bits = shift = 0
    while True:
        if at >= end or shift >= most:
            raise Malformed
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            raise Malformed
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if most == 32 and bits > 0xFFFFFFFF:
        raise Malformed
    return (bits >> 1) ^ -(bits & 1), at


class _Record(NamedTuple):
    at: int
    body: int
    rest: int
    end: int
    timestamp_delta: int
    offset: int
    key: bytes | None
    has_value: bool


def _records(data: bytes, batch: _Batch) -> Iterator[_Record]:
    """Yield the records of a batch. Raises Malformed."""
    at = batch.at + _HEADER.size
    for _ in range(batch.fields[12]):
        start = at
        size, at = _varint(data, at, batch.end, 32)
        end = at + size
        if size < 1 or end > batch.end:
            raise Malformed
        body = at
        timestamp_delta, at = _varint(data, at + 1, end, 64)
        rest = at
        offset_delta, at = _varint(data, at, end, 32)
        size, at = _varint(data, at, end, 32)
        if size > end - at:
            raise Malformed
        key = None if size < 0 else data[at : at + size]
        at += max(size, 0)
        value_size, at = _varint(data, at, end, 32)
        if value_size > end - at:
            raise Malformed
        at += max(value_size, 0)
        count, at = _varint(data, at, end, 32)
        if not 0 <= count <= (end - at) // 2 or (not count and at != end):
            raise Malformed
        if not 0 <= offset_delta <= batch.fields[6]:
            raise Malformed
        at = end
        offset = batch.base_offset + offset_delta
        yield _Record(start, body, rest, end, timestamp_delta, offset, key, value_size >= 0)
    if at != batch.end:
        raise Malformed


def index(keys: Any, data: bytes, at: int, start_offset: int, flags: int) -> tuple[int, int, int]:
    """Implement OffsetMap.index."""
    read = 0
    while True:
        batch = _read_batch(data, at, flags)
        if not isinstance(batch, _Batch):
            return at, WALK_END if batch is None else batch, read
        try:
            for record in _records(data, batch):
                if (
                    record.key is not None
                    and record.offset >= start_offset
                    and not keys.put(record.key, record.offset)
                ):
                    return at, WALK_FULL, read
        except Malformed:
            return at, WALK_CORRUPT, read
        read += batch.fields[12]
        if batch.last_offset >= start_offset:
            keys.latest_offset = max(keys.latest_offset, batch.last_offset)
        at = batch.end
        if flags & ONE:
            return at, WALK_END, read


def keep(kept: Any, data: bytes, at: int, flags: int) -> tuple[int, int]:
    """Implement KeptBatches.keep."""
    while True:
        batch = _read_batch(data, at, flags)
        if not isinstance(batch, _Batch):
            return at, WALK_END if batch is None else batch
        try:
            if not _keep_batch(kept, data, batch, flags):
                return at, WALK_FULL
        except Malformed:
            return at, WALK_CORRUPT
        at = batch.end
        if flags & ONE:
            return at, WALK_END


def _keep_batch(kept: Any, data: bytes, batch: _Batch, flags: int) -> bool:
    """Add the records of a batch that are kept; return False if the block has no space for them.

    A batch that gets a delete horizon may become larger, because all timestamp deltas change.
    """
    offsets, latest = kept.map, kept.map.latest_offset
    attributes = batch.attributes
    base, largest_known = batch.fields[7], batch.fields[8]
    keeps_deletes = not attributes & _HAS_HORIZON or kept.now < base
    staying: list[_Record] = []
    tombstones = False
    keyless = 0
    largest = -1
    for record in _records(data, batch):
        if not (flags & KEEP_ALL or record.offset > latest):
            if record.key is None:
                keyless += 1
                continue
            if not (record.has_value or keeps_deletes):
                continue
            if record.offset < offsets.get(record.key):
                continue
        staying.append(record)
        tombstones = tombstones or not record.has_value
        largest = max(largest, base + record.timestamp_delta)
    if attributes & _APPEND_TIME:
        largest = largest_known
    fits: bool = True
    moved = bool(staying and (tombstones or flags & HORIZON) and not attributes & _HAS_HORIZON)
    if staying and len(staying) == batch.fields[12] and not moved:
        fits = kept.put(data[batch.at : batch.end], batch.last_offset, largest_known)
    elif staying:
        parts: list[bytes] = []
        for record in staying:
            if not moved:
                parts.append(data[record.at : record.end])
                continue
            time = largest_known if attributes & _APPEND_TIME else base + record.timestamp_delta
            delta = VARINT[time - kept.horizon]
            rest = data[record.rest : record.end]
            parts += [VARINT[1 + len(delta) + len(rest)], data[record.body : record.body + 1]]
            parts += [delta, rest]
        attributes |= _HAS_HORIZON if moved else 0
        base = kept.horizon if moved else base
        fits = _put(kept, batch, b"".join(parts), attributes, base, largest, len(staying))
    elif kept.stays_empty(batch.fields[9], batch.last_offset):
        attributes &= ~(_CODEC | _HAS_HORIZON)
        fits = _put(kept, batch, b"", attributes, -1, largest_known, 0)
    if fits:
        kept.read += batch.fields[12]
        kept.kept += len(staying)
        kept.keyless += keyless
    return fits


def _put(
    kept: Any,
    batch: _Batch,
    records: bytes,
    attributes: int,
    base: int,
    largest: int,
    count: int,
) -> bool:
    fields = batch.fields
    length = _HEADER.size - 12 + len(records)

    def head(crc: int) -> bytes:
        return _HEADER.pack(
            fields[0], length, fields[2], 2, crc, attributes, fields[6], base, largest,
            *fields[9:12], count,
        )  # fmt: skip

    checksum = crc32c(head(0)[21:] + records, 0)
    fits: bool = kept.put(head(checksum) + records, batch.last_offset, largest)
    return fits
