"""Encoding and decoding of v2 records in plain Python.

The hot loops over records are in ``aiokq.fastpath``.

Source: Kafka ``DefaultRecord.java``. Tests: ``tests/unit/records/test_record.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import Buffer
from aiokq.records import compression
from aiokq.records.header import (
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Checksum,
    computed_crc,
    pack_header,
)
from aiokq.records.varint import append_varint, read_varint

DEFAULT_LIMIT: Final = 128 * 1024 * 1024
"""The default limit of a batch's decompressed size, in bytes."""

_TWO_BYTES: Final = 1 << 14
"""The first zigzag value whose varint takes more than two bytes."""

Headers = Sequence[tuple[str, bytes | None]]


class RawRecord(NamedTuple):
    """A record of the log, with its absolute offset and timestamp (milliseconds since 1970)."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def iter_records(
    data: Buffer, header: BatchHeader, *, limit: int = DEFAULT_LIMIT
) -> Iterator[RawRecord]:
    """Yield the records of the v2 batch at the start of ``data``, control records included.

    Args:
        data: bytes that begin with the batch of ``header``.
        limit: maximum decompressed size of the records, in bytes.

    Raises:
        CorruptRecord: the records are malformed, or do not match the header.
        RecordTooLarge: the records decompress to more than ``limit``.
        UnsupportedCompressionType: the batch has an unknown codec.
    """
    section: Buffer = memoryview(data)[HEADER_SIZE : header.size]
    if header.codec:
        section = compression.decompress(header.codec, section, limit)
    append_time = header.max_timestamp_ms if header.timestamp_type == LOG_APPEND_TIME else None
    position = 0
    for _ in range(header.count):
        record, position = _read_record(section, position, header, append_time)
        yield record
    if position != len(section):
        raise CorruptRecord(f"{len(section) - position} bytes after the last of the records")


def iter_values(data: bytes, header: BatchHeader) -> Iterator[bytes]:
    """Yield the value of each record of a batch whose offsets are consecutive.

    The metadata log has such batches. This function is faster than ``iter_records`` for records
    that have the base timestamp of the batch, no key and no headers.

    Raises:
        CorruptRecord: the records are malformed, or an offset or a value is missing.
        RecordTooLarge, UnsupportedCompressionType: the batch cannot be decompressed, see
            ``iter_records``.
    """
    position = HEADER_SIZE
    index = 0
    try:
        while index < header.count and not header.codec:
            size, position = data[position], position + 1
            if size > 0x7F:
                size, position = size & 0x7F | data[position] << 7, position + 1
            end = position + (size >> 1)
            delta = index << 1
            if size & 1 or size >= _TWO_BYTES or delta >= _TWO_BYTES:
                break
            # attributes 0, timestamp delta 0, the offset delta, and a null key
            start = (
                bytes((0, 0, delta, 1))
                if delta <= 0x7F
                else bytes((0, 0, delta & 0x7F | 0x80, delta >> 7, 1))
            )
            if not data.startswith(start, position):
                break
            position += len(start)
            size, position = data[position], position + 1
            if size > 0x7F:
                size, position = size & 0x7F | data[position] << 7, position + 1
            after = position + (size >> 1)
            if size & 1 or size >= _TWO_BYTES or after + 1 != end or data[after]:
                break
            yield data[position:after]
            position = end
            index += 1
    except IndexError:
        pass  # the loop below decodes the records again and raises CorruptRecord
    if index == header.count and position == header.size:
        return
    for number, record in enumerate(iter_records(data, header)):
        offset = header.base_offset + number
        if record.offset != offset:
            raise CorruptRecord(f"record {offset} is missing: found offset {record.offset}")
        if record.value is None:
            raise CorruptRecord(f"record {offset} has no value")
        if number >= index:
            yield record.value


def _read_record(
    section: Buffer, position: int, header: BatchHeader, append_time: int | None
) -> tuple[RawRecord, int]:
    size, position = read_varint(section, position, 5)
    end = position + size
    if size < 0 or end > len(section):
        raise CorruptRecord(f"record of {size} bytes with {len(section) - position} left")
    position += 1  # attributes, unused
    timestamp_delta, position = read_varint(section, position)
    offset_delta, position = read_varint(section, position, 5)
    key, position = _read_bytes(section, position, end)
    value, position = _read_bytes(section, position, end)
    count, position = read_varint(section, position, 5)
    if not 0 <= count <= end - position:
        raise CorruptRecord(f"record with {count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(section, position, end)
        if name is None:
            raise CorruptRecord("header without a name")
        content, position = _read_bytes(section, position, end)
        headers.append((name.decode("utf-8", "replace"), content))
    if position != end:
        raise CorruptRecord(f"record ends at byte {position}, its length says {end}")
    timestamp = header.base_timestamp_ms + timestamp_delta if append_time is None else append_time
    record = RawRecord(header.base_offset + offset_delta, timestamp, key, value, headers)
    return record, position


def _read_bytes(section: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(section, position, 5)
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptRecord(f"field of {length} bytes with {end - position} left in its record")
    return bytes(section[position : position + length]), position + length


def encode_batch(
    records: Iterable[RawRecord],
    *,
    crc32c: Checksum | None,
    codec: int = compression.NONE,
    level: int | None = None,
    base_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: int = CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
) -> bytes:
    """Return one v2 batch of ``records``, whose offsets must increase and may have gaps.

    Args:
        crc32c: computes the checksum; with None the CRC is 0.
        base_offset: the batch's base offset, at most the offset of the first record; None for the
            offset of the first record.
        timestamp_type: with LOG_APPEND_TIME, the largest timestamp applies to all records.
        attributes: additional attribute bits, such as transactional or control.

    Raises:
        ValueError: there are no records, or their offsets do not increase, begin before
            ``base_offset``, or span 2**31 or more.
        UnsupportedCompressionType: the codec id is unknown.
        ConfigError: ``level`` is outside the codec's range.
    """
    section = bytearray()
    base_timestamp = max_timestamp = last = first = None
    count = 0
    for record in records:
        if first is None or last is None or base_timestamp is None or max_timestamp is None:
            first = record.offset if base_offset is None else base_offset
            last = first - 1
            base_timestamp = max_timestamp = record.timestamp_ms
        if record.offset <= last:
            raise ValueError(f"offset {record.offset} after {last}")
        last = record.offset
        max_timestamp = max(max_timestamp, record.timestamp_ms)
        _append_record(section, record, last - first, record.timestamp_ms - base_timestamp)
        count += 1
    if first is None or last is None or base_timestamp is None or max_timestamp is None:
        raise ValueError("a batch needs at least one record")
    if last - first >= 2**31:
        raise ValueError(f"offsets {first} to {last}, too far apart for a batch")
    content = compression.compress(codec, section, level) if codec else bytes(section)
    header = BatchHeader(
        base_offset=first,
        length=HEADER_SIZE - LOG_OVERHEAD + len(content),
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes | codec | timestamp_type << 3,
        last_offset_delta=last - first,
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )
    batch = pack_header(header) + content
    if crc32c is None:
        return batch
    return pack_header(header._replace(crc=computed_crc(batch, header, crc32c))) + content


def _append_record(
    out: bytearray, record: RawRecord, offset_delta: int, timestamp_delta: int
) -> None:
    body = bytearray(1)  # attributes, unused
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for name, content in record.headers:
        _append_bytes(body, name.encode())
        _append_bytes(body, content)
    append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        append_varint(out, -1)
    else:
        append_varint(out, len(content))
        out += content
