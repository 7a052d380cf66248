"""Message sets of magic 0 and 1, and their conversion to and from v2 batches.

An entry consists of offset (int64), size (int32), CRC-32, magic, attributes, timestamp (only in
v1), key and value. The CRC-32 covers the bytes after the CRC-32. A compressed message set is stored
in a single entry (the wrapper), whose value is the compressed set. The wrapper has the offset of
the last record; the offsets inside are absolute in v0 and relative in v1.

Source: Kafka ``LegacyRecord.java``, ``AbstractLegacyRecordBatch.java``, KIP-31, KIP-32.
Tests: ``tests/unit/records/test_legacy.py``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from aiokq.core.errors import CorruptRecord, UnsupportedCompressionType
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import Buffer
from aiokq.records import compression
from aiokq.records.header import (
    CODEC_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MIN_LENGTH,
    NO_TIMESTAMP,
    Checksum,
    iter_headers,
)
from aiokq.records.record import DEFAULT_LIMIT, RawRecord, encode_batch, iter_records

_PREFIX: Final = struct.Struct(">qi")
_V0: Final = struct.Struct(">bb")
_V1: Final = struct.Struct(">bbq")
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">i")


class Message(NamedTuple):
    """One message of a v0/v1 set, with its absolute offset."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    timestamp_type: int = CREATE_TIME


def decode_message_set(
    data: Buffer, *, check_crcs: bool = True, limit: int = DEFAULT_LIMIT
) -> Iterator[Message]:
    """Yield the messages of a v0/v1 set, decompressing wrappers; ignore an incomplete last entry.

    Args:
        data: entries of magic 0 or 1, one after the other.
        check_crcs: verify the CRC-32 of each entry that is not inside a wrapper.
        limit: maximum decompressed size of a wrapper, in bytes.

    Raises:
        CorruptRecord: an entry is malformed, or its CRC-32 is wrong.
        RecordTooLarge: the content of a wrapper is larger than ``limit``.
        UnsupportedCompressionType: a wrapper has an unknown codec, or zstd.
    """
    view = memoryview(data)
    position = 0
    for header in iter_headers(view):
        if header.magic > 1:
            raise CorruptRecord(f"batch of magic {header.magic} in a message set")
        entry = view[position : position + header.size]
        position += header.size
        if check_crcs and zlib.crc32(entry[16:]) != header.crc:
            raise CorruptRecord(f"CRC-32 of the message at offset {header.base_offset} is wrong")
        message = _message(entry, header.base_offset, header.magic, header.timestamp_type)
        if header.codec == compression.NONE:
            yield message
        else:
            yield from _open_wrapper(message, header.magic, header.codec, limit)


def _message(entry: memoryview, offset: int, magic: int, timestamp_type: int) -> Message:
    """Return the message in ``entry``, which is exactly one entry."""
    timestamp = NO_TIMESTAMP
    position = LOG_OVERHEAD + MIN_LENGTH[magic] - 8
    if magic == 1:
        (timestamp,) = struct.unpack_from(">q", entry, 18)
    key, position = _read_bytes(entry, position)
    value, position = _read_bytes(entry, position)
    if position != len(entry):
        raise CorruptRecord(f"{len(entry) - position} bytes after the message at offset {offset}")
    return Message(offset, timestamp, key, value, timestamp_type if magic else CREATE_TIME)


def _read_bytes(entry: memoryview, position: int) -> tuple[bytes | None, int]:
    if position + 4 > len(entry):
        raise CorruptRecord("message ends inside a length")
    (length,) = _LENGTH.unpack_from(entry, position)
    position += 4
    if length < 0:
        return None, position
    if position + length > len(entry):
        raise CorruptRecord(f"field of {length} bytes with {len(entry) - position} left")
    return bytes(entry[position : position + length]), position + length


def _open_wrapper(wrapper: Message, magic: int, codec: int, limit: int) -> Iterator[Message]:
    if wrapper.value is None:
        raise CorruptRecord(f"compressed message at offset {wrapper.offset} has no content")
    content = memoryview(compression.decompress(codec, wrapper.value, limit, magic=magic))
    inner: list[Message] = []
    position = 0
    for header in iter_headers(content):
        if header.magic != magic or header.codec:
            raise CorruptRecord(
                f"message of magic {header.magic}, codec {header.codec} inside a compressed one"
                f" of magic {magic}"
            )
        # Inner checksums are not verified, because the wrapper's checksum covers the inner
        # messages.
        entry = content[position : position + header.size]
        inner.append(_message(entry, header.base_offset, magic, header.timestamp_type))
        position += header.size
    if not inner or position != len(content):
        raise CorruptRecord(
            f"compressed message at offset {wrapper.offset} is empty or ends inside a message"
        )
    # KIP-31: inner v1 offsets are relative, and the wrapper has the offset of the last message
    base = wrapper.offset - inner[-1].offset if magic == 1 else 0
    append_time = wrapper.timestamp_type == LOG_APPEND_TIME
    for message in inner:
        yield Message(
            base + message.offset,
            wrapper.timestamp_ms if append_time else message.timestamp_ms,
            message.key,
            message.value,
            wrapper.timestamp_type,
        )


def encode_message_set(
    records: Iterable[Message | RawRecord],
    magic: int,
    codec: int = compression.NONE,
    *,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
) -> bytes:
    """Return a v0/v1 message set that keeps the offsets of ``records``.

    A compressed message set is a single wrapper message. Record headers are dropped, because these
    formats have no record headers.

    Raises:
        UnsupportedCompressionType: the codec id is unknown, or is zstd, which only v2 supports.
        ConfigError: ``level`` is outside the codec's range.
    """
    messages = list(records)
    if codec == compression.NONE:
        return b"".join(
            _entry(m.offset, m.timestamp_ms, m.key, m.value, magic, timestamp_type << 3)
            for m in messages
        )
    if codec == compression.ZSTD:
        raise UnsupportedCompressionType("zstd needs batches of magic 2")
    if not messages:
        return b""
    first, last = messages[0].offset, messages[-1].offset
    base = first if magic == 1 else 0
    inner = b"".join(
        _entry(m.offset - base, m.timestamp_ms, m.key, m.value, magic, timestamp_type << 3)
        for m in messages
    )
    return _entry(
        last,
        max(m.timestamp_ms for m in messages),
        None,
        compression.compress(codec, inner, level, magic=magic),
        magic,
        codec | timestamp_type << 3,
    )


def _entry(
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    magic: int,
    attributes: int,
) -> bytes:
    if magic == 1:
        head = _V1.pack(1, attributes, timestamp_ms)
    else:
        head = _V0.pack(0, attributes & CODEC_MASK)
    body = b"".join((head, _bytes(key), _bytes(value)))
    return _PREFIX.pack(offset, len(body) + 4) + _CRC.pack(zlib.crc32(body)) + body


def _bytes(content: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if content is None else _LENGTH.pack(len(content)) + content


def upconvert(
    data: Buffer,
    *,
    crc32c: Checksum | None = None,
    check_crcs: bool = True,
    limit: int = DEFAULT_LIMIT,
) -> bytes:
    """Return the v0/v1 entries in ``data`` as one uncompressed v2 batch with the same offsets.

    The timestamp type of the batch is LogAppendTime if all messages have this type and the same
    timestamp. Otherwise the timestamp type is CreateTime.

    Args:
        crc32c: computes the checksum of the batch; None writes 0.
        check_crcs: verify the CRC-32 of each entry that is not inside a wrapper.
        limit: maximum decompressed size of a wrapper, in bytes.

    Raises:
        CorruptRecord: an entry is damaged, ``data`` has no complete entry, or the offsets do not
            increase or are too far apart for one batch.
        RecordTooLarge: the content of a wrapper is larger than ``limit``.
        UnsupportedCompressionType: a wrapper has an unknown codec, or zstd.
    """
    messages = list(decode_message_set(data, check_crcs=check_crcs, limit=limit))
    if not messages:
        raise CorruptRecord("no whole message to convert")
    types = {(m.timestamp_type, m.timestamp_ms) for m in messages}
    append_time = len(types) == 1 and messages[0].timestamp_type == LOG_APPEND_TIME
    try:
        return encode_batch(
            (RawRecord(m.offset, m.timestamp_ms, m.key, m.value) for m in messages),
            crc32c=crc32c,
            timestamp_type=LOG_APPEND_TIME if append_time else CREATE_TIME,
        )
    except ValueError as error:
        raise CorruptRecord(f"message set with offsets that no batch can have: {error}") from None


def downconvert(batches: Buffer, magic: int, *, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return batches as message sets of ``magic`` 0 or 1, for old clients.

    Each batch keeps its codec; record headers are dropped, and control batches are omitted. Entries
    of the requested magic or an older magic are not changed.

    Raises:
        UnsupportedCompressionType: a batch has zstd or an unknown codec.
        CorruptRecord: a batch is malformed.
        RecordTooLarge: a batch decompresses to more than ``limit``.
    """
    view = memoryview(batches)
    out: list[bytes] = []
    position = 0
    for header in iter_headers(view):
        batch = view[position : position + header.size]
        position += header.size
        if header.magic <= magic:
            out.append(bytes(batch))
        elif header.magic == 1:
            messages = decode_message_set(batch, limit=limit)
            out.append(encode_message_set(messages, magic, header.codec))
        elif not header.is_control:
            records = iter_records(batch, header, limit=limit)
            out.append(
                encode_message_set(
                    records, magic, header.codec, timestamp_type=header.timestamp_type
                )
            )
    return b"".join(out)
