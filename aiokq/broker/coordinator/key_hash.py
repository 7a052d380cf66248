"""The partition that coordinates a key, computed from Java's hash of the key as in Kafka."""

from __future__ import annotations

from typing import Final

__all__ = ["partition_by_hash"]

_INT_MIN: Final = -(2**31)


def partition_by_hash(key: str, partitions: int) -> int:
    """Return the partition, below `partitions`, of a group id or transactional id.

    Source: Kafka ``Utils.abs(key.hashCode()) % partitions``.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if value >= 2**31:
        value -= 2**32
    return 0 if value == _INT_MIN else abs(value) % partitions
