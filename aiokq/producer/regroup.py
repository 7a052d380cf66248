"""Owns cutting a batch that was refused into others; why, and what for, is the queue's matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.records.compression import NONE, decompress

if TYPE_CHECKING:
    from aiokq.fastpath.produce import Accumulator, Batch, Delivery

__all__ = ["regroup"]

HEADER_SIZE = 61


def regroup(
    accumulator: Accumulator, batch: Batch, codec: int, groups: Sequence[Sequence[int]]
) -> list[Batch]:
    """Batches of the records at these indexes; the Deliveries of `batch` follow.

    Args:
        batch: one that was stamped and is not done; it is afterwards.
        codec: it is compressed with.
        groups: each record's index in exactly one.
    """
    payload = None
    if codec != NONE:
        payload = decompress(codec, batch.data[HEADER_SIZE:], batch.size)
    records = batch.records(payload)
    created = batch.created
    accumulator.release(batch)  # its memory is taken by the parts: never counted twice
    targets: dict[int, Delivery] = {}
    parts = []
    for group in groups:
        part, deliveries = accumulator.new_batch(
            batch.slot, [records[index] for index in group], created
        )
        parts.append(part)
        targets.update(zip(group, deliveries, strict=True))
    batch.forward([targets[index] for index in range(len(records))])
    return parts
