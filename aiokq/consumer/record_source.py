"""RecordSource: delivers the records of its partitions to one reader at a time.

It is the source of a `RecordStream`, which calls `next_cursor` once per chunk, not once per record.
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
"""Delivered bytes after which the event loop gets a turn.

A reader that never awaits anything else would starve fetching and all other tasks.
"""


class RecordSource:
    """Delivers the buffered records of its partitions in rotation, one chunk at a time.

    Args:
        buffers: the consumer's buffers.
        consumed: called with a partition that has less data buffered than before, is fetched from
            another offset, or is not fetched any more because of an error.
        starved: called when a reader begins to wait for records, and no other reader waits.
        counted: called with the number of delivered records that were not counted yet.
        opened: called when the buffers have room again.
        finished_some: called when delivered records are finished; not called for each record of the
            stream.
        taken_back: called with a partition, the base offset of a batch that a reader did not read
            completely, and the position from which records are delivered again.

    Attributes:
        closed_error: returns the error to raise when the source is used after `close`.
        stream: the stream of the records, for `async for`.
        reader_guard: refuses a second reading task.
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

    def next_cursor(self) -> Cursor | None:
        """Return the next partition's cursor; None if there is none or the event loop needs a turn.

        Raises:
            StopAsyncIteration: the consumer was closed.
            Closed: the consumer has failed.
            RuntimeError: another task is reading, or has begun an `async for` loop since this task
                began its own.
            KafkaError: a partition cannot be read. Raised once, then other partitions are read.
        """
        if self._busy:
            raise RuntimeError(TWO_READERS)
        self._asked += 1
        if self.reader_guard.doubtful and self.reader_guard.check():
            # Give the event loop a turn: another task that is still in its own `async for` loop
            # then gets a RuntimeError.
            self._since_turn = TURN_BYTES
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
        """Return a future that is done when the reader should check the source again."""
        self._stream_waits = self.wait_for(())
        return self._stream_waits

    def wait_for(self, wanted: Collection[TopicPartition]) -> asyncio.Future[None]:
        """Return a future that is done when a reader of `wanted` should check the source again.

        Args:
            wanted: the partitions to wait for; all if empty.
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
        """Whether a reader is waiting for records.

        While a reader waits, the source's partitions without buffered data are fetched even if the
        buffers are full.
        """
        return self._waiters.hungry

    @property
    def turn_due(self) -> bool:
        """Whether `wait` would give the event loop a turn even if records are buffered."""
        return self._since_turn >= TURN_BYTES

    def reading(self) -> _ReadingBlock:
        """Return a context manager that refuses a second reader.

        Raises:
            RuntimeError: another task is reading; raised when the block is entered.
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
        """Return buffered records by partition, at most `limit` in all, in offset order.

        Args:
            wanted: the partitions to read; all if empty.
            deserialize: called with each record when the record is taken. If it raises an error
                for the first record, `take` raises the error. For a later record, `take` returns
                the records before that record, and the error is raised by the call of `take` that
                begins with that record. An interrupt such as KeyboardInterrupt is raised
                immediately, and no record is delivered.
            handed: called with each delivered record, and with a record if `take` raises the error
                of its deserialization.

        Raises:
            Closed: the consumer was closed or has failed.
            KafkaError: a partition cannot be read; nothing was taken. Raised once, then other
                partitions are read.
            Exception: `deserialize` raised this error for the first record, or `add_error` was
                called with it.
        """
        self._begin_batch()
        return self._taker.take(limit, wanted, deserialize, handed)

    def take_chunk(self) -> TakenChunk | None:
        """Return the unread part of the next chunk as a batch; None if there is none.

        The result is also None if the event loop needs a turn. The batch ends before data that
        cannot be read. The error is raised by the next call that begins at this data, so that no
        readable record is lost.

        Raises:
            StopAsyncIteration: the consumer was closed.
            Closed: the consumer has failed.
            RuntimeError: another task has begun an `async for` loop since this task began its own.
            KafkaError: a partition cannot be read. Raised once, then other partitions are read.
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

    def add(self, state: PartitionState) -> None:
        """Deliver the partition's records from now on."""
        self.states[state.tp] = state
        state.source = self
        state.listed = False
        self.arrived(state)

    def remove(self, state: PartitionState) -> None:
        """Stop delivering the partition; `state` keeps the chunks."""
        self.interrupt(state)
        self._unfinished.release(state)
        self._rotation.discard(state)
        self.states.pop(state.tp, None)

    def arrived(self, state: PartitionState) -> None:
        """If the partition can be read, add it to the rotation and wake waiting readers."""
        if not state.readable or state.in_hand:
            return
        self._rotation.add(state)
        if self._waiters:
            self.wake()

    def interrupt(self, state: PartitionState) -> None:
        """Detach the partition's cursor from the stream; unread records stay buffered."""
        if self._current is not state:
            return
        if self.stream.in_hand:
            cursor = state.chunks[0].cursor
            self._unfinished.hold(state, cursor.last_handed_offset)
        self._leave_current()

    def drop(self, state: PartitionState) -> None:
        """Discard the buffered chunks of the partition; its position stays."""
        self.interrupt(state)
        self._chunks.drop_all(state)

    def abandon(self, state: PartitionState) -> None:
        """Discard the partition's buffered chunks, and treat delivered records as finished."""
        self.drop(state)
        self._unfinished.abandon(state)

    def report(self, error: KafkaError) -> None:
        """Raise `error` to the reader once.

        `error` replaces an undelivered error of the same class about the same partition or topic.
        """
        if self._errors.add(error):
            self.wake()

    def take_errors(self) -> list[tuple[Subject, BaseException]]:
        """Remove and return the undelivered errors with their subjects, for another source."""
        return self._errors.take_all()

    def add_error(self, about: Subject, error: BaseException) -> None:
        """Raise `error` to the reader, without replacing any undelivered error."""
        self._errors.append(about, error)
        self.wake()

    def forget_errors(self, tp: TopicPartition) -> None:
        """Discard undelivered errors about a partition, because they no longer apply."""
        self._errors.forget(tp)

    def close(self, failure: KafkaError | None = None) -> None:
        """End reading: `async for` ends, or raises `failure` if one is given."""
        if not self._closed:
            if self._current is not None:
                # After this call, the last delivered record still counts as unfinished.
                self.interrupt(self._current)
            self._closed = True
            self._failure = failure
            self.wake()

    @property
    def closed(self) -> bool:
        return self._closed

    def wake(self) -> None:
        """Wake waiting readers, which then check again for records."""
        self._waiters.wake()

    def finished(self, state: PartitionState) -> int:
        """Return the offset up to which a partition's records are finished; -1 without a position.

        A record is finished when the reader requests the next record. Automatic commits use this
        offset, unless ``ack_mode`` is "explicit".
        """
        if state.held is not None:
            return state.held
        if state is self._current and self.stream.in_hand:
            return state.chunks[0].cursor.last_handed_offset
        return state.settled_position

    def unfinished(self, state: PartitionState) -> bool:
        """Whether a delivered record of the partition is still being worked on."""
        return state.held is not None or (state is self._current and self.stream.in_hand)

    def worked_on_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether unfinished records belong to `task`, or to no task that is still running."""
        reader = self.reader_guard.reader
        return reader is None or reader is task or reader.done()

    def finish(self) -> None:
        """Finish all delivered records, even though no further record is requested."""
        if self._current is not None:
            self.interrupt(self._current)
        self._unfinished.finish_all()

    @property
    def reader_waits(self) -> bool:
        return self._waiters.waiting

    @property
    def progress(self) -> tuple[int, int]:
        """A value that changes whenever a record is requested."""
        cursor = self.stream.cursor
        return self._asked, -1 if cursor is None else cursor.position

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
        """End the stream's use of the current chunk.

        If the chunk's cursor has raised an error, the partition is not read any more until its
        position is set or reset. Otherwise an exhausted chunk is dropped, and a chunk with unread
        records stays buffered.
        """
        state = self._current
        if state is None:
            return
        self._current = None
        state.in_hand = False
        chunk = state.chunks[0]
        state.queued_bytes += chunk.size
        error = chunk.cursor.raised
        if error is not None:
            self._chunks.give_up(state, error)  # the stream has raised it
            return
        if chunk.cursor.exhausted:
            self._chunks.drop_first(state)
        if state.readable:
            self._rotation.add(state, first=not chunk.cursor.exhausted)

    def _leave_current(self) -> None:
        """Detach the stream's cursor; other reading methods continue at the cursor's position."""
        self.stream.detach()
        self._finish_current()

    def _raise_if_any(self) -> None:
        if self._closed:
            if self._failure is not None:
                raise copy_error(self._failure)
            raise StopAsyncIteration
        self._errors.raise_next()


class _ReadingBlock:
    """The context manager of one reader.

    `contextlib.contextmanager` is not used, because it sets an attribute of each exception that
    leaves the block. An exception class of user code may refuse the new value of the attribute.
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
