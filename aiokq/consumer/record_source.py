"""RecordSource: where records leave, one reader at a time; it owns who of its partitions is next.

It is the source of a native RecordStream: Python runs once per chunk, none per record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiokq.consumer.batch_progress import BatchProgress, TakenChunk
from aiokq.consumer.chunk_queue import ChunkQueue
from aiokq.consumer.partition_rotation import PartitionRotation
from aiokq.consumer.pending_errors import PendingErrors
from aiokq.consumer.reader_waiters import ReaderWaiters
from aiokq.consumer.record_taker import RecordTaker
from aiokq.consumer.single_reader import TWO_READERS, SingleReaderGuard
from aiokq.consumer.unfinished_records import UnfinishedRecords
from aiokq.core.errors import Closed, KafkaError, copy_error
from aiokq.fastpath import LoopGuard
from aiokq.fastpath.consume import Cursor, Record, RecordStream

if TYPE_CHECKING:
    from aiokq.consumer.buffers import Buffers, Chunk
    from aiokq.consumer.pending_errors import Subject
    from aiokq.consumer.positions import PartitionState
    from aiokq.core.types import TopicPartition

__all__ = ["RecordSource"]

logger = logging.getLogger("aiokq.consumer")

TURN_BYTES: Final = 256 * 1024
"""After so much from the buffers the loop gets a turn: a reader that never awaits anything else
would starve the fetching behind it, and every other task."""


class RecordSource:
    """Hands over what its partitions have buffered, chunk by chunk in turn.

    Args:
        buffers: the consumer's.
        consumed: called when a partition has less waiting than before, or the source none at all.
        counted: called with the number of records that were handed over since.
        finished_some: called when records that were taken out of a reader's hand, or handed over
            together, are finished.
        taken_back: called with the base offset of a batch that was not handed over as a whole, and
            the position from which on it comes anew.

    Attributes:
        closed_error: gives what is raised after the end.
        stream: what `async for` iterates.
        reader_guard: who loops over it.
    """

    def __init__(
        self,
        buffers: Buffers,
        *,
        consumed: Callable[[PartitionState], None],
        starved: Callable[[RecordSource], None],
        counted: Callable[[int], None],
        opened: Callable[[], None],
        finished_some: Callable[[], None] = lambda: None,
        taken_back: Callable[[TopicPartition, int, int], None] = lambda tp, base, position: None,
        closed_error: Callable[[], Closed] = lambda: Closed("closed"),
        guard: LoopGuard | None = None,
    ) -> None:
        self.stream = RecordStream(self, guard)
        self.states: dict[TopicPartition, PartitionState] = {}
        self.reader_guard = SingleReaderGuard()
        self._buffers = buffers
        self._consumed = consumed
        self._waiters = ReaderWaiters(partial(starved, self))
        self._counted = counted
        self.closed_error = closed_error
        self._asked = 0
        self._rotation = PartitionRotation()
        self._chunks = ChunkQueue(buffers, consumed, counted, opened, self._rotation)
        self._unfinished = UnfinishedRecords(
            self._chunks, self._rotation, finished_some, taken_back
        )
        self._taker = RecordTaker(self._chunks, self._rotation, self._unfinished, self._count_turn)
        self._current: PartitionState | None = None
        self._errors = PendingErrors()
        self._closed = False
        self._failure: KafkaError | None = None
        self._stream_waits: asyncio.Future[None] | None = None
        self._since_turn = 0
        self._busy = False

    # -- the stream's source

    def next_cursor(self) -> Cursor | None:
        """The cursor of the next partition in line; None if nothing is there, or it is time to
        give the loop a turn.

        Raises:
            StopAsyncIteration: the consumer was closed.
            RuntimeError: another task is reading, or has begun to since.
            KafkaError: what went wrong with one of the partitions; raised once, then the others
                go on.
        """
        if self._busy:
            raise RuntimeError(TWO_READERS)
        self._asked += 1
        if self.reader_guard.doubtful and self.reader_guard.check():
            self._since_turn = TURN_BYTES  # an older reader in its loop meets this one waiting
        self._finish_current()
        self._unfinished.finish_all()
        self._raise_if_any()
        if self._since_turn >= TURN_BYTES:
            return None
        state = self._rotation.next()
        if state is None:
            return None
        chunk = self._take(state)
        return chunk.cursor

    def wait(self) -> asyncio.Future[None]:
        """Done when there may be a record, an error or the end; cancelling it loses nothing."""
        self._stream_waits = self.wait_for(())
        return self._stream_waits

    def wait_for(self, wanted: Collection[TopicPartition]) -> asyncio.Future[None]:
        """The same for a reader that is not the stream.

        Args:
            wanted: records of these only; of all partitions if empty.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._since_turn >= TURN_BYTES:
            self._since_turn = 0
            loop.call_soon(_release, future)
        elif (
            self._errors
            or self._closed
            or any(s.readable and (not wanted or s.tp in wanted) for s in self._rotation)
        ):
            future.set_result(None)
        else:
            self._since_turn = 0
            self._waiters.add(future)
        return future

    @property
    def hungry(self) -> bool:
        """Whether a reader waits and nothing is buffered.

        Its partitions are then fetched even if the buffers are full.
        """
        return self._waiters.hungry

    @property
    def turn_due(self) -> bool:
        """Whether `wait` would give the loop a turn, whatever is there."""
        return self._since_turn >= TURN_BYTES

    # -- other ways to read

    def reading(self) -> _ReadingBlock:
        """One reader at a time.

        Raises:
            RuntimeError: when entered: another task is reading.
        """
        return _ReadingBlock(self)

    def _begin_reading(self) -> None:
        if self._busy or (self._stream_waits is not None and not self._stream_waits.done()):
            raise RuntimeError(TWO_READERS)
        self._busy = True
        self._asked += 1
        self.reader_guard.reads()

    def _end_reading(self) -> None:
        self._busy = False

    def take(
        self,
        limit: int,
        wanted: Collection[TopicPartition] = (),
        deserialize: Callable[[Record], object] | None = None,
        handed: Callable[[Record], None] | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """Up to so many records that are there, by partition, each partition's in order.

        Args:
            wanted: only of these; of all if empty.
            deserialize: made of each record as it is taken. What it raises comes after the records
                before: with the next call, unless there are none. What ends the program is raised
                at once, and nothing counts as handed over.
            handed: called with each record that is handed over, and with that of a deserializer's
                error.

        Raises:
            Closed: the consumer was closed.
            KafkaError: as `next_cursor`, before anything is taken.
        """
        self._begin_batch()
        return self._taker.take(limit, wanted, deserialize, handed)

    def take_chunk(self) -> TakenChunk | None:
        """The rest of the next chunk, handed over as a whole; None if nothing is there.

        It ends before what cannot be read, which is raised when it comes first: what is good around
        it is not lost with it.

        Raises:
            StopAsyncIteration: the consumer was closed.
            KafkaError: as `next_cursor`.
        """
        if self.reader_guard.doubtful:
            self.reader_guard.check()
        self._leave_current()
        self._unfinished.finish_all()
        self._raise_if_any()
        if self._since_turn >= TURN_BYTES:
            return None
        state = self._rotation.next()
        if state is None:
            return None
        chunk = state.chunks[0]
        whole = self._buffers.whole(chunk)
        position = chunk.cursor.position
        end = whole.next_offset
        if whole.error is not None and end == position:
            raise self._chunks.give_up(state, whole.error)
        taken = TakenChunk(
            state.tp,
            whole.data,
            position,
            end,
            whole.stop,
            chunk.aborted,
            whole.records,
            whole.checked,
            BatchProgress(position, end, chunk.cursor if chunk.cut else None),
            chunk.frame,
        )
        if whole.records is not None and not chunk.cut:
            self._counted(whole.records)
        self._unfinished.hold(state, position)
        if whole.error is None:
            self._since_turn += chunk.size
            self._chunks.drop_first(state)
        else:
            self._chunks.skip_to(state, end)
        state.batch = taken
        if state.readable:
            self._rotation.add(state)
        return taken

    def _begin_batch(self) -> None:
        self._leave_current()
        self._unfinished.finish_all()
        try:
            self._raise_if_any()
        except StopAsyncIteration:
            raise self.closed_error() from None

    # -- what happens to its partitions

    def add(self, state: PartitionState) -> None:
        """The partition's records leave here from now on."""
        self.states[state.tp] = state
        state.source = self
        state.listed = False
        self.arrived(state)

    def remove(self, state: PartitionState) -> None:
        """The partition's records leave elsewhere, or nowhere; what is buffered stays with it."""
        self.interrupt(state)
        self._unfinished.release(state)
        self._rotation.discard(state)
        self.states.pop(state.tp, None)

    def arrived(self, state: PartitionState) -> None:
        """Something is there for the partition, or it may be read again."""
        if not state.readable or state.in_hand:
            return
        self._rotation.add(state)
        if self._waiters:
            self.wake()

    def interrupt(self, state: PartitionState) -> None:
        """Take the partition out of the reader's hand; what was not read stays."""
        if self._current is not state:
            return
        if self.stream.in_hand:
            cursor = state.chunks[0].cursor
            self._unfinished.hold(state, cursor.last_handed_offset)
        self._leave_current()

    def drop(self, state: PartitionState) -> None:
        """Throw away what is buffered; the position stays, to be fetched again or to jump."""
        self.interrupt(state)
        self._chunks.drop_all(state)

    def abandon(self, state: PartitionState) -> None:
        """Throw away what is buffered, and count nothing that was handed over as in work."""
        self.drop(state)
        self._unfinished.abandon(state)

    def report(self, error: KafkaError) -> None:
        """Raise this to the reader, once; the like of it that nobody saw yet it replaces."""
        if self._errors.add(error):
            self.wake()

    def take_errors(self) -> list[tuple[Subject, BaseException]]:
        """What nobody saw, for another source: each error, and what it is about."""
        return self._errors.take_all()

    def add_error(self, about: Subject, error: BaseException) -> None:
        """What another source's reader did not see."""
        self._errors.append(about, error)
        self.wake()

    def forget_errors(self, tp: TopicPartition) -> None:
        """The user has put the partition right: an error about it that nobody saw is history."""
        self._errors.forget(tp)

    def close(self, failure: KafkaError | None = None) -> None:
        """No more records: `async for` ends, or has this raised."""
        if not self._closed:
            if self._current is not None:
                self.interrupt(self._current)  # what is in hand is not finished by this
            self._closed = True
            self._failure = failure
            self.wake()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def wake(self) -> None:
        """Whoever waits looks again."""
        self._waiters.wake()

    def finished(self, state: PartitionState) -> int:
        """Offset up to which the partition's records are finished: handed over, and followed by
        the request for another one; -1 while there is no position.

        For groups: what automatic commit may commit.
        """
        if state.held is not None:
            return state.held
        if state is self._current and self.stream.in_hand:
            return state.chunks[0].cursor.last_handed_offset
        return state.position

    def unfinished(self, state: PartitionState) -> bool:
        """Whether a record of the partition was handed over and is still being worked on."""
        return state.held is not None or (state is self._current and self.stream.in_hand)

    def worked_on_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether what is unfinished is that task's, or nobody's any more."""
        reader = self.reader_guard.reader
        return reader is None or reader is task or reader.done()

    def finish(self) -> None:
        """What was handed over is finished, though nobody asks for more."""
        if self._current is not None:
            self.interrupt(self._current)
        self._unfinished.finish_all()

    @property
    def reader_waits(self) -> bool:
        """Whether somebody asked for a record and has none yet."""
        return self._waiters.waiting

    @property
    def progress(self) -> tuple[int, int]:
        """Differs from what it was if a record was asked for since."""
        cursor = self.stream.cursor
        return self._asked, -1 if cursor is None else cursor.position

    # -- inside

    def _count_turn(self, size: int) -> None:
        self._since_turn += size

    def _take(self, state: PartitionState) -> Chunk:
        chunk = state.chunks[0]
        state.in_hand = True
        state.queued_bytes -= chunk.size
        self._current = state
        self._since_turn += chunk.size
        self._consumed(state)
        return chunk

    def _finish_current(self) -> None:
        """Done with the cursor in hand, whether it is at its end, has raised, or goes on later."""
        state = self._current
        if state is None:
            return
        self._current = None
        state.in_hand = False
        chunk = state.chunks[0]
        state.queued_bytes += chunk.size
        error = chunk.cursor.raised
        if error is not None:
            self._chunks.give_up(state, error)  # the stream itself raised it
            return
        if chunk.cursor.exhausted:
            self._chunks.drop_first(state)
        if state.readable:
            self._rotation.add(state, first=not chunk.cursor.exhausted)

    def _leave_current(self) -> None:
        """Another way of reading goes on from where the stream is."""
        self.stream.detach()
        self._finish_current()

    def _raise_if_any(self) -> None:
        if self._closed:
            if self._failure is not None:
                raise copy_error(self._failure)
            raise StopAsyncIteration
        self._errors.raise_next()


class _ReadingBlock:
    """The block of one reader.

    No `contextmanager`: that sets an attribute of what is raised in the block, and a deserializer's
    exception may refuse it.
    """

    __slots__ = ("_source",)

    def __init__(self, source: RecordSource) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source._begin_reading()

    def __exit__(self, *raised: object) -> None:
        self._source._end_reading()


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
