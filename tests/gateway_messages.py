"""Messages of the gateway's wire format, encoded field by field."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

NOW = 1_700_000_000_000

EXAMPLES = [
    (
        "0000001f 0100 0000 0000 0001 74 0000018bcfe56800 00000000 00000002 6869",
        "t",
        "",
        "hi",
        None,
    ),
    (
        "0000002f 0101 0000 0000 ffffffff 0006 6f7264657273 0000018bcfe56800 00000002 7537 00000007"
        " 7b226e223a317d",
        "orders",
        "u7",
        '{"n":1}',
        0xFFFFFFFF,
    ),
    (
        "00000023 0100 0000 0000 0007 7765622e6c6f67 0000018bcfe56800 00000000 00000000",
        "web.log",
        "",
        "",
        None,
    ),
]
"""Messages of Bruce's and Dory's own C libraries: hex, topic, key, value, partition key."""


class Vector(NamedTuple):
    """The bytes of a message, and its fields."""

    message: bytes
    topic: bytes
    key: bytes
    value: bytes
    timestamp_ms: int
    partition_key: int | None


LIMITS: list[tuple[str, dict[str, Any]]] = [
    ("0000001d 0100 0000 0000 0001 74 0000018bcfe56800 00000000 00000000", {}),
    (
        "00000021 0101 0000 0000 00000000 0001 74 0000018bcfe56800 00000000 00000000",
        {"partition_key": 0},
    ),
    (
        "00000021 0101 0000 0000 7fffffff 0001 74 0000018bcfe56800 00000000 00000000",
        {"partition_key": 2**31 - 1},
    ),
    (
        "00000021 0101 0000 0000 80000000 0001 74 0000018bcfe56800 00000000 00000000",
        {"partition_key": 2**31},
    ),
    (
        "00000021 0101 0000 0000 ffffffff 0001 74 0000018bcfe56800 00000000 00000000",
        {"partition_key": 2**32 - 1},
    ),
    ("0000001d 0100 0000 0000 0001 ff 0000018bcfe56800 00000000 00000000", {"topic": b"\xff"}),
    (
        "00000115 0100 0000 0000 00f9 78*249 0000018bcfe56800 00000000 00000000",
        {"topic": b"x" * 249},
    ),
    (
        "0000801b 0100 0000 0000 7fff 78*32767 0000018bcfe56800 00000000 00000000",
        {"topic": b"x" * 32767},
    ),
    (
        "0000801f 0101 0000 0000 ffffffff 7fff 78*32767 0000018bcfe56800 00000000 00000000",
        {"topic": b"x" * 32767, "partition_key": 2**32 - 1},
    ),
    (
        "0000001d 0100 0000 0000 0001 74 8000000000000000 00000000 00000000",
        {"timestamp_ms": -(2**63)},
    ),
    ("0000001d 0100 0000 0000 0001 74 ffffffffffffffff 00000000 00000000", {"timestamp_ms": -1}),
    ("0000001d 0100 0000 0000 0001 74 0000000000000000 00000000 00000000", {"timestamp_ms": 0}),
    (
        "0000001d 0100 0000 0000 0001 74 0000000080000000 00000000 00000000",
        {"timestamp_ms": 2**31},
    ),
    (
        "0000001d 0100 0000 0000 0001 74 7fffffffffffffff 00000000 00000000",
        {"timestamp_ms": 2**63 - 1},
    ),
    ("0000001e 0100 0000 0000 0001 74 0000018bcfe56800 00000001 00 00000000", {"key": b"\0"}),
    (
        "0001001d 0100 0000 0000 0001 74 0000018bcfe56800 00010000 6b*65536 00000000",
        {"key": b"k" * 65536},
    ),
    ("0000001e 0100 0000 0000 0001 74 0000018bcfe56800 00000000 00000001 ff", {"value": b"\xff"}),
    (
        "00010000 0100 0000 0000 0001 74 0000018bcfe56800 00000000 0000ffe3 76*65507",
        {"value": b"v" * 65507},
    ),
    (
        "0100001d 0100 0000 0000 0001 74 0000018bcfe56800 00000000 01000000 00*16777216",
        {"value": bytes(1 << 24)},
    ),
    (
        "0002a2ff 0101 0000 0000 80000000 7fff ff*32767 8000000000000000 00011170 00*70000"
        " 00011170 ff*70000",
        {
            "topic": b"\xff" * 32767,
            "key": bytes(70000),
            "value": b"\xff" * 70000,
            "timestamp_ms": -(2**63),
            "partition_key": 2**31,
        },
    ),
]
"""Messages at the limits of each field, written by hand after the format: `78*249` are 249 bytes of
78. The fields that are not named have the values of `vectors`.
"""


def vectors() -> Iterator[Vector]:
    """Yield the examples, and messages at the limits of all fields."""
    for text, topic, key, value, partition_key in EXAMPLES:
        fields = (topic.encode(), key.encode(), value.encode(), NOW, partition_key)
        yield Vector(_spelled(text), *fields)
    for text, given in LIMITS:
        usual = {
            "topic": b"t",
            "key": b"",
            "value": b"",
            "timestamp_ms": NOW,
            "partition_key": None,
        }
        yield Vector(_spelled(text), **{**usual, **given})


def _spelled(text: str) -> bytes:
    parts = (part.partition("*") for part in text.split())
    return b"".join(bytes.fromhex(digits) * int(count or 1) for digits, _, count in parts)


def encode(
    topic: bytes = b"t",
    value: bytes = b"",
    key: bytes = b"",
    *,
    timestamp: int = NOW,
    partition_key: int | None = None,
    size: int | None = None,
    api_key: int | None = None,
    version: int = 0,
    flags: int = 0,
    topic_size: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """Encode a message; each size may be given wrong."""
    if api_key is None:
        api_key = 256 if partition_key is None else 257
    body = struct.pack(">hhh", api_key, version, flags)
    if partition_key is not None:
        body += struct.pack(">I", partition_key)
    body += struct.pack(">h", len(topic) if topic_size is None else topic_size) + topic
    body += struct.pack(">q", timestamp)
    body += struct.pack(">i", len(key) if key_size is None else key_size) + key
    body += struct.pack(">i", len(value) if value_size is None else value_size) + value + tail
    return struct.pack(">i", len(body) + 4 if size is None else size) + body
