"""The list of a log's segments, and the segments that were removed from it.

The list is replaced, never changed in place, so that a read which has begun continues with the old
list.

Source: Kafka ``LogSegments.java``. Tests: ``tests/unit/broker/log/test_segments.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import first_record_since
from aiokq.broker.log.disk_load import ColdRead, call_each
from aiokq.broker.log.segment import Segment
from aiokq.core.files import FileRange
from aiokq.core.frozen import frozen
from aiokq.records.record import RawRecord

if TYPE_CHECKING:
    from aiokq.broker.log.open_files import OpenFiles
    from aiokq.broker.log.transaction_index import AbortedTransaction

POSITIONS_REMEMBERED: Final = 64
"""The maximum number of ends of recent reads that a log remembers.

A read that begins at a remembered end does not look up its start in the index.
"""


@frozen
class TimestampSearch:
    """A search for a record by timestamp in one segment.

    ``run`` uses only the file, and is called in an executor, because it reads and may decompress.

    Attributes:
        end_offset: offset from which to continue if nothing was found.
    """

    range: FileRange
    timestamp_ms: int
    start_offset: int
    end_offset: int

    def run(self) -> RawRecord | None:
        """Return the first matching record, or None. Raises BrokerError or OSError."""
        return first_record_since(self.range, self.timestamp_ms, self.start_offset)


class Segments:
    """The segments of one log, oldest first; at least one.

    Attributes:
        all: every segment.
        active: the newest segment, which is appended to.
    """

    __slots__ = ("_bases", "_ends", "_open_files", "_removed", "active", "all")

    def __init__(self, segments: Sequence[Segment], open_files: OpenFiles) -> None:
        self._open_files = open_files
        self._removed: list[Segment] = []
        # for each offset at which a recent read ended: the segment, and the position in its file
        self._ends: dict[int, tuple[Segment, int]] = {}
        self._set(segments)

    def _set(self, segments: Sequence[Segment]) -> None:
        self.all = tuple(segments)
        self.active = self.all[-1]
        self._bases = tuple(segment.base_offset for segment in segments)
        for segment in segments:
            segment.keep_open(self._open_files)
            segment.on_loop = True

    def append(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._set((*self.all, segment))

    def read(
        self, offset: int, max_bytes: int, bound: int, *, at_least_one: bool
    ) -> tuple[list[FileRange], int, int]:
        """Return whole batches, beginning with the batch that holds ``offset``, as file ranges.

        Returns:
            The ranges, their size in bytes, and an exclusive upper bound of their offsets.

        Args:
            max_bytes: maximum bytes of all batches together.
            bound: batches that extend to this offset or beyond are left out.
            at_least_one: include the first batch even if it is larger than ``max_bytes``.

        Raises:
            ColdRead: data has to be read from the disk first.
            OSError, CorruptRecord: a segment cannot be read.
        """
        # Hot path, measured by benchmarks/raw_load.py.
        fragments: list[FileRange] = []
        size = 0
        upper = bound
        known = self._ends.pop(offset, None)
        for segment, start in self._starting_at(offset, known):
            try:
                stop, next_base = segment.end_position(
                    start, max_bytes - size, bound, at_least_one=at_least_one and not fragments
                )
            except ColdRead:
                if known is not None:
                    self._ends[offset] = known  # for the repeated read
                raise
            if stop > start:
                fragments.append(FileRange(segment.file, start, stop - start))
                size += stop - start
            ended = stop < segment.size or size >= max_bytes
            if next_base is not None and (ended or segment is self.active):
                self._remember(next_base, segment, stop)
            if ended:
                if next_base is not None:
                    upper = next_base
                break
        return fragments, size, upper

    def aborted_transactions(self, offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a range of offsets.

        The range is from ``offset`` to before ``upper_bound``.
        """
        found: list[AbortedTransaction] = []
        for segment in self.all[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if segment.transactions.collect(offset, upper_bound, found):
                break
        return found

    def search(self, timestamp_ms: int, start_offset: int) -> TimestampSearch | None:
        """Return a search in the first segment that may have a matching record, or None.

        A record matches if its timestamp is at least ``timestamp_ms`` and its offset is at least
        ``start_offset``. None means that no segment has such a record.

        Raises:
            ColdRead: data has to be read from the disk first.
            OSError, CorruptRecord: a segment cannot be read.
        """
        segments = [segment for segment in self.all if segment.next_offset > start_offset]
        latest = call_each(segments, Segment.latest_timestamp_ms)
        for segment, latest_ms in zip(segments, latest, strict=True):
            if latest_ms >= timestamp_ms:
                return TimestampSearch(
                    segment.since_timestamp(timestamp_ms, start_offset),
                    timestamp_ms,
                    start_offset,
                    segment.next_offset,
                )
        return None

    def max_timestamp_ms(self) -> int:
        """Return the largest timestamp of all records; -1 if no record has a timestamp."""
        return max(call_each(self.all, Segment.latest_timestamp_ms))

    def _starting_at(
        self, offset: int, known: tuple[Segment, int] | None
    ) -> Iterator[tuple[Segment, int]]:
        """Yield the segments from ``offset`` on, each with the position to read from.

        Args:
            known: segment and position where an earlier read ended at ``offset``.
        """
        segments = self.all
        if known is None:
            at = max(bisect_right(self._bases, offset) - 1, 0)
        else:
            at = bisect_right(self._bases, known[0].base_offset)
            if known[1] < known[0].size:
                yield known
        for segment in segments[at:]:
            position = segment.position_of(offset)
            if position is not None:
                yield segment, position

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        """Remember that a read ended at ``position``, where the batch at ``offset`` begins."""
        ends = self._ends
        if len(ends) >= POSITIONS_REMEMBERED:
            del ends[next(iter(ends))]
        ends[offset] = (segment, position)

    def replace(self, kept: Sequence[Segment]) -> None:
        """Keep only the segments in ``kept``; rename the files of all other segments.

        Responses that are sent from the renamed files continue.
        """
        self._ends.clear()
        staying = set(map(id, kept))
        gone = [segment for segment in self.all if id(segment) not in staying]
        self._set(kept)
        # added before the rename, so that the files are closed even if the rename fails
        self._removed += gone
        for segment in gone:
            segment.add_suffix(file_names.DELETED)

    def swap(self, cleaned: Segment, originals: Sequence[Segment]) -> None:
        """Replace adjacent segments with ``cleaned``, and rename the files of the originals.

        Raises:
            OSError: an original could not be renamed. Readers use the new segment, and a recovery
                removes the originals.
        """
        self._ends.clear()
        first = self.all.index(originals[0])
        behind = first + len(originals)
        self._set((*self.all[:first], cleaned, *self.all[behind:]))
        self._removed += originals
        for segment in originals:
            segment.add_suffix(
                file_names.DELETED, with_snapshot=segment.base_offset != cleaned.base_offset
            )

    def cut(self, kept: Sequence[Segment]) -> None:
        """Keep only ``kept``; the caller renames the files of the removed segments.

        The last segment of ``kept`` is new, or the shortened copy of a segment.
        """
        self._ends.clear()
        for segment in self.all[len(kept) - 1 :]:
            segment.release()
        self._set(kept)

    def add_removed(self, renamed: Sequence[Segment]) -> None:
        """Add segments whose renamed files are to be removed."""
        self._removed += renamed

    def take_removed(self) -> list[Segment]:
        """Release and return the removed segments; the caller removes their renamed files.

        The next call does not return these segments again.
        """
        gone, self._removed = self._removed, []
        for segment in gone:
            segment.release()
        return gone

    def release(self) -> None:
        """Release all files; each is closed after the last response that is sent from it."""
        for segment in (*self.all, *self._removed):
            segment.release()

    def close(self) -> None:
        """Close all files, including those of removed segments."""
        for segment in (*self.all, *self._removed):
            segment.close()
