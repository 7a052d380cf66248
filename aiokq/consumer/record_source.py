"""RecordSource: where records leave, one reader at a time; it owns who of its partitions is next.

It is the source of a native RecordStream: Python runs once per chunk, none per record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, cast

from aiokq.consumer.batch_checks import corrupt_batch
from aiokq.consumer.batch_progress import BatchProgress, TakenChunk
from aiokq.consumer.partition_rotation import PartitionRotation
from aiokq.consumer.pending_errors import PendingErrors
from aiokq.consumer.single_reader import TWO_READERS, SingleReaderGuard
from aiokq.core.errors import Closed, KafkaError, copy_error
from aiokq.core.user_errors import INTERRUPTS
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
        hungry: a reader waits, and nothing is there: its partitions are fetched even when the
            buffers are full.
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
        self.hungry = False
        self.reader_guard = SingleReaderGuard()
        self._buffers = buffers
        self._consumed = consumed
        self._starved = starved
        self._counted = counted
        self._opened = opened
        self._finished_some = finished_some
        self._taken_back = taken_back
        self.closed_error = closed_error
        self._asked = 0
        self._rotation = PartitionRotation()
        self._current: PartitionState | None = None
        self._held: list[PartitionState] = []
        self._errors = PendingErrors()
        self._closed = False
        self._failure: KafkaError | None = None
        self._waiters: list[asyncio.Future[None]] = []
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
        self._release_held()
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
            self._waiters = [waiter for waiter in self._waiters if not waiter.done()]
            self._waiters.append(future)
            future.add_done_callback(self._fed)
            if not self.hungry:
                self.hungry = True
                self._starved(self)
        return future

    def _fed(self, future: asyncio.Future[None]) -> None:
        self.hungry = any(not waiter.done() for waiter in self._waiters)

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
        taken: dict[TopicPartition, list[Record]] = {}
        for state in list(self._rotation):
            if limit <= 0:
                break
            if not state.readable or (wanted and state.tp not in wanted):
                continue
            before = state.position
            records: list[Record] = []
            start: tuple[Chunk, Cursor, int] | None = None
            while limit > 0 and state.chunks:
                chunk = state.chunks[0]
                try:
                    if deserialize is not None and (start is None or start[0] is not chunk):
                        chunk.cursor.more()  # the fork has the open batch, too
                        start = chunk, chunk.cursor.fork(), len(records)
                    some = chunk.cursor.take(limit if deserialize is None else 1)
                except KafkaError as error:
                    if not taken and not records:
                        raise self._park(state, error) from None
                    # What was taken is handed over first; the error is met again by who asks next.
                    self._counted(self._buffers.move(chunk, chunk.cursor.position))
                    limit = 0
                    break
                if some:
                    self._hold(state, before)
                if some and deserialize is not None:
                    (record,) = some
                    try:
                        some = [_deserialized(chunk, record, deserialize)]
                    except INTERRUPTS:
                        self._fetch_held_again()
                        raise
                    except BaseException as error:
                        if not taken and not records:
                            self._rotation.move_to_end(state)
                            if handed is not None:
                                handed(record)
                            raise
                        # Raised by the next call: until then it is not handed over.
                        assert start is not None
                        _, chunk.cursor, first = start
                        chunk.cursor.take(len(records) - first)
                        chunk.failed = record.offset, error
                        if not records:
                            self._let_go(state)
                        limit = 0
                        break
                records += some
                limit -= len(some)
                if chunk.cursor.exhausted or not some:
                    self._since_turn += chunk.size
                    self._drop_first(state)
            if records:
                taken[state.tp] = records
                self._rotation.move_to_end(state)
            if not state.chunks:
                self._rotation.discard(state)
        if handed is not None:
            for records in taken.values():
                for record in records:
                    handed(record)
        return taken

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
        self._release_held()
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
            raise self._park(state, whole.error)
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
        self._hold(state, position)
        if whole.error is None:
            self._since_turn += chunk.size
            self._drop_first(state)
        else:
            self._counted(self._buffers.move(chunk, end))
        state.batch = taken
        if state.readable:
            self._rotation.add(state)
        return taken

    def _begin_batch(self) -> None:
        self._leave_current()
        self._release_held()
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
        if state.held is not None:
            self._let_go(state)
            self._take_back(state)
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
            self._hold(state, cursor.last_handed_offset)
        self._leave_current()

    def drop(self, state: PartitionState) -> None:
        """Throw away what is buffered; the position stays, to be fetched again or to jump."""
        self.interrupt(state)
        position = state.position
        state.batch = None
        while state.chunks:
            self._drop_first(state)
        state.fetch_offset = position
        self._rotation.discard(state)

    def abandon(self, state: PartitionState) -> None:
        """Throw away what is buffered, and count nothing that was handed over as in work."""
        self.drop(state)
        if state.held is not None:
            self._let_go(state)
            self._finished_some()

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
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.hungry = False

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
        self._release_held()

    @property
    def reader_waits(self) -> bool:
        """Whether somebody asked for a record and has none yet."""
        return any(not waiter.done() for waiter in self._waiters)

    @property
    def progress(self) -> tuple[int, int]:
        """Differs from what it was if a record was asked for since."""
        cursor = self.stream.cursor
        return self._asked, -1 if cursor is None else cursor.position

    # -- inside

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
            self._park(state, error)  # it was raised, from the stream itself
            return
        if chunk.cursor.exhausted:
            self._drop_first(state)
        if state.readable:
            self._rotation.add(state, first=not chunk.cursor.exhausted)

    def _leave_current(self) -> None:
        """Another way of reading goes on from where the stream is."""
        self.stream.detach()
        self._finish_current()

    def _park(self, state: PartitionState, error: KafkaError) -> KafkaError:
        chunk = state.chunks[0]
        good = self._buffers.sound_prefix(chunk)
        if good.beyond >= 0 and good.next_offset == chunk.cursor.position:
            error = corrupt_batch(state.tp, good.next_offset, good.beyond)
        self.drop(state)
        self._park_and_log(state, error)
        return copy_error(error)

    def _park_and_log(self, state: PartitionState, error: KafkaError) -> None:
        """The partition waits for a seek()."""
        state.park(error)
        self._consumed(state)
        logger.error("batch cannot be read: partition=%s error=%s", state.tp, error)

    def _drop_first(self, state: PartitionState) -> None:
        chunk = state.chunks.popleft()
        state.queued_bytes -= chunk.size
        if not state.chunks:
            # What the cursor passed over behind the last record counts as read.
            state.fetch_offset = max(state.fetch_offset, chunk.cursor.position)
        received = chunk.received
        if received:
            self._counted(received)
        if self._buffers.release(chunk):
            self._opened()
        self._consumed(state)

    def _hold(self, state: PartitionState, offset: int) -> None:
        if state.held is None:
            state.held = offset
            self._held.append(state)

    def _release_held(self) -> None:
        if self._held:
            held, self._held = self._held, []
            for state in held:
                state.held = None
                self._take_back(state)
            self._finished_some()

    def _fetch_held_again(self) -> None:
        """What this call took is not handed over after all."""
        for state in list(self._held):
            assert state.held is not None
            position = state.held
            self._let_go(state)
            self.drop(state)
            state.fetch_offset = position
            self._consumed(state)

    def _let_go(self, state: PartitionState) -> None:
        self._held.remove(state)
        state.held = None

    def _take_back(self, state: PartitionState) -> None:
        """What its reader did not get of the batch in work, as that raised, comes next."""
        batch, state.batch = state.batch, None
        rest = None if batch is None else batch.progress.close()
        if batch is None or rest is None:
            return
        self._taken_back(state.tp, batch.position, rest.position)
        if rest.unreadable is not None:
            self.drop(state)
            state.fetch_offset = rest.unreadable.offset
            self._park_and_log(state, rest.unreadable.error)
        if rest.pieces:
            chunks = self._buffers.take_back(batch, rest.pieces)
            state.chunks.extendleft(reversed(chunks))
            state.queued_bytes += sum(chunk.size for chunk in chunks)
        self._rotation.discard(state)
        if state.readable:
            self._rotation.add(state, first=True)

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


def _deserialized(chunk: Chunk, record: Record, deserialize: Callable[[Record], object]) -> Record:
    """What is made of a record of the chunk, or raised for it: that may be known already."""
    failed, chunk.failed = chunk.failed, None
    if failed is None or failed[0] != record.offset:
        return cast("Record", deserialize(record))
    try:
        raise failed[1]
    finally:
        del failed  # its traceback has this frame


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
