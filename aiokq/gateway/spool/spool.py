"""`Spool`: stores messages in files before they are delivered.

The inputs append messages in their threads (`writer`). On the loop, the reader feeds the pool from
the files, and outcomes are recorded. When all messages of a segment have an outcome, the segment is
deleted. A thread writes the outcomes and deletes the segments, one `Change` after another. Tests:
tests/unit/gateway/test_spool.py, tests/fault/test_gateway_spool.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiokq.core import forks
from aiokq.fastpath.gateway import SpoolWriter
from aiokq.gateway.spool.change import Change
from aiokq.gateway.spool.opening import open_spool
from aiokq.gateway.spool.reading import Reader
from aiokq.gateway.spool.segment import Segment

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Pool, SpoolCounts, Taken
    from aiokq.gateway.engine import Guard
    from aiokq.gateway.settings_tables import SpoolSettings

__all__ = ["Spool"]

logger = logging.getLogger("aiokq.gateway")

RETRY_SECONDS: Final = 0.1
"""Seconds until a failed file is tried again."""

CHANGE_SECONDS: Final = 0.005
"""Seconds between two Changes, so that one writes the outcomes of many batches."""


class Spool:
    """The spool of a gateway. Context: loop, except `writer`.

    Attributes:
        writer: appends messages; for the inputs.
        recovered: number of messages of earlier processes that had no outcome.
    """

    def __init__(self, settings: SpoolSettings) -> None:
        self._settings = settings
        self._directory = settings.path
        self._stack = contextlib.ExitStack()
        self._segments: deque[Segment] = deque()
        self._bases: list[int] = []
        self._changed: dict[Segment, None] = {}
        self._change_at: asyncio.TimerHandle | None = None
        self._changing: asyncio.Future[None] | None = None
        self._next_change = 0.0
        self._feed_at: asyncio.Handle | None = None
        self._stalled = False
        self._sync_failed = 0
        self._file_error: OSError | None = None
        self._reader: Reader | None = None
        self.recovered = 0

    def open(self) -> None:
        """Lock the directory and find the stored messages. Any thread; waits for the disk.

        Raises:
            ConfigError: the directory cannot be used.
            OSError: the process has no free descriptor.
        """
        settings = self._settings
        opened = open_spool(self._directory, sync=settings.fsync != "never")
        self._stack.callback(os.close, opened.lock_fd)
        self._lock = forks.Descriptor(opened.lock_fd)
        wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stack.callback(os.close, wake_fd)
        self._wake_fd = wake_fd
        self._segments.extend(opened.segments)
        self._bases.extend(segment.base for segment in opened.segments)
        self.recovered = opened.unfinished
        self._replay_end = opened.sequence
        self.writer = SpoolWriter(
            self._directory,
            sequence=opened.sequence,
            stored_bytes=opened.stored_bytes,
            max_bytes=settings.max_bytes,
            segment_bytes=settings.segment_bytes,
            fsync=settings.fsync,
            wake_fd=wake_fd,
        )
        if opened.unfinished:
            logger.info(
                "messages of the spool are delivered: messages=%s segments=%s",
                opened.unfinished,
                len(opened.segments),
            )

    def start(self, pool: Pool, guarded: Guard) -> None:
        """Begin to feed the pool, on the running loop.

        Args:
            guarded: wraps a callback of the loop, so that its exceptions end the gateway.
        """
        self._pool = pool
        self._guarded = guarded
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(self._segments, pool, self._replay_end, self._touch, self._feed_soon)
        self._loop.add_reader(self._wake_fd, self._guarded(self._woken))
        self._stack.callback(self._loop.remove_reader, self._wake_fd)
        for segment in self._segments:
            if not segment.left:
                self._touch(segment)  # to be deleted
        self._feed_soon()

    async def delete_finished(self) -> None:
        """Delete the segments that were finished before `start`, to make room for new messages."""
        if self._change_at is not None:
            self._change_at.cancel()
            self._begin_change()
        if self._changing is not None:
            await asyncio.wait([self._changing])

    async def sync_forever(self) -> None:
        """Sync appended messages to disk at each interval; only for `fsync = "interval"`."""
        while True:
            await asyncio.sleep(self._settings.fsync_interval_ms / 1000)
            await self._sync()

    async def _sync(self) -> None:
        error = await self._loop.run_in_executor(None, self.writer.sync)
        if error and error != self._sync_failed:
            logger.error("the spool cannot be written to the disk: error=%s", os.strerror(error))
        self._sync_failed = error

    # ------------------------------------------------------------ messages

    @property
    def waiting(self) -> int:
        """Number of messages in the spool that were not fed to the pool yet."""
        reader = self._reader
        if reader is None:
            return self.recovered
        appended = self.writer.counts().appended
        return self.recovered + appended - reader.fed - reader.damaged

    @property
    def damaged(self) -> int:
        """Number of messages in the spool that cannot be read, because of damage or disk errors."""
        return 0 if self._reader is None else self._reader.damaged

    @property
    def counts(self) -> SpoolCounts:
        """The counts of the writer."""
        return self.writer.counts()

    @property
    def error(self) -> str | None:
        """The error of the last write or read of the files; None if it succeeded."""
        number = self.writer.counts().error
        if number:
            return os.strerror(number)
        error = self._file_error
        if error is None and self._reader is not None:
            error = self._reader.error
        return None if error is None else str(error)

    def finished(self, taken: Taken, rows: Sequence[int] | None = None) -> None:
        """Record that all messages of `taken`, or some rows, have an outcome."""
        if rows is not None and len(rows) == taken.count:
            rows = None
        self._finish(taken.sequences(rows))

    def finished_one(self, sequence: int) -> None:
        """Record that a message has an outcome; ignore -1, which no message in the spool has."""
        if sequence >= 0:
            segment = self._segment_of(sequence)
            if segment is not None:
                segment.finish_range(sequence, sequence + 1)
                self._touch(segment)

    def released(self) -> None:
        """Continue to feed the pool, which may have room again."""
        if self._stalled:
            self._stalled = False
            self._feed_soon()

    # hot: once per outcome of messages that were taken together
    def _finish(self, sequences: memoryview) -> None:
        count = len(sequences)
        if not count:
            return
        first, last = sequences[0], sequences[-1]
        segment = self._segment_of(first)
        if segment is not None and last < segment.end:
            if last - first == count - 1:
                segment.finish_range(first, last + 1)
            else:
                segment.finish(sequences)
            self._touch(segment)
        else:
            self._finish_across(sequences)

    def _finish_across(self, sequences: memoryview) -> None:
        """Record the outcomes of messages of several segments, in any order."""
        ordered = memoryview(array("q", sorted(sequences)))
        bases, at = self._bases, 0
        while at < len(ordered):
            segment = self._segment_of(ordered[at])
            if segment is not None:
                end = bisect_left(ordered, segment.end, at)
                segment.finish(ordered[at:end])
                self._touch(segment)
                at = end
                continue
            index = bisect_right(bases, ordered[at])
            at = len(ordered) if index == len(bases) else bisect_left(ordered, bases[index], at)

    def _segment_of(self, sequence: int) -> Segment | None:
        index = bisect_right(self._bases, sequence) - 1
        if index < 0:
            return None
        segment = self._segments[index]
        return segment if sequence < segment.end else None

    # ------------------------------------------------------------ feeding

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_fd, 8)
        self._note_progress()
        if not self._stalled and self._feed_at is None:
            self._feed()

    def _note_progress(self) -> None:
        """Update the segments with the messages that the writer has appended."""
        progress = self.writer.progress()
        for base, size, end in progress.sealed:
            segment = self._segment(base)
            segment.extend(size, end, sealed=True)
            self._touch(segment)
        if progress.base >= 0:
            self._segment(progress.base).extend(progress.end, progress.sequence, sealed=False)

    def _segment(self, base: int) -> Segment:
        if self._bases and self._bases[-1] == base:
            return self._segments[-1]
        segment = Segment(self._directory, base)
        self._segments.append(segment)
        self._bases.append(base)
        return segment

    def _feed_soon(self) -> None:
        if self._feed_at is None:
            self._feed_at = self._loop.call_soon(self._guarded(self._feed))

    def _feed(self) -> None:
        reader, self._feed_at = self._reader, None
        assert reader is not None
        more, full = reader.feed()
        self.note_discards()
        self._stalled = full
        if more:
            self._feed_soon()
        elif not full and reader.error is not None:
            self._feed_at = self._loop.call_later(RETRY_SECONDS, self._guarded(self._feed))

    def note_discards(self) -> None:
        """Record the outcome of messages that the pool has discarded itself."""
        found = self._pool.finished()
        if found:
            self._finish_across(found)

    # ------------------------------------------------------------ files of outcomes

    def _touch(self, segment: Segment) -> None:
        """Schedule a `Change` for a segment with new outcomes or a new end."""
        self._changed[segment] = None
        if self._change_at is None and self._changing is None:
            self._change_at = self._loop.call_at(
                self._next_change, self._guarded(self._begin_change)
            )

    def _begin_change(self) -> None:
        """Begin to write outcomes, and to delete the segments whose messages are all finished."""
        self._change_at = None
        change = self._take_change()
        if change is not None:
            self._changing = self._loop.run_in_executor(None, change.make)
            done = functools.partial(self._changed_files, change)
            self._changing.add_done_callback(self._guarded(done))

    def _take_change(self) -> Change | None:
        """Return the `Change` with all files to write and delete; None if there are none."""
        assert self._reader is not None
        reading = self._reader.segment
        touched, self._changed = self._changed, {}
        change = Change(sync=self._settings.fsync != "never")
        deleted = set()
        for segment in touched:
            if segment.sealed and segment.left <= 0 and segment is not reading:
                segment.close()
                deleted.add(segment)
            elif segment.changed:
                change.outcomes[segment] = segment.take_outcomes()
        if deleted:
            before: Segment | None = None
            for segment in self._segments:
                if segment in deleted:
                    change.delete(segment, before)
                before = segment
        return change if change.outcomes or change.deleted else None

    def _changed_files(self, change: Change, made: asyncio.Future[None]) -> None:
        """Process the result of a `Change`, and schedule failed files again."""
        self._changing = None
        self._next_change = self._loop.time() + CHANGE_SECONDS
        made.result()
        for segment in change.failed:
            if segment in change.outcomes:
                segment.not_written(change.outcomes[segment])
            self._changed[segment] = None
        for segment in change.deleted:
            if segment not in change.failed:
                index = self._segments.index(segment)
                del self._segments[index]
                del self._bases[index]
                self._changed.pop(segment, None)
                self.writer.freed(segment.size)
        if change.error is not None:
            if self._file_error is None:
                logger.error("a file of the spool cannot be written: error=%s", change.error)
            self._next_change = self._loop.time() + RETRY_SECONDS
        self._file_error = change.error
        if self._changed and self._change_at is None:
            self._change_at = self._loop.call_at(
                self._next_change, self._guarded(self._begin_change)
            )

    # ------------------------------------------------------------ end

    async def close(self) -> None:
        """Write the outcomes and release the directory. Undelivered messages stay in it."""
        if self._reader is not None:
            if self._settings.fsync == "interval":
                await self._sync()
            if self._feed_at is not None:
                self._feed_at.cancel()
            self._feed_at = None
            self.note_discards()
            self.writer.close()
            self._note_progress()
            self._reader.stop()
            await self._end_changes()
            for segment in self._segments:
                segment.sealed = True
                self._changed[segment] = None
            self._begin_change()
            await self._end_changes()
        for segment in self._segments:
            segment.close()
        self._stack.close()

    async def _end_changes(self) -> None:
        """Wait for the `Change` in progress, and begin no other."""
        if self._changing is not None:
            await asyncio.wait([self._changing])
        if self._change_at is not None:
            self._change_at.cancel()
            self._change_at = None
