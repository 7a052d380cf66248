"""Splits a batch into new batches after a broker has refused the batch.

The functions select the records of each new batch, create the batches, and divide the sequence
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.producer.idempotence import advance
from aiokq.records.compression import NONE, decompress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokq.fastpath.produce import Accumulator, Batch, Delivery, QueuedBatch

__all__ = ["halves", "number_halves", "records_by_error", "regroup"]

HEADER_SIZE = 61


def regroup(
    accumulator: Accumulator, batch: Batch, codec: int, groups: Sequence[Sequence[int]]
) -> list[Batch]:
    """Split `batch` into one new batch per group of record indexes.

    The Deliveries of `batch` get their outcomes from the new batches.

    Args:
        batch: a batch that was sent and is not done; the new batches replace this batch.
        codec: the codec that `batch` is compressed with.
        groups: the record indexes of each new batch; every index is in exactly one group.
    """
    payload = None
    if codec != NONE:
        payload = decompress(codec, batch.data[HEADER_SIZE:], batch.size)
    records = batch.records(payload)
    created = batch.created
    accumulator.release(batch)  # the new batches reserve memory for the same records
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


def halves(count: int) -> list[Sequence[int]]:
    """Return the record indexes of both halves of a batch of `count` records."""
    middle = count // 2
    return [range(middle), range(middle, count)]


def number_halves(whole: QueuedBatch, parts: Sequence[QueuedBatch]) -> None:
    """Divide the sequence numbers of `whole`, if it has any, between its halves.

    If `whole` may have been written, its halves are marked as possibly written, too.
    """
    first, second = parts
    for part in parts:
        part.uncertain = part.torn = whole.uncertain
    stamp = whole.stamp
    if stamp is not None:
        first.stamp = stamp
        second.stamp = stamp._replace(base_sequence=advance(stamp.base_sequence, first.batch.count))


def records_by_error(
    count: int, bad_records: Mapping[int, str | None]
) -> tuple[dict[str | None, list[int]], list[int]]:
    """Return the indexes of the bad records by message, and the indexes of the good records.

    Args:
        count: number of records in the batch; indexes from `count` on are ignored.
        bad_records: error message by index of each record that the broker refused (KIP-467).
    """
    bad: dict[str | None, list[int]] = {}
    good = []
    for index in range(count):
        if index in bad_records:
            bad.setdefault(bad_records[index], []).append(index)
        else:
            good.append(index)
    return bad, good
