"""The reads of one segment: lookups by offset, size or time, with its sparse indexes.

A read writes nothing, except that a missing or damaged index is rebuilt. On a loop no read waits
for the disk: if data is not in memory, the read raises ``ColdRead``, and the repeated read uses the
loaded data. Headers in the page cache are read immediately. Indexes are always loaded off the loop,
because even the check of a large index takes too long.

Source: Kafka ``LogSegment.java``. Tests: ``tests/unit/broker/log/test_segment.py``,
``tests/unit/broker/log/test_cold_reads.py``.
"""

from __future__ import annotations

import functools
import sys
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from typing import Self, cast

from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import FoundBatch, NotCached, first_batch, walk_headers
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.broker.log.index import IndexCorrupt, OffsetIndex, TimeIndex
from aiokq.broker.log.segment_files import SegmentFiles
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import FileRange, Files
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, read_header

__all__ = ["End", "ReadableSegment"]


class End(NamedTuple):
    """The end of a read: the position of the next batch, and its base offset if known."""

    position: int
    base_offset: int | None


class ReadableSegment(SegmentFiles):
    """The read operations of a segment: consecutive batches in one file.

    Attributes:
        size: bytes of whole batches in the ``.log``.
        next_offset: the offset after the last record; ``base_offset`` if the segment is empty.
        created_ms: when the segment was created or loaded; if the records have no timestamps, the
            age of the segment is counted from this time.
        on_loop: whether reads run on an event loop, where they raise ``ColdRead`` instead of
            waiting for the disk.
    """

    __slots__ = (
        "_config",
        "_first_timestamp",
        "_index",
        "_loaded",
        "_max_timestamp",
        "_peeked",
        "_time_index",
        "created_ms",
        "next_offset",
        "on_loop",
        "size",
    )

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
        super().__init__(files, directory, base_offset, suffix)
        self.size = 0
        self.next_offset = base_offset
        self.created_ms = now_ms
        self.on_loop = False
        self._config = config
        self._first_timestamp: int | None = None
        # largest timestamp and the last offset of its batch; None if they are not known yet
        self._max_timestamp: tuple[int, int] | None = (NO_TIMESTAMP, base_offset)
        # result of `latest_timestamp_ms` while `_max_timestamp` is None; None if not known yet
        self._peeked: int | None = None
        # the items loaded for repeated reads; the keys are `DiskLoad.what`
        self._loaded: dict[Hashable, object] = {}
        index_bytes = config.segment_index_bytes
        self._index = OffsetIndex(files, self.path(file_names.INDEX), base_offset, index_bytes)
        self._time_index = TimeIndex(
            files, self.path(file_names.TIME_INDEX), base_offset, index_bytes
        )

    def headers(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of the batches from ``position`` on."""
        return walk_headers(self.file, position, self.size if end is None else end)

    def position_of(self, offset: int) -> int | None:
        """Return the position of the first batch that ends at or after ``offset``, or None.

        Raises:
            ColdRead: on a loop, a header or the index has to be read from the disk.
            OSError, CorruptRecord: the segment cannot be read.
        """
        if offset >= self.next_offset or not self.size:
            return None
        if offset <= self.base_offset:
            return 0
        self._load_offsets()
        found = self._first_batch(self._index.lookup(offset), self.size, offset=offset)
        return None if found is None else found.position

    def end_position(self, start: int, max_bytes: int, bound: int, *, at_least_one: bool) -> End:
        """Return the end of the batches from ``start`` on that fit ``max_bytes``.

        Args:
            start: position of the first batch.
            bound: batches that extend to this offset or beyond are left out.
            at_least_one: include the first batch even if it is larger than ``max_bytes``.

        Raises:
            ColdRead: on a loop, a header or the index has to be read from the disk.
            OSError, CorruptRecord: the segment cannot be read.
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
        found = self._first_batch(begin, limit, reach=target)
        if found is None:
            return End(begin, None)
        position, header = found
        behind = position + header.size
        if behind > target and not (at_least_one and position == start):
            return End(position, header.base_offset)
        return End(behind, header.next_offset)

    def _first_batch(
        self, begin: int, end: int, *, offset: int = sys.maxsize, reach: int = sys.maxsize
    ) -> FoundBatch | None:
        if not self.on_loop:
            return first_batch(self.file, begin, end, offset=offset, reach=reach)
        what = (begin, offset, reach)
        if what in self._loaded:
            # The item stays in `_loaded`: if the read needs another load, it is repeated, and then
            # needs this item again.
            return cast("FoundBatch | None", self._sound(what, self._loaded[what]))
        file = self.file
        try:
            return first_batch(file, begin, end, offset=offset, reach=reach, cached=True)
        except NotCached:
            walk = functools.partial(first_batch, file, begin, end, offset=offset, reach=reach)
            raise ColdRead([DiskLoad(self, what, walk)]) from None

    def max_timestamp(self) -> tuple[int, int]:
        """Return the largest timestamp and its batch's last offset.

        If no record has a timestamp, return -1 and the base offset of the segment.
        """
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    def latest_timestamp_ms(self) -> int:
        """Return the largest timestamp; -1 if no record has a timestamp.

        The last entry of a finished segment's time index has the largest timestamp, so usually only
        this entry is read.
        """
        if self._max_timestamp is not None:
            return self._max_timestamp[0]
        if self._peeked is None:
            if self.on_loop:
                self._learn(ReadableSegment.latest_timestamp_ms)
                return self.latest_timestamp_ms()
            known = self._time_index.peek(self.next_offset)
            self._peeked = self.max_timestamp()[0] if known is None else known
        return self._peeked

    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp, for retention and compaction.

        If no record has a timestamp, return the time of the last write.
        """
        timestamp = self.latest_timestamp_ms()
        return self.modified_ms() if timestamp < 0 else timestamp

    def first_timestamp_ms(self) -> int:
        """Return the largest timestamp of the first batch; -1 without a batch or a timestamp."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            if self.on_loop:
                self._learn(ReadableSegment.first_timestamp_ms)
                return self.first_timestamp_ms()
            first = read_header(self.file.pread(HEADER_SIZE, 0))
            self._first_timestamp = first.max_timestamp_ms
        return self._first_timestamp

    def since_timestamp(self, timestamp_ms: int, start_offset: int) -> FileRange:
        """Return a range that contains the first matching record, if the segment has one.

        A record matches if its timestamp is at least ``timestamp_ms`` and its offset is at least
        ``start_offset``. The range extends to the end of the segment.
        """
        self._load_indexes()
        from_offset = max(self._time_index.lookup(timestamp_ms), start_offset)
        begin = self._index.lookup(from_offset)
        return FileRange(self.file, begin, self.size - begin)

    def _load_max_timestamp(self) -> None:
        """Compute the largest timestamp from the last time index entry and the batches after it."""
        self._load_indexes()
        best = self._time_index.last or (NO_TIMESTAMP, self.base_offset)
        begin = self._index.lookup(best[1])
        for _, header in self.headers(begin):
            if header.max_timestamp_ms > best[0]:
                best = (header.max_timestamp_ms, header.last_offset)
        self._max_timestamp = best

    def _load_indexes(self) -> None:
        if self._time_index.is_loaded and self._index.is_loaded:
            return
        if self.on_loop:
            self._learn(ReadableSegment._load_indexes)
            return
        self._load_offsets()
        try:
            self._time_index.load(self.next_offset)
        except IndexCorrupt:
            self.rebuild_indexes()

    def _load_offsets(self) -> None:
        """Load only the offset index, which is faster than loading both indexes."""
        if self._index.is_loaded:
            return
        if self.on_loop:
            self._learn(ReadableSegment._load_offsets)
            return
        try:
            self._index.load(self.size)
        except IndexCorrupt:
            self.rebuild_indexes()

    @abstractmethod
    def rebuild_indexes(self) -> None:
        """Rebuild the offset index and the time index; see ``Segment``."""

    def _learn(self, look: Callable[[ReadableSegment], object]) -> None:
        """Take over the data that ``look`` has loaded into a copy of this segment.

        Raises:
            ColdRead: ``look`` was not called yet; it has to be called on a copy off the loop first.
            OSError, CorruptRecord: ``look`` failed.
        """
        if look not in self._loaded:
            copy = self.copy()
            raise ColdRead([DiskLoad(self, look, functools.partial(_looked_at, copy, look))])
        self._adopt(cast("ReadableSegment", self._sound(look, self._loaded.pop(look))))

    def loaded(self, what: Hashable, outcome: object) -> None:
        """Store the outcome of a ``DiskLoad`` for the repeated read."""
        self._loaded[what] = outcome

    def forget(self, what: Hashable) -> None:
        """Drop an outcome that no read needs any more."""
        self._loaded.pop(what, None)

    def _sound(self, what: Hashable, outcome: object) -> object:
        if isinstance(outcome, OSError | CorruptRecord):
            self._loaded.pop(what, None)  # a later read loads the item again
            raise outcome
        return outcome

    def copy(self) -> Self:
        """Return another object for this segment, without loaded indexes, for reads that may block.

        The copy loads its indexes from the files. If there are no index files, as is possible for
        the active segment, the copy rebuilds them.
        """
        copy = type(self)(
            self._files,
            self._directory,
            self.base_offset,
            config=self._config,
            now_ms=self.created_ms,
            suffix=self._suffix,
        )
        copy.size, copy.next_offset = self.size, self.next_offset
        copy._max_timestamp = None
        return copy

    def _adopt(self, copy: ReadableSegment) -> None:
        """Take over the loaded indexes and timestamps of a copy."""
        if copy._index.is_loaded:
            self._index = copy._index
        if copy._time_index.is_loaded:
            self._time_index = copy._time_index
        if self._max_timestamp is None:
            self._max_timestamp = copy._max_timestamp
        if self._peeked is None:
            self._peeked = copy._peeked
        if self._first_timestamp is None:
            self._first_timestamp = copy._first_timestamp


def _looked_at(
    segment: ReadableSegment, look: Callable[[ReadableSegment], object]
) -> ReadableSegment:
    """Call ``look`` on a segment and close it; return the segment. Any thread may call this."""
    try:
        look(segment)
    finally:
        segment.close()
    return segment
