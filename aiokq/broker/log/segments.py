"""Owns the list of a log's segments: which holds an offset, and those that were let go.

The list is replaced, never changed in place: a read that has begun goes on over the old one.

Source: Kafka ``LogSegments.java``. Tests: ``tests/unit/broker/log/test_segments.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import first_record_since
from aiokq.broker.log.disk_load import ColdRead, call_each
from aiokq.broker.log.segment import Segment
from aiokq.core.files import FileRange
from aiokq.records.record import RawRecord

if TYPE_CHECKING:
    from aiokq.broker.log.open_files import OpenFiles
    from aiokq.broker.log.transaction_index import AbortedTransaction

POSITIONS_REMEMBERED: Final = 64
"""Ends of recent reads kept per log: a consumer that reads on needs no index."""


class TimestampSearch(NamedTuple):
    """A search for a record by its time, in one segment.

    ``run`` reads, and may decompress, so it is for an executor; it touches the file only.

    Attributes:
        end_offset: where to go on if nothing was found.
    """

    range: FileRange
    timestamp_ms: int
    start_offset: int
    end_offset: int

    def run(self) -> RawRecord | None:
        """The first record that fits. Raises CorruptRecord or OSError."""
        return first_record_since(self.range, self.timestamp_ms, self.start_offset)


class Segments:
    """The segments of one log, oldest first; at least one.

    Attributes:
        all: every segment.
        active: the newest, which is appended to.
    """

    __slots__ = ("_bases", "_ends", "_open_files", "_removed", "active", "all")

    def __init__(self, segments: Sequence[Segment], open_files: OpenFiles) -> None:
        self._open_files = open_files
        self._removed: list[Segment] = []
        # where recent reads ended: the offset that comes next, to its segment and position
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
        """A new active segment."""
        self._set((*self.all, segment))

    # --- reading

    def read(
        self, offset: int, max_bytes: int, bound: int, *, at_least_one: bool
    ) -> tuple[list[FileRange], int, int]:
        """Whole batches from the one that holds ``offset`` on, as ranges of files.

        # hot: benchmarks/raw_load.py

        Returns:
            The ranges, their size, and an offset that none of them reaches: the next one's, where
            that is known, or else ``bound``.

        Args:
            max_bytes: the most they may have in all.
            bound: batches that end at or behind this offset are left out.
            at_least_one: the first batch counts as fitting.
        """
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
                    self._ends[offset] = known  # for the look that comes again
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
        """The aborted transactions that have records from ``offset`` on before ``upper_bound``."""
        found: list[AbortedTransaction] = []
        for segment in self.all[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if segment.transactions.collect(offset, upper_bound, found):
                break
        return found

    def search(self, timestamp_ms: int, start_offset: int) -> TimestampSearch | None:
        """The first segment that may hold a record of this time or later, and where to look."""
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
        """The largest timestamp of all records; -1 without one."""
        return max(call_each(self.all, Segment.latest_timestamp_ms))

    def _starting_at(
        self, offset: int, known: tuple[Segment, int] | None
    ) -> Iterator[tuple[Segment, int]]:
        """The segments from ``offset`` on, each with the position to read it from.

        Args:
            known: where a read ended that came as far as the offset.
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
        """A read ended at ``position``, where ``offset`` is or will be."""
        ends = self._ends
        if len(ends) >= POSITIONS_REMEMBERED:
            del ends[next(iter(ends))]
        ends[offset] = (segment, position)

    def replace(self, kept: Sequence[Segment]) -> None:
        """Go on with ``kept``; the others are let go.

        Their files are renamed; responses that send from them go on.
        """
        self._ends.clear()
        staying = set(map(id, kept))
        gone = [segment for segment in self.all if id(segment) not in staying]
        self._set(kept)
        self._removed += gone  # also if the disk refuses: their files are closed with the others
        for segment in gone:
            segment.add_suffix(file_names.DELETED)

    def swap(self, cleaned: Segment, originals: Sequence[Segment]) -> None:
        """Go on with ``cleaned`` in the place of neighbours, which are let go.

        Raises:
            OSError: not all originals could be renamed; readers have the new one, and recovery
                takes it for them.
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
        """Continue with ``kept``, the last of which ends earlier. Where the files of the others
        have other names, ``add_removed`` is told."""
        self._ends.clear()
        for segment in self.all[len(kept) - 1 :]:
            segment.release()
        self._set(kept)

    def add_removed(self, renamed: Sequence[Segment]) -> None:
        """Have the renamed files of these removed with the others'."""
        self._removed += renamed

    def take_removed(self) -> list[Segment]:
        """The segments that were let go, whose renamed files are the caller's to remove."""
        gone, self._removed = self._removed, []
        for segment in gone:
            segment.release()
        return gone

    def release(self) -> None:
        """Let go of all files, which close when no response is sent from them any more."""
        for segment in (*self.all, *self._removed):
            segment.release()

    def close(self) -> None:
        """Close all files, also of those let go."""
        for segment in (*self.all, *self._removed):
            segment.close()
