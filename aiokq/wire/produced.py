"""Fast encoder of the response to a Produce request whose batches were all appended.

All topics must have CreateTime, because the encoder writes -1 for the log append time.
`aiokq.wire.encode` of a `ProduceResponse` returns the same bytes, but takes longer. A broker with
many producers sends this response more often than any other.

Source: `ProduceResponse.json`. Tests: tests/unit/wire/test_produced.py.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Final

from aiokq.wire.primitives import unsigned

__all__ = ["AppendedBatch", "encode_appended"]

AppendedBatch = tuple[int, int, int]
"""Partition, base offset and log start offset."""

_NO_TIME: Final = -1  # log append time of a topic with CreateTime

_FLEXIBLE_SINCE: Final = 9
_START_OFFSETS_SINCE: Final = 5
_ERRORS_SINCE: Final = 8

_HEAD: Final = struct.Struct(">ii")  # size, correlation id
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_APPENDED: Final = struct.Struct(">ihqqq")  # partition, error, base offset, time, log start offset
_APPENDED_V3: Final = struct.Struct(">ihqq")
_NO_RECORD_ERRORS: Final = b"\0\0\0\0\xff\xff"  # no record errors, no error message
_NO_RECORD_ERRORS_V9: Final = b"\1\0\0"  # no record errors, error message or tagged fields
_NOT_THROTTLED: Final = b"\0\0\0\0"
_NOT_THROTTLED_V9: Final = b"\0\0\0\0\0"  # throttle time 0, no tagged fields


def encode_appended(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[AppendedBatch]]],
    throttle_ms: int = 0,
) -> bytes:
    """Return a Produce response without errors as a whole frame, including its size field.

    Args:
        version: version of Produce, 3 to 13.
        topics: for each topic, its name (from version 13 on, the 16 bytes of its id) and its
            appended batches.
    """
    # Hot path, measured by benchmarks/raw_load.py.
    flexible = version >= _FLEXIBLE_SINCE
    parts = [b"\0" if flexible else b"", _count(len(topics), flexible)]
    for topic, appended in topics:
        parts.append(_name(topic, flexible) if isinstance(topic, str) else topic)
        parts.append(_count(len(appended), flexible))
        if version >= _START_OFFSETS_SINCE:
            rest = b""
            if version >= _ERRORS_SINCE:
                rest = _NO_RECORD_ERRORS_V9 if flexible else _NO_RECORD_ERRORS
            for partition, base_offset, start_offset in appended:
                parts.append(_APPENDED.pack(partition, 0, base_offset, _NO_TIME, start_offset))
                parts.append(rest)
        else:
            for partition, base_offset, _ in appended:
                parts.append(_APPENDED_V3.pack(partition, 0, base_offset, _NO_TIME))
        if flexible:
            parts.append(b"\0")
    if throttle_ms:
        parts.append(_INT32.pack(throttle_ms) + (b"\0" if flexible else b""))
    else:
        parts.append(_NOT_THROTTLED_V9 if flexible else _NOT_THROTTLED)
    body = b"".join(parts)
    return _HEAD.pack(4 + len(body), correlation_id) + body


@functools.lru_cache(1024)
def _name(topic: str, flexible: bool) -> bytes:
    name = topic.encode()
    return (unsigned(len(name) + 1) if flexible else _INT16.pack(len(name))) + name


@functools.lru_cache(256)
def _count(count: int, flexible: bool) -> bytes:
    return unsigned(count + 1) if flexible else _INT32.pack(count)
