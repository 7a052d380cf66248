"""Acks: which records were handed over and not acknowledged yet, for ``ack_mode="explicit"``.

Owns the low watermark of each partition: offsets are committed up to the first record that is
still being worked on, whatever the order in which records are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.consumer.batch import RecordBatch
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
        # In the order in which they were handed over: the first one is the low watermark.
        self._open: dict[TopicPartition, dict[int, None]] = {}

    def handed(self, record: Record) -> None:
        """The record was given to user code."""
        self._hand(TopicPartition(record.topic, record.partition), record.offset)

    def handed_batch(self, batch: RecordBatch[Record]) -> None:
        """The batch was; it is acknowledged as a whole."""
        self._hand(TopicPartition(batch.topic, batch.partition), batch.base_offset)

    def _hand(self, tp: TopicPartition, offset: int) -> None:
        offsets = self._open.setdefault(tp, {})
        if offsets and offset <= next(reversed(offsets)):
            offsets.clear()  # reading went back: what was open comes again
        offsets[offset] = None

    def done(self, item: Record | RecordBatch[Record]) -> None:
        """User code is done with it. Harmless twice, and for a partition that is gone.

        Raises:
            TypeError: it is neither a record nor a batch.
        """
        try:
            offset = item.base_offset if isinstance(item, RecordBatch) else item.offset
        except AttributeError as error:
            raise TypeError(f"ack() takes a record or a batch, not {item!r}") from error
        offsets = self._open.get(TopicPartition(item.topic, item.partition))
        if offsets is not None and offset in offsets:
            del offsets[offset]
            self._changed()

    def forget(self, tp: TopicPartition) -> None:
        """The position jumped, or the partition went: what was handed over does not count."""
        if self._open.pop(tp, None):
            self._changed()

    def first_open(self, tp: TopicPartition) -> int | None:
        """Offset of the first record that is not acknowledged; None if all are."""
        offsets = self._open.get(tp)
        return next(iter(offsets)) if offsets else None
