"""The first pass of a cleaning: finds the last record of each key in the dirty part.

Source: Kafka ``Cleaner.buildOffsetMap``. Tests: ``tests/unit/broker/log/test_cleaner.py``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from aiokq.broker.log.cleaner.batch_rewriting import checked, control_type, uncompressed
from aiokq.broker.log.cleaner.cleaned_transactions import CleanedTransactions
from aiokq.broker.log.cleaner.log_view import LogView, SegmentView, chunks, following
from aiokq.core.errors import CorruptRecord
from aiokq.fastpath.broker import (
    OFFSET_MAP_ENTRY,
    WALK_CORRUPT,
    WALK_FULL,
    WALK_ONE,
    WALK_OTHER,
    WALK_TRUSTED,
    OffsetMap,
)
from aiokq.records.header import BatchHeader
from aiokq.records.legacy import decode_message_set

if TYPE_CHECKING:
    from aiokq.broker.log.cleaner.statistics import Statistics
    from aiokq.core.files import Files

__all__ = ["build_offset_map", "new_offset_map"]


def new_offset_map(memory_bytes: int, load_factor: float, records: int, secret: bytes) -> OffsetMap:
    """Return a map for ``records`` keys, or for as many keys as fit into ``memory_bytes``.

    Args:
        load_factor: the largest part of the map's slots that is used, from 0 to 1.
        secret: 16 random bytes, on which the hashes of keys depend.
    """
    load_factor = max(load_factor, 0.01)  # 0 is a legal setting
    slots = min(memory_bytes // OFFSET_MAP_ENTRY, int(records / load_factor) + 2)
    slots = max(slots, 2)
    return OffsetMap(slots, max(int(slots * load_factor), 1), secret)


def build_offset_map(
    files: Files, view: LogView, offsets: OffsetMap, statistics: Statistics
) -> Generator[int, None, None]:
    """Put the keys of the dirty part into ``offsets`` until the map is full; yield the bytes read.

    Afterwards ``offsets`` has the keys of the dirty part up to ``offsets.latest_offset``.

    Raises:
        CorruptRecord: a batch is damaged, or the keys of one batch do not fit the map.
        OSError: the disk failed; FileNotFoundError: a segment was deleted.
    """
    dirty = view.dirty
    # Leave out aborted transactions that ended before the dirty part. Their markers are not read,
    # so with these transactions, later transactions of their producers would count as aborted.
    transactions = CleanedTransactions(
        found for found in view.aborted if dirty and found.last_offset >= dirty[0].base_offset
    )
    offsets.latest_offset = view.first_dirty_offset - 1
    for segment in dirty:
        full = yield from _index(files, segment, view, offsets, transactions, statistics)
        if full:
            break
        offsets.latest_offset = max(offsets.latest_offset, segment.next_offset - 1)
    if offsets.latest_offset < view.first_dirty_offset:
        raise CorruptRecord(
            f"the keys of one batch of {view.name} do not fit into the offset map of the "
            "cleaner: increase log.cleaner.dedupe.buffer.size"
        )


def _index(
    files: Files,
    segment: SegmentView,
    view: LogView,
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    statistics: Statistics,
) -> Generator[int, None, bool]:
    """Index one segment; return whether the map is full."""
    start = view.first_dirty_offset
    pieces = chunks(files, segment, view.buffer_bytes)
    piece = next(pieces, None)
    try:
        while piece is not None:
            at, state = 0, WALK_OTHER
            while state == WALK_OTHER:
                at, state, records = offsets.index(piece, at, start)
                statistics.indexed_records += records
                if state == WALK_OTHER:
                    header, batch = checked(piece, at, segment.path)
                    statistics.indexed_records += max(header.count, 0)
                    if not _index_other(header, batch, offsets, start, transactions):
                        state = WALK_FULL
                    else:
                        at += header.size
            if state == WALK_CORRUPT:
                raise CorruptRecord(f"malformed batch in {segment.path}")
            statistics.bytes_read += at
            if state == WALK_FULL:
                return True
            yield at
            piece = following(pieces, at)
    finally:
        pieces.close()
    return False


def _index_other(
    header: BatchHeader,
    batch: memoryview,
    offsets: OffsetMap,
    start: int,
    transactions: CleanedTransactions,
) -> bool:
    """Index a batch that `OffsetMap.index` does not handle; return False if the map is full."""
    if header.magic < 2:
        for message in decode_message_set(batch, check_crcs=False):
            if (
                message.key is not None
                and message.offset >= start
                and not offsets.put(message.key, message.offset)
            ):
                return False
    elif header.is_control:
        transactions.is_needless(header, control_type(batch, header))
    elif not transactions.is_aborted(header):
        _, state, _ = offsets.index(uncompressed(batch, header), 0, start, WALK_ONE | WALK_TRUSTED)
        if state == WALK_CORRUPT:
            raise CorruptRecord(f"malformed batch at offset {header.base_offset}")
        if state == WALK_FULL:
            return False
    offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
    return True
