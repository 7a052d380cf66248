"""The partition that coordinates a key, computed from Java's hash of the key as in Kafka."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Final

__all__ = ["partition_by_hash"]

_INT_MIN: Final = -(2**31)


@functools.lru_cache(maxsize=256)
def partition_by_hash(key: str, partitions: int) -> int:
    """Return the index of the partition that coordinates a group id or transactional id.

    Args:
        partitions: the number of partitions of the coordinator's topic.

    Source: Kafka ``Utils.abs(key.hashCode()) % partitions``.
    """
    value = 0
    for unit in _code_units(key):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value >= 2**31:
        value -= 2**32
    return 0 if value == _INT_MIN else abs(value) % partitions


def _code_units(text: str) -> Sequence[int]:
    """Return the UTF-16 code units of a text, which are the characters of a Java string."""
    if text.isascii():
        return text.encode()
    data = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)
