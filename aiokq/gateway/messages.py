"""Encodes messages in the format that inputs read; all integers are big-endian.

Source: the format of Bruce and Dory, ApiKey 256 (AnyPartition) and 257 (PartitionKey), version 0.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["encode"]

ANY_PARTITION: Final = 256
PARTITION_KEY: Final = 257


def encode(
    topic: bytes, key: bytes, value: bytes, timestamp_ms: int, partition_key: int | None = None
) -> bytes:
    """Return one message.

    Args:
        partition_key: from -2**31 to 2**32 - 1; None lets the gateway choose the partition.

    Raises:
        ValueError: the topic is empty or has more than 32767 bytes, or a number is out of range.
    """
    if not 1 <= len(topic) <= 32767:
        raise ValueError("a topic has from 1 to 32767 bytes")
    try:
        chosen = b""
        if partition_key is not None:
            if not -(2**31) <= partition_key < 2**32:
                raise ValueError("a partition key is from -2**31 to 2**32 - 1")
            chosen = struct.pack(">I", partition_key & 0xFFFFFFFF)
        api_key = ANY_PARTITION if partition_key is None else PARTITION_KEY
        body = b"".join(
            (
                struct.pack(">hhh", api_key, 0, 0),
                chosen,
                struct.pack(">h", len(topic)),
                topic,
                struct.pack(">qi", timestamp_ms, len(key)),
                key,
                struct.pack(">i", len(value)),
                value,
            )
        )
        return struct.pack(">i", 4 + len(body)) + body
    except struct.error as error:
        raise ValueError(f"the message cannot be encoded: {error}") from error
