"""BatchProgress: how far the reader of one batch got, which says what of the batch counts as read.

A batch counts as a whole, unless reading it raised. Nothing here is told per record: positions are
read from the cursors of the iterations, when somebody asks.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from aiokq.consumer.buffers import Frame
    from aiokq.core.errors import KafkaError
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.consume import Cursor, Record

__all__ = ["BatchProgress", "UnreadRest", "TakenChunk", "Unreadable"]


_MANY: Final = 16
"""Iterations of one batch, from which on those that are over are looked for."""
_UNUSED: Final = max([getrefcount(alone) for alone in [object()]])
"""What a comprehension counts for an object to which only its list refers."""


class Unreadable(NamedTuple):
    """What cannot be decoded."""

    offset: int
    """Where it begins."""
    error: KafkaError


class UnreadRest(NamedTuple):
    """What of a batch was not handed over."""

    position: int
    """Where it begins."""
    pieces: list[tuple[int, int]]
    """Offsets from, to: what lies between was handed over as an error."""
    unreadable: Unreadable | None
    """What follows the last piece, if it cannot be decoded."""


class BatchProgress:
    """One batch in a reader's hands.

    Context: a batch may be read in a thread while the consumer's loop asks: each change is one
    assignment or append.

    Args:
        base: the position before the batch.
        end: the position behind it.
        begin: a cursor that stands before it, and that nobody moves; if there is one.

    Attributes:
        cut: where the batch ends since its rest was taken back; None before.
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
        # Any may be the one that got furthest, or meets what cannot be decoded.
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
        """Whether the batch has this offset, and its record was not raised as an error."""
        return self._base <= offset < self._end and offset not in self._raised

    # -- how far it is

    @property
    def position(self) -> int:
        """Behind what counts as handed over: all, or what came until an error, and that record."""
        if self.cut is not None:
            return self.cut
        if self._all:
            return self._end
        unreadable = self.unreadable
        if unreadable is not None:
            return min(self._reached(), unreadable.offset)
        # An iteration that has gone on since has the whole batch in hand again.
        stopped = self._stopped
        return self._end if stopped is None or self._reached() > stopped else stopped

    @property
    def unreadable(self) -> Unreadable | None:
        """What was met and cannot be decoded."""
        if self._unreadable is None:
            for cursor in self._iterations:
                if cursor.raised is not None:
                    return Unreadable(cursor.position, cursor.raised)
        return self._unreadable

    @property
    def whole(self) -> bool:
        """Whether nothing of the batch is left to be handed over by it."""
        return self.position >= (self._end if self.cut is None else self.cut)

    @property
    def stop(self) -> int | None:
        """Where the batch ends before its bytes do; None if it does not."""
        if self.cut is not None:
            return self.cut
        unreadable = self.unreadable
        return None if unreadable is None else unreadable.offset

    def _reached(self) -> int:
        return max((cursor.position for cursor in self._iterations), default=self._base)

    def at(self, position: int) -> Cursor | None:
        """A cursor that stands there, with what it has decompressed: to be forked, not moved."""
        for cursor in (self._behind_error, self._begin):
            if cursor is not None and cursor.position == position:
                return cursor
        return None

    # -- what its reader does

    def start(self) -> int:
        """Where an iteration that begins now starts: behind the errors that were raised since the
        one before began."""
        start, self._resume = self._resume, self._base
        newest, self._newest = self._newest, None
        if newest is not None and newest.raised is not None:
            start = max(start, newest.position)
        return start

    def iteration_started(self, iteration: Cursor) -> None:
        """An iteration begins."""
        if any(cursor.exhausted for cursor in self._iterations) and self.stop is None:
            self._all = True  # nothing that is raised from now on takes that back
            self._iterations = []
        elif len(self._iterations) >= _MANY:
            self._iterations = self._relevant_iterations()
        self._iterations.append(iteration)
        self._newest = iteration

    def _relevant_iterations(self) -> list[Cursor]:
        """The iteration that got furthest, those that raised, and those that may still go on."""
        kept = max(self._iterations, key=lambda cursor: cursor.position)
        return [
            cursor
            for cursor in self._iterations
            if cursor is kept or cursor.raised is not None or getrefcount(cursor) > _UNUSED
        ]

    def record_raised(self, iteration: Cursor, record: Record) -> None:
        """The iteration raises instead of handing over this record."""
        self._raised.append(record.offset)
        self._behind_error = iteration.fork()
        self._resume = max(self._resume, iteration.position)
        if iteration.position >= self._reached():
            self._stopped = iteration.position

    def whole_read_raised(self, cursor: Cursor, record: Record) -> None:
        """The batch was asked for as a whole and raises, about this record: none is handed over."""
        self._raised.append(record.offset)
        self._behind_error = cursor.fork()
        self._stopped = self._reached()

    def met_unreadable(self, cursor: Cursor) -> None:
        """The batch was asked for as a whole and raises: the cursor cannot decode what is next."""
        assert cursor.raised is not None
        self._unreadable = Unreadable(cursor.position, cursor.raised)

    def read_completely(self, cursor: Cursor) -> None:
        """The cursor gave all there is."""
        if self.stop is None:
            self._all = True
        else:
            self._iterations.append(cursor)  # all of what can be decoded

    # -- what becomes of it

    def close(self) -> UnreadRest | None:
        """It is not in the reader's hands any more: what was not handed over is to be taken back,
        and the batch ends before it. None if nothing was left."""
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
    """What was handed over as a whole.

    Attributes:
        stop: where it ends before its bytes do; None if it does not.
        records: how many; None if they were not counted.
        checked: its checksums were verified.
        progress: how far its reader gets.
        frame: the memory in which it lies.
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
