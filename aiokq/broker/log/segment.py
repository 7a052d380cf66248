"""One segment: the batches of a ``.log`` file and their three indexes.

A segment handles positions, offsets and timestamps, but not producers or leader epochs. Reads are
in ``segment_reading``. The open file and the file names are in ``segment_files``.

Source: Kafka ``LogSegment.java``. Tests: ``tests/unit/broker/log/test_segment.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import walk_headers
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.index import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex
from aiokq.broker.log.segment_reading import ReadableSegment
from aiokq.broker.log.transaction_index import AbortedTransaction, TransactionIndex
from aiokq.core.errors import CorruptRecord, OffsetOutOfRange
from aiokq.core.files import File, Files
from aiokq.core.types import Buffer
from aiokq.records.header import NO_TIMESTAMP, BatchHeader

if TYPE_CHECKING:
    from aiokq.broker.log.rolling import RollLimits

logger = logging.getLogger("aiokq.broker.log")


class Segment(ReadableSegment):
    """Consecutive batches in one file, with their indexes.

    Attributes:
        transactions: aborted transactions whose markers are in the segment; ``open_existing`` does
            not load them.
    """

    __slots__ = ("_bytes_since_index", "_dirty", "_preallocated", "transactions")

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
        suffix: str = "",
    ) -> None:
        super().__init__(files, directory, base_offset, config=config, now_ms=now_ms, suffix=suffix)
        self._bytes_since_index = 0
        self._dirty = False
        self._preallocated = False
        self.transactions = TransactionIndex(files, self.path(file_names.TXN_INDEX), base_offset)

    def create(self, *, preallocate: int = 0) -> None:
        """Create an empty ``.log`` file; the first flush creates the index files.

        Args:
            preallocate: initial size of the file, which ``seal`` truncates to its batches.
        """
        self._file = self._files.open(self.path(file_names.LOG), create=True)
        if self._file.size():
            self._file.truncate(0)
        if preallocate:
            self._preallocated = True
            self._file.truncate(preallocate)
        self._begin_indexes()
        self.transactions.create()

    def open_existing(self, *, sealed_at: int | None) -> None:
        """Load a segment whose batches need no check; read as little as possible.

        Args:
            sealed_at: base offset of the next segment; None for the newest segment, which is read
                from the last index entry on.

        Raises:
            CorruptRecord: the newest segment is damaged after its last index entry.
        """
        self.size = self._files.stat_size(self.path(file_names.LOG))
        self._max_timestamp = None
        if sealed_at is not None:
            self.next_offset = sealed_at
            return
        size = self.size
        self.next_offset = self.base_offset + MAX_RELATIVE_OFFSET + 1
        self._load_indexes()
        for index in (self._index, self._time_index):
            index.note_unsynced()  # a clean shutdown does not sync the newest segment's indexes
        self._note_unindexed(size)
        if self.size != size:
            raise CorruptRecord(
                f"{self.path(file_names.LOG)} has {size - self.size} bytes after its last batch"
            )
        self.first_timestamp_ms()  # loaded here, because appends need it

    def _note_unindexed(self, size: int) -> None:
        """Note the batches from the last index entry on, and add their missing index entries.

        Many entries may be missing after a power cut, because the indexes were not synced.
        """
        self._max_timestamp = self._time_index.last or (NO_TIMESTAMP, self.base_offset)
        self.next_offset = self.base_offset
        indexed = self.size = self._index.last_position
        self._bytes_since_index = 0
        for position, header in walk_headers(self.file, indexed, size):
            has_entry = self._config.index_interval_bytes if position == indexed > 0 else 0
            self._bytes_since_index -= has_entry
            self._note_unchecked(header)
            self._bytes_since_index += has_entry

    def _note_unchecked(self, header: BatchHeader) -> None:
        """Do the same as ``note_batch`` for a batch whose base offset may be damaged.

        Raises:
            CorruptRecord: the last offset is before the end of the previous batch, or too large for
                the segment.
        """
        last = header.last_offset
        if not self.next_offset <= last <= self.base_offset + MAX_RELATIVE_OFFSET:
            raise CorruptRecord(
                f"last offset {last} of a batch is outside "
                f"{self.next_offset}..{self.base_offset + MAX_RELATIVE_OFFSET}, in "
                f"{self.path(file_names.LOG)}"
            )
        self.note_batch(last, header.size, header.max_timestamp_ms)

    def indexes_fit(self) -> bool:
        """Whether the sizes of a sealed segment's index files are plausible. Raises OSError."""
        try:
            index = self._files.stat_size(self.path(file_names.INDEX))
            time_index = self._files.stat_size(self.path(file_names.TIME_INDEX))
        except FileNotFoundError:
            return not self.size
        if index % OffsetIndex.ENTRY or time_index % TimeIndex.ENTRY:
            return False
        interval = self._config.index_interval_bytes
        if index or self.size <= interval:
            return True
        # The offset index is empty. If a batch begins beyond the first interval, the index had an
        # entry, which a power cut may have removed.
        try:
            return all(position <= interval for position, _ in self.headers())
        except CorruptRecord:
            return False

    def begin_recovery(self) -> None:
        """Discard the indexes, which a recovery rebuilds, and mark the ``.log`` as unsynced."""
        self._begin_indexes()
        self.transactions.create()
        self._dirty = True

    def _begin_indexes(self) -> None:
        self._index.create()
        self._time_index.create()

    def rebuild_indexes(self) -> None:
        """Rebuild the offset index and the time index from the batch headers.

        Raises:
            OSError: the disk failed, or the segment was deleted.
            CorruptRecord: the segment is damaged; nothing is changed.
        """
        path = self.path(file_names.LOG)
        copy = self.copy()
        try:
            file = copy.file  # raises FileNotFoundError if the segment was deleted
            logger.warning("rebuilding indexes file=%s", path)
            copy._begin_indexes()
            copy.size, copy.next_offset = 0, self.base_offset
            copy._max_timestamp = (NO_TIMESTAMP, self.base_offset)
            for _, header in walk_headers(file, 0, self.size):
                copy._note_unchecked(header)
            if copy.size != self.size:
                raise CorruptRecord(
                    f"{path} has {self.size - copy.size} bytes after its last batch"
                )
            copy.flush_indexes()
        finally:
            copy.close()
        self._adopt(copy)

    def flush_indexes(self) -> None:
        """Write the new entries of all indexes."""
        self._index.flush()
        self._time_index.flush()
        self.transactions.flush()

    def seal(self) -> None:
        """Finish the segment after its last append."""
        if self._preallocated:
            self._dirty = True
            self.file.truncate(self.size)
            self._preallocated = False
        timestamp, offset = self.max_timestamp()
        self._time_index.maybe_append(timestamp, offset)
        self.flush_indexes()

    def sync(self, *, finished: bool) -> None:
        """Sync the ``.log`` and ``.txnindex``; if ``finished``, also sync the other indexes."""
        if self._dirty:
            self.file.sync()
            self._dirty = False
        self.transactions.sync()
        if finished:
            self._index.sync()
            self._time_index.sync()

    @property
    def needs_sync(self) -> bool:
        """Whether some records, index entries or aborted transactions are not durable."""
        return self._dirty or any(index.needs_sync for index in self._all_indexes)

    @property
    def _all_indexes(self) -> tuple[OffsetIndex, TimeIndex, TransactionIndex]:
        return self._index, self._time_index, self.transactions

    def begin_sync(self, *, finished: bool) -> list[File]:
        """Return the open files to sync now; later writes need another sync.

        From now on the files count as synced; ``redo_sync`` undoes this.

        Args:
            finished: whether the segment is finished. The indexes of an unfinished segment are not
                synced, because recovery reads the whole segment and rebuilds them.

        Raises:
            OSError: a file cannot be opened or written.
        """
        files = []
        if self._dirty:
            files.append(self.file)
        if finished:
            for index in self._all_indexes:
                files += index.begin_sync()
        self._dirty = False
        return files

    def redo_sync(self) -> None:
        """Mark the segment's files for another sync, because the last sync may have failed."""
        self._dirty = True
        for index in self._all_indexes:
            index.redo_sync()

    def should_roll(
        self, size: int, max_timestamp_ms: int, last_offset: int, now_ms: int, limits: RollLimits
    ) -> bool:
        """Whether a new segment is needed before ``size`` bytes are appended."""
        if not self.size:  # a new segment would have the same base offset
            return False
        if self.size > limits.segment_bytes - size:
            return True
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self._index.is_full or self._time_index.is_full:
            return True
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp_ms()
        waited = now_ms - self.created_ms if first < 0 else max_timestamp_ms - first
        return waited > limits.segment_ms

    def is_idle(self, now_ms: int, limits: RollLimits) -> bool:
        """Whether the segment should roll because it is older than segment.ms.

        Old record timestamps alone are not enough, because an import may just have written them.
        """
        if not self.size:
            return False
        first = self.first_timestamp_ms()
        if first >= 0 and now_ms - first <= limits.segment_ms:
            return False
        # A recent ``created_ms`` may be the time when an old segment was loaded. The time of the
        # last write is used then.
        since = self.created_ms
        if now_ms - since <= limits.segment_ms:
            since = self.modified_ms()
        return now_ms - since > limits.segment_ms

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append bytes in one call; the caller then notes the batches in them.

        Raises:
            OSError: a part of the bytes may have been written after position ``size``; ``cut_tail``
                removes it.
        """
        self._dirty = True
        file = self._file
        if file is None or file.closed:
            file = self.file
        # The property `file` would record each use, and this is a hot path.
        file.pwritev(buffers, self.size)

    def cut_tail(self) -> None:
        """Truncate the file to the batches that were noted."""
        self._dirty = True
        self.file.truncate(self.size)

    def note_batch(self, last_offset: int, size: int, max_timestamp_ms: int) -> None:
        """Record that the next ``size`` bytes are a batch that ends with ``last_offset``."""
        assert self._max_timestamp is not None
        if max_timestamp_ms > self._max_timestamp[0]:
            self._max_timestamp = (max_timestamp_ms, last_offset)
        if not self.size:
            self._first_timestamp = max_timestamp_ms
        if self._bytes_since_index > self._config.index_interval_bytes:
            self._index.append(last_offset, self.size)
            self._time_index.maybe_append(*self._max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += size
        self.size += size
        self.next_offset = last_offset + 1

    def cut(self, offset: int, floor: int) -> Segment:
        """Return a copy without the batches that have records from ``offset`` on.

        Any thread may call this. The copy is a separate object, and nothing is written. Later
        changes of this segment, such as a repaired index, do not reach the copy.

        Args:
            floor: a batch with both ``offset`` and earlier offsets is removed as a whole; it must
                not begin before ``floor``.

        Raises:
            OffsetOutOfRange: such a batch begins before ``floor``.
            OSError, CorruptRecord: the segment cannot be read.
        """
        cut = self.copy()
        if self._index.is_loaded and self._time_index.is_loaded:
            # Use the indexes in memory, because the index files of the active segment lack the
            # newest entries.
            cut._index, cut._time_index = self._index, self._time_index
        else:
            cut._load_indexes()
        begin = cut._index.lookup(offset - 1)
        position, end = begin, self.base_offset
        for at, header in cut.headers(begin):
            if header.last_offset >= offset:
                if header.base_offset < min(offset, floor):
                    raise OffsetOutOfRange(
                        f"offset {offset} is in the batch at offset {header.base_offset}, which "
                        f"begins before {floor}"
                    )
                break
            position, end = at + header.size, header.next_offset
        cut.size, cut.next_offset = position, end
        cut._index = cut._index.cut(position)
        cut._time_index = cut._time_index.cut(end)
        cut.transactions = self.transactions.cut(end)
        cut._max_timestamp = None
        cut.max_timestamp()
        cut.first_timestamp_ms()
        cut._bytes_since_index = position - cut._index.last_position
        cut._dirty = True
        return cut

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction to the transaction index.

        Its abort marker is already in this segment.
        """
        self.transactions.append(transaction)
