"""`Change`: writes and deletes files of a spool together, in a thread.

Tests: tests/unit/gateway/test_spool.py.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable
from typing import Final

from aiokq.gateway.spool.segment import Outcomes, Segment, sync_directory

__all__ = ["Change"]

FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Change:
    """Outcomes to write, and segments to delete afterwards.

    The end of a segment is the sequence in the name of the next segment's file. Before the next
    segment is deleted, the end is therefore written to the segment's file of outcomes, or the
    segment itself is deleted.

    Args:
        sync: whether the end is synced to disk before the next segment is deleted.

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

    def delete(self, segment: Segment, before: Segment | None) -> None:
        """Have `make` delete a segment. Call it in the order of the segments. Context: loop.

        Args:
            before: the previous segment. If `make` does not delete it, `make` first writes where it
                ends; if it is to be deleted, it is deleted first.
        """
        self.deleted[segment] = None
        if before is None:
            return
        self._before[segment] = before
        if before not in self.deleted and before not in self.outcomes:
            self.outcomes[before] = before.take_outcomes()

    def make(self) -> None:
        """Write and delete the files, and record failures. Any thread; waits for the disk."""
        self._write(self.outcomes)
        if self.error is not None and self.error.errno in FULL_ERRORS and self.deleted:
            # The disk is full. Truncate the deleted segments, because an outcome file may need a
            # block.
            for segment in self.deleted:
                with contextlib.suppress(OSError):
                    segment.empty()
            failed, self.failed, self.error = self.failed, set(), None
            self._write(failed)
        for segment in self.deleted:
            if self._before.get(segment) in self.failed:
                self.failed.add(segment)
                continue
            try:
                segment.remove()
            except OSError as error:
                self._fail(segment, error)

    def _write(self, segments: Iterable[Segment]) -> None:
        """Write the outcomes of segments; with `sync`, sync those before a deleted segment."""
        kept = set(self._before.values()) if self._sync else set()
        synced = []
        for segment in segments:
            try:
                self.outcomes[segment].write(sync=segment in kept)
            except OSError as error:
                self._fail(segment, error)
            else:
                if segment in kept:
                    synced.append(segment)
        if synced:
            try:
                sync_directory(synced[0].directory)  # the outcome files may be new
            except OSError as error:
                for segment in synced:
                    self._fail(segment, error)

    def _fail(self, segment: Segment, error: OSError) -> None:
        self.failed.add(segment)
        self.error = error
