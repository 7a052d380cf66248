"""Owns one segment: the batches of a ``.log`` file and its three indexes, from a base offset on.

Knows positions, offsets and timestamps; not producers, epochs or what the segment is part of, and
leaves its open file and the names of its files to ``segment_files``.

Source: Kafka ``LogSegment.java``. Tests: ``tests/unit/broker/log/test_segment.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokq.broker.log import names
from aiokq.broker.log.index import (
    MAX_RELATIVE_OFFSET,
    IndexCorrupt,
    IndexesToRebuild,
    OffsetIndex,
    TimeIndex,
)
from aiokq.broker.log.segment_files import SegmentFiles
from aiokq.broker.log.transaction_index import AbortedTransaction, TransactionIndex
from aiokq.broker.log.walk import walk_headers
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File, FileRange, Files
from aiokq.core.types import Buffer
from aiokq.records.header import NO_TIMESTAMP, BatchHeader

if TYPE_CHECKING:
    from aiokq.broker.log.rolling import RollLimits

logger = logging.getLogger("aiokq.broker.log")


class End(NamedTuple):
    """Where a read ends: a batch begins at ``position``, with ``base_offset`` where it is known."""

    position: int
    base_offset: int | None


class Segment(SegmentFiles):
    """A run of batches in one file.

    Attributes:
        size: bytes of whole batches in the ``.log``.
        next_offset: the offset after its last record; ``base_offset`` if it is empty.
        created_ms: when it was made or last loaded, for rolling a log without timestamps.
        on_loop: it is used on an event loop, where indexes are not made again.
        transactions: which were aborted, by markers in it; ``open_existing`` does not load them.
    """

    __slots__ = (
        "_bytes_since_index",
        "_dirty",
        "_first_timestamp",
        "_index",
        "_index_bytes",
        "_interval",
        "_max_timestamp",
        "_peeked",
        "_preallocated",
        "_time_index",
        "created_ms",
        "next_offset",
        "on_loop",
        "size",
        "transactions",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_bytes: int,
        now_ms: int,
        suffix: str = "",
    ) -> None:
        super().__init__(files, directory, base_offset, suffix)
        self.size = 0
        self.next_offset = base_offset
        self.created_ms = now_ms
        self.on_loop = False
        self._interval = index_interval_bytes
        self._index_bytes = index_bytes
        self._bytes_since_index = 0
        self._dirty = False
        self._first_timestamp: int | None = None
        # largest timestamp and the last offset of the batch that has it; None: not looked up
        self._max_timestamp: tuple[int, int] | None = (NO_TIMESTAMP, base_offset)
        # of a segment whose largest timestamp was not looked up: what its time index ends with
        self._peeked: int | None = None
        self._preallocated = False
        self._index = OffsetIndex(files, self.path(names.INDEX), base_offset, index_bytes)
        self._time_index = TimeIndex(files, self.path(names.TIME_INDEX), base_offset, index_bytes)
        self.transactions = TransactionIndex(files, self.path(names.TXN_INDEX), base_offset)

    # --- files

    def create(self, *, preallocate: int = 0) -> None:
        """Make its file, empty; those of the indexes come with their first flush.

        Args:
            preallocate: the size it gets at once, filled with zeros, which ``seal`` cuts off.
        """
        self._file = self._files.open(self.path(names.LOG), create=True)
        if self._file.size():
            self._file.truncate(0)
        if preallocate:
            self._preallocated = True
            self._file.truncate(preallocate)
        self._begin_indexes()
        self.transactions.create()

    def open_existing(self, *, sealed_at: int | None) -> None:
        """Take over what is on disk after a clean stop, reading as little as possible.

        Args:
            sealed_at: base offset of the next segment; None for the newest, whose end is then
                found from the last index entry on.

        Raises:
            CorruptRecord: the newest does not end with a whole batch.
        """
        self.size = self._files.stat_size(self.path(names.LOG))
        self._max_timestamp = None
        if sealed_at is not None:
            self.next_offset = sealed_at
            return
        size = self.size
        self.next_offset = self.base_offset + MAX_RELATIVE_OFFSET + 1
        self._load_indexes()
        self._note_unindexed(size)
        if self.size != size:
            raise CorruptRecord(
                f"{self.path(names.LOG)} has {size - self.size} bytes behind its last batch"
            )

    def _note_unindexed(self, size: int) -> None:
        """Note the batches behind the last index entry, of which a power cut may have left many."""
        self._max_timestamp = self._time_index.last or (NO_TIMESTAMP, self.base_offset)
        self.next_offset = self.base_offset
        indexed = self.size = self._index.last_position
        self._bytes_since_index = 0
        for position, header in walk_headers(self.file, indexed, size):
            has_entry = self._interval if position == indexed > 0 else 0
            self._bytes_since_index -= has_entry
            self._note_unchecked(header)
            self._bytes_since_index += has_entry

    def _note_unchecked(self, header: BatchHeader) -> None:
        """As ``note_batch``, of one whose base offset no checksum covers.

        Raises:
            CorruptRecord: it has none that could follow.
        """
        last = header.last_offset
        if not self.next_offset <= last <= self.base_offset + MAX_RELATIVE_OFFSET:
            raise CorruptRecord(
                f"last offset {last} where {self.next_offset} was due in {self.path(names.LOG)}"
            )
        self.note_batch(last, header.size, header.max_timestamp_ms)

    def indexes_fit(self) -> bool:
        """Whether the files of a sealed segment's indexes may be what they should be, by size."""
        try:
            index = self._files.stat_size(self.path(names.INDEX))
            time_index = self._files.stat_size(self.path(names.TIME_INDEX))
        except FileNotFoundError:
            return not self.size
        if index % OffsetIndex.ENTRY or time_index % TimeIndex.ENTRY:
            return False
        # After a power cut a file may be there and have nothing in it. One that is empty for a
        # reason is of a few batches, and soon made again.
        return index > 0 or self.size <= self._interval

    def begin_recovery(self) -> None:
        """Of what is on disk only the ``.log`` counts, whose batches are noted one by one; and
        nobody knows whether that was synced."""
        self._begin_indexes()
        self.transactions.create()
        self._dirty = True

    def _begin_indexes(self) -> None:
        self._index.create()
        self._time_index.create()

    def flush_indexes(self) -> None:
        """Bring the index files up to the log."""
        self._index.flush()
        self._time_index.flush()
        self.transactions.flush()

    def seal(self) -> None:
        """Finish the segment: nothing will be appended any more."""
        if self._preallocated:
            self._dirty = True
            self.file.truncate(self.size)
            self._preallocated = False
        self._load_indexes()
        timestamp, offset = self.max_timestamp()
        self._time_index.maybe_append(timestamp, offset)
        self.flush_indexes()

    def sync(self) -> None:
        """Make the records durable, if any were written since the last time."""
        if self._dirty:
            self.file.sync()
            self._dirty = False
        self.transactions.sync()

    @property
    def needs_sync(self) -> bool:
        """Whether something was written that is not durable."""
        return self._dirty or self.transactions.needs_sync

    def begin_sync(self, *, finished: bool) -> list[File]:
        """The files to sync now: what is written from now on is another sync's.

        Args:
            finished: nothing is appended any more, so its aborted transactions count, too: until
                then recovery goes through the whole segment and finds them.

        Raises:
            OSError: a file cannot be opened or written.
        """
        files = []
        if self._dirty:
            files.append(self.file)
        if finished:
            files += self.transactions.begin_sync()
        self._dirty = False
        return files

    def redo_sync(self) -> None:
        """What ``begin_sync`` gave may not be durable: everything is to be synced again."""
        self._dirty = True
        self.transactions.redo_sync()

    # --- writing

    def should_roll(
        self, size: int, max_timestamp_ms: int, last_offset: int, now_ms: int, limits: RollLimits
    ) -> bool:
        """Whether a new segment has to be begun before ``size`` bytes are appended."""
        if not self.size:  # a new one would have its name
            return False
        if self.size > limits.segment_bytes - size:
            return True
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self._index.is_full or self._time_index.is_full:
            return True
        first = self.first_timestamp_ms()
        waited = now_ms - self.created_ms if first < 0 else max_timestamp_ms - first
        return waited > limits.segment_ms

    def prepare(self) -> None:
        """Read what ``note_batch`` needs, so that it cannot fail."""
        if self._max_timestamp is None:
            self._load_max_timestamp()

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append bytes in one call; the batches in them are then noted.

        Raises:
            OSError: a part may be behind ``size``: ``cut_tail`` removes it.
        """
        self._dirty = True
        file = self._file
        if file is None or file.closed:
            file = self.file
        file.pwritev(buffers, self.size)  # hot: not via `file`, which takes note of each use

    def cut_tail(self) -> None:
        """Truncate the file to the batches that were noted."""
        self._dirty = True
        self.file.truncate(self.size)

    def note_batch(self, last_offset: int, size: int, max_timestamp_ms: int) -> None:
        """The next ``size`` bytes of the file are a batch that ends with ``last_offset``."""
        assert self._max_timestamp is not None
        if max_timestamp_ms > self._max_timestamp[0]:
            self._max_timestamp = (max_timestamp_ms, last_offset)
        if self._bytes_since_index > self._interval:
            self._index.append(last_offset, self.size)
            self._time_index.maybe_append(*self._max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += size
        self.size += size
        self.next_offset = last_offset + 1

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """The batch that was noted last is the marker that aborts this transaction."""
        self.transactions.append(transaction)

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that hold ``offset`` or more; how many bytes that were."""
        self._load_indexes()
        position = self.position_of(offset)
        if position is None:
            return 0
        removed = self.size - position
        self._dirty = True
        self.file.truncate(position)
        self._index.truncate(position)
        self.next_offset = self.base_offset
        self.size = position
        for _, header in walk_headers(self.file, self._index.last_position, position):
            self.next_offset = header.next_offset
        self._time_index.truncate(self.next_offset)
        self.transactions.truncate(self.next_offset)
        self._bytes_since_index = 0
        self._max_timestamp = self._peeked = None
        if not position:
            self._first_timestamp = None
        self.flush_indexes()
        return removed

    # --- reading

    def headers(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of the batches from ``position`` on."""
        return walk_headers(self.file, position, self.size if end is None else end)

    def position_of(self, offset: int) -> int | None:
        """Where the first batch begins that holds ``offset`` or a later one, if any does."""
        if offset >= self.next_offset or not self.size:
            return None
        if offset <= self.base_offset:
            return 0
        self._load_offsets()
        for position, header in self.headers(self._index.lookup(offset)):
            if header.last_offset >= offset:
                return position
        return None

    def end_position(self, start: int, max_bytes: int, bound: int, *, at_least_one: bool) -> End:
        """Where whole batches from ``start`` on end that fit ``max_bytes`` and lie below ``bound``.

        Args:
            at_least_one: the first batch counts as fitting.
        """
        limit, next_offset = self.size, self.next_offset
        if bound < next_offset:
            position = self.position_of(bound)
            limit, next_offset = (self.size if position is None else position), bound
        if limit - start <= max_bytes:
            return End(max(limit, start), next_offset)
        self._load_offsets()
        target = start + max_bytes
        begin = max(self._index.floor_position(target), start)
        for position, header in self.headers(begin, limit):
            behind = position + header.size
            if behind > target and not (at_least_one and position == start):
                return End(position, header.base_offset)
            if behind >= target:
                return End(behind, header.next_offset)
        return End(begin, None)

    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of its batch; (-1, base offset) if none."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    def latest_timestamp_ms(self) -> int:
        """The largest timestamp; -1 without one.

        Of a finished segment the time index ends with it: its last entry is read, not the index.
        """
        if self._max_timestamp is not None:
            return self._max_timestamp[0]
        if self._peeked is None:
            known = self._time_index.peek(self.next_offset)
            self._peeked = self.max_timestamp()[0] if known is None else known
        return self._peeked

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp, as retention sees it; without one, when it was written last."""
        timestamp = self.latest_timestamp_ms()
        return self.modified_ms() if timestamp < 0 else timestamp

    def first_timestamp_ms(self) -> int:
        """Largest timestamp of the first batch; -1 without one."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            self._first_timestamp = next(
                (header.max_timestamp_ms for _, header in self.headers()), NO_TIMESTAMP
            )
        return self._first_timestamp

    def since_timestamp(self, timestamp_ms: int, start_offset: int) -> FileRange:
        """Where the first record lies, if any, that is not earlier than ``timestamp_ms``.

        Its batches, from the first that may hold it to the segment's end; that may be far, and
        is read up to the record only.
        """
        self._load_indexes()
        from_offset = max(self._time_index.lookup(timestamp_ms), start_offset)
        begin = self._index.lookup(from_offset)
        return FileRange(self.file, begin, self.size - begin)

    # --- indexes on demand

    def _load_indexes(self) -> None:
        self._load_offsets()
        try:
            self._time_index.load(self.next_offset)
        except IndexCorrupt:
            self._rebuild_here()

    def _load_offsets(self) -> None:
        """The index that reads need; that of times may be megabytes more."""
        try:
            self._index.load(self.size)
        except IndexCorrupt:
            self._rebuild_here()

    def _rebuild_here(self) -> None:
        if self.on_loop:
            raise IndexesToRebuild(self) from None
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """Make both indexes again, at once.

        Raises:
            OSError, CorruptRecord: as ``rebuilt``; all is as it was.
        """
        self.adopt(self.rebuilt())

    def rebuilt(self) -> Segment:
        """A copy of it whose indexes are made again from the headers, for ``adopt``. Any thread.

        Raises:
            OSError: the disk refused, or it was deleted.
            CorruptRecord: it is not sound.
        """
        path = self.path(names.LOG)
        logger.warning("indexes are made anew file=%s", path)
        copy = Segment(
            self._files,
            self._directory,
            self.base_offset,
            index_interval_bytes=self._interval,
            index_bytes=self._index_bytes,
            now_ms=self.created_ms,
            suffix=self._suffix,
        )
        try:
            copy._begin_indexes()
            for _, header in walk_headers(copy.file, 0, self.size):
                copy._note_unchecked(header)
            if copy.size != self.size:
                raise CorruptRecord(f"{path} has {self.size - copy.size} bytes behind its batches")
            copy.flush_indexes()
        finally:
            copy.close()
        return copy

    def adopt(self, copy: Segment) -> None:
        """Take over the indexes of what ``rebuilt`` gave."""
        self._index, self._time_index = copy._index, copy._time_index
        self._max_timestamp = copy._max_timestamp

    def _load_max_timestamp(self) -> None:
        """From the last time entry, and the batches behind it."""
        self._load_indexes()
        best = self._time_index.last or (NO_TIMESTAMP, self.base_offset)
        begin = self._index.lookup(best[1])
        for _, header in self.headers(begin):
            if header.max_timestamp_ms > best[0]:
                best = (header.max_timestamp_ms, header.last_offset)
        self._max_timestamp = best
