"""`Change`: writes and deletes files of a spool together, in a thread.

Tests: tests/unit/gateway/test_spool.py.
"""

from __future__ import annotations

from aiokq.gateway.spool.segment import Outcomes, Segment

__all__ = ["Change"]


class Change:
    """Outcomes to write, and segments to delete afterwards.

    The name of the next segment tells where a segment ends. So the file of outcomes of a segment
    must contain its end before the next segment is deleted.

    Args:
        sync: whether such an end is synced to disk before the next segment is deleted.

    Attributes:
        outcomes: outcomes to write, by segment.
        deleted: the segments to delete.
        failed: the segments whose outcomes were not written, or that were not deleted.
        error: an error of a file; None if there was none.
    """

    def __init__(self, *, sync: bool) -> None:
        self._sync = sync
        self._before: dict[Segment, Segment] = {}
        self.outcomes: dict[Segment, Outcomes] = {}
        self.deleted: dict[Segment, None] = {}
        self.failed: set[Segment] = set()
        self.error: OSError | None = None

    def keep_end(self, deleted: Segment, before: Segment) -> None:
        """Write the end of the segment `before` before `deleted` is deleted. Context: loop."""
        self._before[deleted] = before
        if before not in self.outcomes:
            self.outcomes[before] = before.take_outcomes()

    def make(self) -> None:
        """Write and delete the files, and record failures. Any thread; waits for the disk."""
        kept = set(self._before.values()) if self._sync else set()
        for segment, outcomes in self.outcomes.items():
            try:
                outcomes.write(sync=segment in kept)
            except OSError as error:
                self._fail(segment, error)
        for segment in self.deleted:
            if self._before.get(segment) in self.failed:
                self.failed.add(segment)
                continue
            try:
                segment.remove()
            except OSError as error:
                self._fail(segment, error)

    def _fail(self, segment: Segment, error: OSError) -> None:
        self.failed.add(segment)
        self.error = error
