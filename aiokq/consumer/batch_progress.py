"""BatchProgress: tracks how far a batch was read, and thus which records count as delivered.

All records of a batch count as delivered, unless reading the batch raised an error. No state is
kept per delivered record: positions are read from the cursors of the iterations on demand.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Final

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.consumer.buffers import Frame
    from aiokq.core.errors import KafkaError
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.consume import Cursor, Record

__all__ = ["BatchProgress", "UnreadRest", "TakenChunk", "Unreadable"]


_MANY: Final = 16
"""The number of stored iterations of a batch at which unused iterations are removed."""
_UNUSED: Final = max([getrefcount(alone) for alone in [object()]])
"""What `getrefcount` returns in a comprehension for an object to which only one list refers."""


class Unreadable(NamedTuple):
    """A part of a batch that cannot be decoded."""

    offset: int
    """The first offset of the part."""
    error: KafkaError


class UnreadRest(NamedTuple):
    """The part of a batch that was not delivered."""

    position: int
    """The first offset of the part."""
    pieces: list[tuple[int, int]]
    """First and end offset of each piece; records that raised errors are in no piece."""
    unreadable: Unreadable | None
    """The undecodable part after the last piece; None if no reader has reached one."""


class BatchProgress:
    """The progress of the reader of one batch.

    A batch may be read in another thread while the consumer's event loop reads the position. Each
    attribute is therefore changed by one assignment or one append.

    Args:
        base: the offset at which the batch begins.
        end: the offset after the batch.
        begin: a cursor at `base` that is only forked and never moved; None if there is none.

    Attributes:
        cut: the end of the batch if `close` has removed an unread part; else None.
    """

    __slots__ = (
        "_all",
        "_base",
        "_begin",
        "_behind_error",
        "_end",
        "_iterations",
        "_newest",
        "_raised",
        "_resume",
        "_stopped",
        "_unreadable",
        "cut",
    )

    def __init__(self, base: int, end: int, begin: Cursor | None = None) -> None:
        self._base = base
        self._end = end
        self._all = False
        # The cursors of iterations over the batch. Several are kept, because each may be the
        # furthest, or the one that reached undecodable data.
        self._iterations: list[Cursor] = []
        self._begin = begin
        self._behind_error: Cursor | None = None
        self._newest: Cursor | None = None
        self._resume = base
        self._stopped: int | None = None
        self._raised: list[int] = []
        self._unreadable: Unreadable | None = None
        self.cut: int | None = None

    def covers(self, offset: int) -> bool:
        """Whether the batch contains `offset`, and no error was raised for the record there."""
        return self._base <= offset < self._end and offset not in self._raised

    @property
    def position(self) -> int:
        """The position after the records that count as delivered.

        A record for which an iteration raised an error counts as delivered.
        """
        if self.cut is not None:
            return self.cut
        if self._all:
            return self._end
        unreadable = self.unreadable
        if unreadable is not None:
            return min(self._reached(), unreadable.offset)
        # Without an error, the whole batch counts as delivered. After an error, the batch counts as
        # delivered only once an iteration has gone beyond the error, because that iteration will
        # deliver the remaining records.
        stopped = self._stopped
        return self._end if stopped is None or self._reached() > stopped else stopped

    @property
    def unreadable(self) -> Unreadable | None:
        """The undecodable part; None if no reader of the batch has reached one."""
        if self._unreadable is None:
            for cursor in self._iterations:
                if cursor.raised is not None:
                    return Unreadable(cursor.position, cursor.raised)
        return self._unreadable

    @property
    def whole(self) -> bool:
        """Whether the batch has no more records to deliver."""
        return self.position >= (self._end if self.cut is None else self.cut)

    @property
    def stop(self) -> int | None:
        """The offset at which cursors over the batch must stop; None for the end of the data."""
        if self.cut is not None:
            return self.cut
        unreadable = self.unreadable
        return None if unreadable is None else unreadable.offset

    def _reached(self) -> int:
        return max((cursor.position for cursor in self._iterations), default=self._base)

    def at(self, position: int) -> Cursor | None:
        """Return a cursor at `position`, or None. The caller may fork it, but must not move it."""
        for cursor in (self._behind_error, self._begin):
            if cursor is not None and cursor.position == position:
                return cursor
        return None

    def start(self) -> int:
        """Return the first offset of a new iteration.

        The offset is the position after the last error since the previous call, or the base offset
        if there was no error.
        """
        start, self._resume = self._resume, self._base
        newest, self._newest = self._newest, None
        if newest is not None and newest.raised is not None:
            start = max(start, newest.position)
        return start

    def iteration_started(self, iteration: Cursor) -> None:
        """Register the cursor of a new iteration."""
        if any(cursor.exhausted for cursor in self._iterations) and self.stop is None:
            self._all = True  # final, even if a later iteration raises an error
            self._iterations = []
        elif len(self._iterations) >= _MANY:
            self._iterations = self._relevant_iterations()
        self._iterations.append(iteration)
        self._newest = iteration

    def _relevant_iterations(self) -> list[Cursor]:
        """Return the furthest iteration, and those that raised an error or are still referenced.

        An iteration can advance only while its reader refers to the cursor, and then the reference
        count is above `_UNUSED`. An unrelated reference only keeps the cursor in the list longer.
        """
        kept = max(self._iterations, key=lambda cursor: cursor.position)
        return [
            cursor
            for cursor in self._iterations
            if cursor is kept or cursor.raised is not None or getrefcount(cursor) > _UNUSED
        ]

    def record_raised(self, iteration: Cursor, record: Record) -> None:
        """Handle an error that an iteration raised instead of delivering `record`."""
        self._raised.append(record.offset)
        self._behind_error = iteration.fork()
        self._resume = max(self._resume, iteration.position)
        if iteration.position >= self._reached():
            self._stopped = iteration.position

    def whole_read_raised(self, cursor: Cursor, record: Record) -> None:
        """Handle an error that `RecordBatch.records` raised for `record`."""
        self._raised.append(record.offset)
        self._behind_error = cursor.fork()
        self._stopped = self._reached()

    def met_unreadable(self, cursor: Cursor) -> None:
        """Handle a read of the whole batch that stopped at data which `cursor` cannot decode."""
        assert cursor.raised is not None
        self._unreadable = Unreadable(cursor.position, cursor.raised)

    def read_completely(self, cursor: Cursor) -> None:
        """Count all records of `cursor` as delivered."""
        if self.stop is None:
            self._all = True
        else:
            # `cursor` has delivered all records before `stop`, so its position counts.
            self._iterations.append(cursor)

    def close(self) -> UnreadRest | None:
        """End the batch at its position, and return the part that was not delivered, if any."""
        position, unreadable = self.position, self.unreadable
        if position >= self._end:
            return None
        end = self._end if unreadable is None else unreadable.offset
        pieces = []
        at = position
        for offset in sorted(set(self._raised)):
            if offset >= at:
                pieces.append((at, offset))
                at = offset + 1
        pieces.append((at, end))
        self.cut = position
        return UnreadRest(position, [piece for piece in pieces if piece[0] < piece[1]], unreadable)


class TakenChunk(NamedTuple):
    """A chunk that was delivered as one batch.

    Attributes:
        stop: the offset at which cursors must stop; None to read to the end of the data.
        records: the number of records; None if not counted.
        checked: whether the checksums were verified.
        progress: the progress of the batch's reader.
        frame: the memory that contains the chunk.
    """

    tp: TopicPartition
    data: memoryview
    position: int
    next_offset: int
    stop: int | None
    aborted: list[tuple[int, int]] | None
    records: int | None
    checked: bool
    progress: BatchProgress
    frame: Frame
