"""Messages of the gateway's wire format, encoded field by field."""

from __future__ import annotations

import struct

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
