"""Acknowledgements: tracks delivered records until they are acknowledged.

Used with ``ack_mode="explicit"``. The offset of a partition's first unacknowledged record
limits the offset that may be committed, in whatever order records are acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.cluster.metadata import ZERO_ID
from aiokq.consumer.batch import RecordBatch, covers, open_from
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.fastpath.consume import Record

__all__ = ["Acknowledgements"]

logger = logging.getLogger("aiokq.consumer")


class _OpenBatch(NamedTuple):
    """A batch that is not acknowledged completely, and its first unacknowledged offset."""

    batch: RecordBatch[Record]
    open_from: int


class _Work(NamedTuple):
    """The unacknowledged records and batches of one partition, in the order of their delivery."""

    topic_id: UUID
    items: dict[int, int | _OpenBatch]
    """Maps the offset of a record to its timestamp, or the base offset of a batch to the batch."""


class Acknowledgements:
    """The unacknowledged records, by partition and offset.

    Args:
        changed: called after records were acknowledged or are not tracked any more.
        topic_id: returns the id of the topic to which a partition's records belong; zeros if
            unknown.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        topic_id: Callable[[TopicPartition], UUID] = lambda tp: ZERO_ID,
    ) -> None:
        self._changed = changed
        self._topic_id = topic_id
        self._open: dict[TopicPartition, _Work] = {}
        # Items that were unacknowledged when their partition was last forgotten (revoked or lost,
        # or its position changed). They are kept in case the topic is deleted and recreated under
        # the same name: an acknowledgement of an old record must not acknowledge the new topic's
        # record at the same offset.
        self._former: dict[TopicPartition, _Work] = {}
        self._warned = False

    def handed(self, record: Record) -> None:
        """Register a delivered record, or a record whose deserializer raised an error."""
        tp = TopicPartition(record.topic, record.partition)
        self._hand(tp, record.offset, record.timestamp_ms)

    def handed_batch(self, batch: RecordBatch[Record]) -> None:
        """Register a delivered batch; its records are acknowledged together."""
        base = batch.base_offset
        self._hand(TopicPartition(batch.topic, batch.partition), base, _OpenBatch(batch, base))

    def _hand(self, tp: TopicPartition, offset: int, item: int | _OpenBatch) -> None:
        work = self._open.get(tp)
        if work is None:
            work = self._open[tp] = _Work(self._topic_id(tp), {})
            former = self._former.get(tp)
            if former is not None and former.topic_id == work.topic_id:
                del self._former[tp]  # the unacknowledged records are delivered again
        items = work.items
        if items and offset <= next(reversed(items)):
            items.clear()  # the position moved back: these records are delivered again
        items[offset] = item

    def done(self, item: Record | RecordBatch[Record]) -> None:
        """Acknowledge a record or a batch; see `Consumer.ack`."""
        left: int | None = None
        try:
            if is_batch := isinstance(item, RecordBatch):
                offset, left = item.base_offset, open_from(item)
                if item.next_offset == offset and left is None:
                    return  # no record was read: all records are delivered again, in other batches
            else:
                offset = item.offset
        except AttributeError as error:
            raise TypeError(f"ack() needs a record or a batch, not {item!r}") from error
        tp = TopicPartition(item.topic, item.partition)
        if self._former and self._was_former(tp, offset, item, left):
            return
        work = self._open.get(tp)
        if work is None:
            return
        open_ = work.items.get(offset)
        if open_ is None or is_batch is not isinstance(open_, _OpenBatch):
            # A record with the base offset of a batch does not acknowledge the batch.
            if not isinstance(item, RecordBatch):
                self._warn_of_batch(item, work)
            return
        if left is None:
            del work.items[offset]
        elif isinstance(open_, _OpenBatch):
            work.items[offset] = open_._replace(open_from=left)
        self._changed()

    def _warn_of_batch(self, record: Record, work: _Work) -> None:
        """Log, once, that acknowledging a single record of a batch has no effect."""
        if self._warned:
            return
        if any(
            isinstance(open_, _OpenBatch) and covers(open_.batch, record.offset)
            for open_ in work.items.values()
        ):
            self._warned = True
            logger.warning(
                "ack(record) has no effect on a record of a batch; call ack(batch): "
                "partition=%s-%d offset=%d",
                record.topic,
                record.partition,
                record.offset,
            )

    def _was_former(
        self,
        tp: TopicPartition,
        offset: int,
        item: Record | RecordBatch[Record],
        left: int | None,
    ) -> bool:
        """Acknowledge `item` if it belongs to `_former`; return whether it does.

        Deserialized records are new objects, so a record is identified by its timestamp. If the
        records of the old and the new topic at this offset have the same timestamp, the first
        acknowledgement counts for the record of the old topic.
        """
        former = self._former.get(tp)
        open_ = None if former is None else former.items.get(offset)
        if former is None or open_ is None:
            return False
        if isinstance(open_, _OpenBatch):
            if open_.batch is not item:
                return False
        elif isinstance(item, RecordBatch) or item.timestamp_ms != open_:
            return False
        if left is None:  # if not None, the remaining records may be acknowledged later
            del former.items[offset]
        if not former.items:
            del self._former[tp]
        return True

    def taken_back(self, tp: TopicPartition, base: int, position: int) -> None:
        """Handle a batch whose remaining records are delivered again, from `position` on.

        If the part before `position` was acknowledged, or is empty, the batch is removed, because
        it has no more records to acknowledge.
        """
        work = self._open.get(tp)
        open_ = None if work is None else work.items.get(base)
        if work is None or open_ is None:
            return
        reached = isinstance(open_, _OpenBatch) and open_.open_from == position
        if reached or position == base:
            del work.items[base]
            self._changed()

    def forget(self, tp: TopicPartition) -> None:
        """Stop tracking the unacknowledged items of a partition.

        The items are kept in `_former`, to recognize late acknowledgements.
        """
        work = self._open.pop(tp, None)
        if work is not None and work.items:
            self._former[tp] = work
            self._changed()

    def first_open(self, tp: TopicPartition) -> int | None:
        """Return the offset of the first unacknowledged record; None if there is none."""
        work = self._open.get(tp)
        if work is None or not work.items:
            return None
        offset, open_ = next(iter(work.items.items()))
        return open_.open_from if isinstance(open_, _OpenBatch) else offset
