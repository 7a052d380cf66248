"""The limit on the number of reopened segment files that one log directory keeps open.

Each open file uses a descriptor, and a process usually has 1024 descriptors: reads of the history
of a thousand partitions would use all of them. The least recently used file is released, not
closed: a response that is still sent from it continues, and the last user of the file closes it.

The file of a new segment stays open from its creation until the log rolls. It does not count
towards the limit, because every append to the log writes to it. If the process runs out of
descriptors, such a file is released too: opening it again is cheaper than refusing a client.

Tests: ``tests/unit/broker/log/test_open_files.py``.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

__all__ = ["MAX_OPEN_SEGMENTS", "OpenFiles", "OpenSegment"]

MAX_OPEN_SEGMENTS: Final = 256
"""The maximum number of reopened segment files that a log directory keeps open.

Opening a file takes 10 µs and a read returns up to a megabyte, so a higher limit would gain
nothing. Files that have been open since their creation, at most one per partition, are not counted.
"""


class OpenSegment(Protocol):
    """The part of a segment that ``OpenFiles`` uses."""

    def release(self) -> None:
        """Drop the reference to the file; the last user of the file closes it."""


class OpenFiles:
    """The segments with open files, in one log directory; the most recently used is the last.

    Any thread may call the methods: at a shutdown, several threads close logs at the same time. The
    segments of one log are used by one thread at a time.
    """

    __slots__ = ("__weakref__", "_created", "_limit", "_lock", "_segments")

    def __init__(self, limit: int = MAX_OPEN_SEGMENTS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._segments: dict[OpenSegment, None] = {}
        self._created: dict[OpenSegment, None] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def used(self, segment: OpenSegment) -> None:
        """Note the use of a segment's file.

        If more files than the limit are open, release the least recently used file.
        """
        segments = self._segments
        with self._lock:
            segments.pop(segment, None)
            segments[segment] = None
            oldest = next(iter(segments)) if len(segments) > self._limit else None
            if oldest is not None:
                del segments[oldest]
        if oldest is not None:
            oldest.release()

    def created(self, segment: OpenSegment) -> None:
        """Add a new segment, whose file is open."""
        with self._lock:
            self._created[segment] = None

    def closed(self, segment: OpenSegment) -> None:
        """Remove a segment whose file was closed or released."""
        with self._lock:
            self._segments.pop(segment, None)
            self._created.pop(segment, None)

    def give_up(self) -> bool:
        """Release one file, because the process has too few descriptors.

        Any thread may call this.

        Returns:
            False if no file is open.
        """
        with self._lock:
            oldest = next(iter(self._segments or self._created), None)
            if oldest is None:
                return False
            self._segments.pop(oldest, None)
            self._created.pop(oldest, None)
        oldest.release()
        return True
