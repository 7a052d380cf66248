"""Acks: which records were handed over and not acknowledged yet, for ``ack_mode="explicit"``.

Owns the low watermark of each partition: offsets are committed up to the first record that is
still being worked on, whatever the order in which records are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.consumer.batch import RecordBatch, open_from
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.fastpath import Record

__all__ = ["Acks"]


class Acks:
    """The records in work, by partition and offset.

    Args:
        changed: called when something was acknowledged.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        # In the order in which they were handed over: the first one is the low watermark. A record
        # by its offset, a batch by its base offset, with the offset from which it is open.
        self._open: dict[TopicPartition, dict[int, int | None]] = {}

    def handed(self, record: Record) -> None:
        """The record was given to user code, or what its deserializer raised was."""
        self._hand(TopicPartition(record.topic, record.partition), record.offset, None)

    def handed_batch(self, batch: RecordBatch[Record]) -> None:
        """The batch was; it is acknowledged as a whole."""
        base = batch.base_offset
        self._hand(TopicPartition(batch.topic, batch.partition), base, base)

    def _hand(self, tp: TopicPartition, offset: int, open_from: int | None) -> None:
        offsets = self._open.setdefault(tp, {})
        if offsets and offset <= next(reversed(offsets)):
            offsets.clear()  # reading went back: what was open comes again
        offsets[offset] = open_from

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
        if offsets is None or offset not in offsets or is_batch is (offsets[offset] is None):
            return  # the first record of a batch is not the batch
        if left is None:
            del offsets[offset]
        else:
            offsets[offset] = left
        self._changed()

    def taken_back(self, tp: TopicPartition, base: int, position: int) -> None:
        """The rest of the batch in work is handed over anew, from this position on.

        What was acknowledged of the batch, or if it was nothing, that is all of it.
        """
        offsets = self._open.get(tp)
        if offsets is not None and (offsets.get(base) == position or position == base in offsets):
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
        left = offsets[offset]
        return offset if left is None else left
