"""Acks: which records were handed over and not acknowledged yet, for ``ack_mode="explicit"``.

Owns the low watermark of each partition: offsets are committed up to the first record that is
still being worked on, whatever the order in which records are done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from aiokq.consumer.batch import RecordBatch, covers, open_from
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.fastpath import Record

__all__ = ["Acks"]


logger = logging.getLogger("aiokq.consumer")


class _OpenBatch(NamedTuple):
    """A batch in work."""

    open_from: int
    batch: RecordBatch[Record]


class Acks:
    """The records in work, by partition and offset.

    Args:
        changed: called when something was acknowledged.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        # In the order in which they were handed over: the first one is the low watermark. A record
        # by its offset, a batch by its base offset, with the offset from which it is open.
        self._open: dict[TopicPartition, dict[int, _OpenBatch | None]] = {}
        self._warned = False

    def handed(self, record: Record) -> None:
        """The record was given to user code, or what its deserializer raised was."""
        self._hand(TopicPartition(record.topic, record.partition), record.offset, None)

    def handed_batch(self, batch: RecordBatch[Record]) -> None:
        """The batch was; it is acknowledged as a whole."""
        base = batch.base_offset
        self._hand(TopicPartition(batch.topic, batch.partition), base, _OpenBatch(base, batch))

    def _hand(self, tp: TopicPartition, offset: int, batch: _OpenBatch | None) -> None:
        offsets = self._open.setdefault(tp, {})
        if offsets and offset <= next(reversed(offsets)):
            offsets.clear()  # reading went back: what was open comes again
        offsets[offset] = batch

    def done(self, item: Record | RecordBatch[Record]) -> None:
        """User code is done with it. Harmless twice, and for a partition that is gone.

        A batch that was handed over up to an error is done up to there.

        Raises:
            TypeError: it is neither a record nor a batch.
        """
        left: int | None = None
        try:
            if is_batch := isinstance(item, RecordBatch):
                offset, left = item.base_offset, open_from(item)
                if item.next_offset == offset and left is None:
                    return  # its records were all taken back: they come in other batches
            else:
                offset = item.offset
        except AttributeError as error:
            raise TypeError(f"ack() takes a record or a batch, not {item!r}") from error
        offsets = self._open.get(TopicPartition(item.topic, item.partition))
        if offsets is None:
            return
        if offset not in offsets or is_batch is (offsets[offset] is None):
            # The first record of a batch is not the batch.
            if not isinstance(item, RecordBatch):
                self._warn_of_batch(item, offsets)
            return
        if left is None:
            del offsets[offset]
        else:
            batch = offsets[offset]
            assert batch is not None
            offsets[offset] = batch._replace(open_from=left)
        self._changed()

    def _warn_of_batch(self, record: Record, offsets: dict[int, _OpenBatch | None]) -> None:
        """Say once that a record of a batch in work was given, which has no effect."""
        if self._warned:
            return
        if any(open and covers(open.batch, record.offset) for open in offsets.values()):
            self._warned = True
            logger.warning(
                "ack(record) has no effect on the records of a batch, ack(batch) has: "
                "partition=%s-%d offset=%d",
                record.topic,
                record.partition,
                record.offset,
            )

    def taken_back(self, tp: TopicPartition, base: int, position: int) -> None:
        """The rest of the batch in work is handed over anew, from this position on.

        What was acknowledged of the batch, or if it was nothing, that is all of it.
        """
        offsets = self._open.get(tp)
        if offsets is None or base not in offsets:
            return
        batch = offsets[base]
        if position == base or (batch is not None and batch.open_from == position):
            del offsets[base]
            self._changed()

    def forget(self, tp: TopicPartition) -> None:
        """The position jumped, or the partition went: what was handed over does not count."""
        if self._open.pop(tp, None):
            self._changed()

    def first_open(self, tp: TopicPartition) -> int | None:
        """Offset of the first record that is not acknowledged; None if all are."""
        offsets = self._open.get(tp)
        if not offsets:
            return None
        offset = next(iter(offsets))
        batch = offsets[offset]
        return offset if batch is None else batch.open_from
