"""The reader of ordinary Produce requests in the pure core; the compiled core has requests.h.

`produced.read_produced` defines which requests are ordinary.
Tests: tests/unit/fastpath/test_produced.py runs both implementations.
"""

# Hot path, measured by benchmarks/raw_load.py with the pure core.

from __future__ import annotations

import struct
from typing import Final

from aiokq.fastpath.pure import crc32c

_START: Final = struct.Struct(">hhih")  # API key, version, correlation id, size of the client id
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")

_OLDEST, _NEWEST, _ZSTD_SINCE, _FLEXIBLE_SINCE, _IDS_SINCE = 3, 13, 7, 9, 13
_CODEC, _SPECIAL, _TRANSACTIONAL = 0x07, 0x28, 0x10  # _SPECIAL: LogAppendTime or a control batch
_ZSTD: Final = 4
_MOST_PARTS: Final = 1024  # see AIOKQ_MOST_PARTS in requests.h


class _OtherRequest(Exception):
    """The request is malformed, or not ordinary in the sense of `read_produced`."""


class _Request:
    """Reader of a request's fields, in order."""

    __slots__ = ("at", "data", "flexible", "parts")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = _START.size
        self.flexible = False
        self.parts = 0

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise _OtherRequest
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack(self.take(kind.size))[0]
        return number

    def length(self, kind: struct.Struct) -> int:
        """Read the length of a string, bytes or an array; -1 for null."""
        if not self.flexible:
            return self.number(kind)
        bits = 0
        for shift in range(0, 35, 7):
            (byte,) = self.take(1)
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return bits - 1
        raise _OtherRequest

    def elements(self) -> int:
        """Read the length of an array; all arrays together have at most `_MOST_PARTS` elements."""
        count = self.length(_INT32)
        self.parts += count
        if count < 0 or self.parts > _MOST_PARTS:
            raise _OtherRequest
        return count

    def text(self, size: int) -> str:
        try:
            return str(self.take(size), "ascii")
        except UnicodeDecodeError:
            raise _OtherRequest from None

    def no_tags(self) -> None:
        if self.flexible and self.take(1)[0]:
            raise _OtherRequest


Topics = list[tuple[str | bytes, list[tuple[int, memoryview, tuple[int, ...]]]]]


def read(frame: memoryview) -> tuple[int, int, str | None, int, Topics] | None:
    """Implement `produced.read_produced`."""
    try:
        return _read(memoryview(frame))
    except _OtherRequest:
        return None


def _read(frame: memoryview) -> tuple[int, int, str | None, int, Topics]:
    if len(frame) < _START.size:
        raise _OtherRequest
    key, version, correlation_id, size = _START.unpack_from(frame)
    if key or not _OLDEST <= version <= _NEWEST or size < -1:
        raise _OtherRequest
    request = _Request(frame)
    request.text(max(size, 0))
    request.flexible = version >= _FLEXIBLE_SINCE
    request.no_tags()
    transactional_id, special = None, _SPECIAL | _TRANSACTIONAL
    size = request.length(_INT16)
    if size != -1:
        transactional_id, special = request.text(size), _SPECIAL
    acks = request.number(_INT16)
    request.number(_INT32)
    count = request.elements()
    if not -1 <= acks <= 1:
        raise _OtherRequest
    newest_codec = _ZSTD if version >= _ZSTD_SINCE else _ZSTD - 1
    topics: Topics = []
    for _ in range(count):
        topic: str | bytes
        if version >= _IDS_SINCE:
            topic = bytes(request.take(16))
        else:
            topic = request.text(request.length(_INT16))
        partitions = []
        for _ in range(request.elements()):
            index = request.number(_INT32)
            batch = request.take(request.length(_INT32))
            partitions.append((index, batch, _ordinary(batch, newest_codec, special)))
            request.no_tags()
        request.no_tags()
        topics.append((topic, partitions))
    request.no_tags()
    return version, correlation_id, transactional_id, acks, topics


def _ordinary(batch: memoryview, newest_codec: int, special: int) -> tuple[int, ...]:
    """Return the fields of a batch header; raise _OtherRequest if the batch is not ordinary."""
    if len(batch) <= _BATCH.size:
        raise _OtherRequest
    header: tuple[int, ...] = _BATCH.unpack_from(batch)
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer, _, sequence, n = (
        header
    )
    if (
        length != len(batch) - 12
        or magic != 2
        or base_offset
        or attributes & special
        or attributes & _CODEC > newest_codec
        or last_delta < 0
        or n != last_delta + 1
        or (producer >= 0 and sequence < 0)
        or crc != crc32c(batch[21:], 0)
    ):
        raise _OtherRequest
    return header
