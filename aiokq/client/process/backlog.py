"""Backlog: keeps the records that are read but not yet handled, and selects those to handle next.

The records of a partition are handled in offset order, without gaps. One offset per partition is
therefore enough to commit them. A `Suspect` describes a record that failed and must be
handled alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aiokq.consumer.batch import RecordBatch
    from aiokq.fastpath.consume import Record

__all__ = ["Backlog", "Item", "ItemQueue", "Suspect", "first_offset", "place", "record_count"]

Item: TypeAlias = "Record | RecordBatch[Record]"
"""The argument of a handler: a record, or a batch with ``batch=True``."""


class Suspect:
    """An item whose handler raised an error, or whose results were refused.

    Attributes:
        error: the latest error of the handler, or of the results.
        attempts: the number of handler calls that raised an error.
        refused: whether the results cannot be written, so that another call of the handler would
            not help.
        ready_at: the loop's time at which the item is handled again.
    """

    __slots__ = ("attempts", "error", "ready_at", "refused")

    def __init__(self, error: Exception, *, attempts: int, refused: bool, ready_at: float) -> None:
        self.error = error
        self.attempts = attempts
        self.refused = refused
        self.ready_at = ready_at


class ItemQueue:
    """The items of one partition, in offset order.

    The queue is a list and an index. Items that were handled in one call are removed together by
    increasing the index.

    Attributes:
        items: some items that were removed already, then the items of the queue.
        at: the index of the queue's first item.
    """

    __slots__ = ("at", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.at = 0

    def __len__(self) -> int:
        return len(self.items) - self.at

    @property
    def first(self) -> Item:
        """The first item; the queue must not be empty."""
        return self.items[self.at]

    def extend(self, items: Iterable[Item]) -> None:
        """Add items at the end."""
        del self.items[: self.at]
        self.at = 0
        self.items += items

    def put_back(self, item: Item) -> None:
        """Add an item in front."""
        if self.at:
            self.at -= 1
            self.items[self.at] = item
        else:
            self.items.insert(0, item)


class Backlog:
    """The items of each partition, in offset order.

    Attributes:
        queues: the items by partition; no queue is empty.
        suspects: the failed items, by partition and first offset. An entry stays if its item is
            read again. It is removed when the item is handled, or when the partition is revoked or
            lost.
        taken: the offset of the first item that was taken from each partition since the last
            commit was begun.
    """

    def __init__(self) -> None:
        self.queues: dict[TopicPartition, ItemQueue] = {}
        self.suspects: dict[TopicPartition, dict[int, Suspect]] = {}
        self.taken: dict[TopicPartition, int] = {}

    def extend(self, tp: TopicPartition, items: Iterable[Item]) -> None:
        """Add the next items of a partition."""
        queue = self.queues.get(tp)
        if queue is None:
            queue = self.queues[tp] = ItemQueue()
        queue.extend(items)

    def heads(self) -> dict[TopicPartition, int]:
        """Return the offset of the first item of each partition."""
        return {tp: first_offset(queue.first) for tp, queue in self.queues.items()}

    def rewind(self) -> dict[TopicPartition, int]:
        """Return `taken` and clear it; drop all items of the partitions in `taken`.

        The caller reads the records of these partitions again, from the returned offsets.
        """
        taken, self.taken = self.taken, {}
        for tp in taken:
            self.queues.pop(tp, None)
        return taken

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that were revoked or lost."""
        for tp in partitions:
            self.queues.pop(tp, None)
            self.suspects.pop(tp, None)
            self.taken.pop(tp, None)

    def suspect(self, item: Item, suspect: Suspect) -> None:
        """Store the suspect of an item that failed."""
        tp = TopicPartition(item.topic, item.partition)
        self.suspects.setdefault(tp, {})[first_offset(item)] = suspect

    def suspect_at_head(self, tp: TopicPartition) -> Suspect | None:
        """Return the suspect of a partition's first item; None if that item has not failed."""
        known = self.suspects.get(tp)
        return None if known is None else self.suspect_of(self.queues[tp].first)

    def suspect_of(self, item: Item) -> Suspect | None:
        """Return the suspect of a record, or a suspect in a batch; None if there is none."""
        known = self.suspects.get(TopicPartition(item.topic, item.partition))
        if known is None:
            return None
        first = first_offset(item)
        if first in known:
            return known[first]
        after = getattr(item, "next_offset", first)
        # When records are read again, their batches may begin and end at other offsets.
        return next((known[offset] for offset in known if first <= offset < after), None)

    def cleared(self, item: Item) -> None:
        """Remove the suspects of an item that was handled."""
        tp = TopicPartition(item.topic, item.partition)
        known = self.suspects.get(tp)
        if known is None:
            return
        first = first_offset(item)
        after = getattr(item, "next_offset", first + 1)
        for offset in [offset for offset in known if first <= offset < after]:
            del known[offset]
        if not known:
            del self.suspects[tp]

    def blocked(self) -> dict[TopicPartition, Suspect]:
        """Return the partitions whose first item must be handled alone, with the item's suspect."""
        if not self.suspects:
            return {}
        found = ((tp, self.suspect_at_head(tp)) for tp in self.queues if tp in self.suspects)
        return {tp: suspect for tp, suspect in found if suspect is not None}

    def open_partitions(self) -> list[TopicPartition]:
        """Return the partitions whose first item need not be handled alone."""
        if not self.suspects:
            return list(self.queues)
        blocked = self.blocked()
        return [tp for tp in self.queues if tp not in blocked]

    def take(self, tp: TopicPartition) -> Item | None:
        """Remove and return the first item of a partition; None if `next_items` returns None."""
        queue = self.next_items(tp)
        if queue is None:
            return None
        item = queue.first
        self.remove(tp, queue, 1)
        return item

    def next_items(self, tp: TopicPartition) -> ItemQueue | None:
        """Return the queue of a partition, to handle items from its start.

        If `taken` has no offset of the partition, the offset of the first item is recorded there.
        The method returns None if the partition has no items, or if its first item must be handled
        alone.
        """
        queue = self.queues.get(tp)
        if queue is None or (self.suspects and self.suspect_at_head(tp) is not None):
            return None
        if tp not in self.taken:
            self.taken[tp] = first_offset(queue.first)
        return queue

    def remove(self, tp: TopicPartition, queue: ItemQueue, count: int) -> None:
        """Remove the first `count` items of a partition."""
        queue.at += count
        if not queue:
            del self.queues[tp]

    def take_alone(self, tp: TopicPartition) -> Item:
        """Remove and return the first item of a partition, to handle it alone."""
        queue = self.queues[tp]
        item = queue.first
        self.taken.setdefault(tp, first_offset(item))
        self.remove(tp, queue, 1)
        return item

    def rotate(self, tp: TopicPartition) -> None:
        """Move a partition to the end of `queues`, so that other partitions are handled first."""
        queue = self.queues.pop(tp, None)
        if queue is not None:
            self.queues[tp] = queue

    def put_back(self, item: Item) -> None:
        """Put an item back in front of its partition."""
        tp = TopicPartition(item.topic, item.partition)
        queue = self.queues.get(tp)
        if queue is None:
            queue = self.queues[tp] = ItemQueue()
        queue.put_back(item)

    def clear(self) -> None:
        """Remove all items, suspects and taken offsets."""
        self.queues.clear()
        self.suspects.clear()
        self.taken.clear()

    def count(self) -> int:
        """Return the number of items."""
        return sum(map(len, self.queues.values()))


def first_offset(item: Item) -> int:
    """Return the offset of a record, or the base offset of a batch."""
    offset: int | None = getattr(item, "offset", None)
    return cast("RecordBatch[Record]", item).base_offset if offset is None else offset


def record_count(item: Item) -> int:
    """Return the number of records of an item."""
    return len(cast("RecordBatch[Record]", item)) if hasattr(item, "base_offset") else 1


def place(item: Item) -> str:
    """Return partition and first offset of an item as text, for logs and errors."""
    return f"{item.topic}-{item.partition}@{first_offset(item)}"


def records_of(item: Item) -> Iterator[Record]:
    """Yield the records of an item."""
    if hasattr(item, "base_offset"):
        yield from cast("RecordBatch[Record]", item)
    else:
        yield item
