"""Finds the partitions of messages again after the partitions of a topic have changed.

Tests: tests/sim/test_gateway_bruce.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.bruce.chunk import Chunk
    from aiokq.gateway.bruce.partitions import TopicPartitions

__all__ = ["divided", "partitions_of"]


def partitions_of(taken: Taken, partitions: TopicPartitions) -> memoryview | None:
    """Return the partition of each row by its partition key, as int32; None if no row has a key."""
    columns = taken.columns(partitions=len(partitions.leaders), usable=partitions.usable)
    column = columns.get("partition")
    return None if column is None else memoryview(column[1]).cast("B").cast("i")


def divided(chunk: Chunk, partitions: memoryview | None) -> list[Chunk]:
    """Divide a chunk into chunks by new partition."""
    if partitions is None:
        return [chunk]
    found: dict[int, set[int]] = {}
    for at, row in enumerate(chunk.rows):
        found.setdefault(partitions[row], set()).add(at)
    if len(found) == 1:
        chunk.partition = next(iter(found))
        return [chunk]
    everything = set(range(len(chunk)))
    divided = []
    for partition, positions in found.items():
        part = chunk.without(everything - positions)
        assert part is not None
        part.partition = partition
        divided.append(part)
    return divided
