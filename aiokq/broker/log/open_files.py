"""Owns how many old segments' files are open to be read; not the files.

Each is a descriptor, of which a process has mostly 1024: a thousand partitions whose history is
read would take them all. The one that was not used for longest is let go, never closed: a response
that is still sent from it goes on, and the last to refer to it closes it.

Those of the newest segments have no such limit, as nearly every append needs one. They go, too,
where the process has too few descriptors: to open a file again is cheap, and a client that is
refused is not.

Tests: ``tests/unit/broker/log/test_open_files.py``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.broker.log.segment_files import SegmentFiles

__all__ = ["MAX_OPEN_SEGMENTS", "OpenFiles"]

MAX_OPEN_SEGMENTS: Final = 256
"""Old segments whose files a log directory keeps open. To open one takes some 10 µs, a read from it
gives up to a megabyte, so more would gain nothing. The newest segments that were written to since
the start, one per partition, come on top."""


class OpenFiles:
    """The segments of a log directory that were opened again, those used last at the end.

    Any thread: a log is touched by one at a time, but a stop closes several logs at once.
    """

    __slots__ = ("__weakref__", "_created", "_limit", "_lock", "_segments")

    def __init__(self, limit: int = MAX_OPEN_SEGMENTS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._segments: dict[SegmentFiles, None] = {}
        self._created: dict[SegmentFiles, None] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def used(self, segment: SegmentFiles) -> None:
        """A segment's file is used now; another's may have to go for it."""
        segments = self._segments
        with self._lock:
            segments.pop(segment, None)
            segments[segment] = None
            oldest = next(iter(segments)) if len(segments) > self._limit else None
            if oldest is not None:
                del segments[oldest]
        if oldest is not None:
            oldest.release()

    def created(self, segment: SegmentFiles) -> None:
        """A segment is new, and its file open."""
        with self._lock:
            self._created[segment] = None

    def closed(self, segment: SegmentFiles) -> None:
        """A segment's file is closed, or let go."""
        with self._lock:
            self._segments.pop(segment, None)
            self._created.pop(segment, None)

    def give_up(self) -> bool:
        """Let go of one file, as the process has too few descriptors. Any thread.

        Returns:
            False if none is open.
        """
        with self._lock:
            oldest = next(iter(self._segments or self._created), None)
            if oldest is None:
                return False
            self._segments.pop(oldest, None)
            self._created.pop(oldest, None)
        oldest.release()
        return True
