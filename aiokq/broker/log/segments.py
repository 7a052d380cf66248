"""Owns the list of a log's segments: which holds an offset, and those that were let go.

The list is replaced, never changed in place: a read that has begun goes on over the old one.

Source: Kafka ``LogSegments.java``. Tests: ``tests/unit/broker/log/test_segments.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from aiokq.broker.log import names
from aiokq.broker.log.segment import Segment

POSITIONS_REMEMBERED: Final = 64
"""Ends of recent reads kept per log: a consumer that reads on needs no index."""


class Segments:
    """The segments of one log, oldest first; at least one.

    Attributes:
        all: every segment.
        active: the newest, which is appended to.
    """

    __slots__ = ("_bases", "_ends", "_let_go", "active", "all")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._let_go: list[Segment] = []
        # where recent reads ended: the offset that comes next, to its segment and position
        self._ends: dict[int, tuple[Segment, int]] = {}
        self._set(segments)

    def _set(self, segments: Sequence[Segment]) -> None:
        self.all = tuple(segments)
        self.active = self.all[-1]
        self._bases = tuple(segment.base_offset for segment in segments)

    def append(self, segment: Segment) -> None:
        """A new active segment."""
        self._set((*self.all, segment))

    def starting_at(self, offset: int) -> Iterator[tuple[Segment, int]]:
        """The segments from ``offset`` on, each with the position to read it from."""
        segments = self.all
        known = self._ends.pop(offset, None)
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

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """A read ended at ``position``, where ``offset`` is or will be."""
        ends = self._ends
        if len(ends) >= POSITIONS_REMEMBERED:
            del ends[next(iter(ends))]
        ends[offset] = (segment, position)

    def replace(self, kept: Sequence[Segment]) -> None:
        """Go on with ``kept``; the others are let go.

        Their files are renamed and stay open: responses that send from them go on until
        ``purge``.
        """
        self._ends.clear()
        staying = set(map(id, kept))
        gone = [segment for segment in self.all if id(segment) not in staying]
        self._set(kept)
        for segment in gone:
            segment.rename_away(names.DELETED)
        self._let_go += gone

    def purge(self) -> None:
        """Close and remove the segments that were let go."""
        gone, self._let_go = self._let_go, []
        for segment in gone:
            segment.close()
            segment.remove_renamed(names.DELETED)

    def close(self) -> None:
        """Close all files, also of those let go."""
        for segment in (*self.all, *self._let_go):
            segment.close()
