"""`Reader`: feeds the pool from the segments of a spool, in order. Context: loop.

A damaged frame is skipped: the reader searches for the next valid frame, and counts the messages in
between as SPOOL_DAMAGED. Tests: tests/unit/gateway/test_spool.py.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.fastpath.gateway import SPOOL_HEADER_BYTES, SpoolFrame, spool_frames

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Pool
    from aiokq.gateway.spool.segment import Segment

__all__ = ["LEAST_MESSAGE", "Reader", "next_frame"]

logger = logging.getLogger("aiokq.gateway")

CHUNK: Final = 256 * 1024
TURN_BYTES: Final = 1024 * 1024
"""Bytes after which other callbacks of the loop get a turn."""

FRAME_MAGIC: Final = b"aKqF"
FRAME_HEADER: Final = struct.Struct(">4sIIIqq")
FRAME_HEADER_BYTES: Final = FRAME_HEADER.size
LEAST_MESSAGE: Final = 29
"""Bytes of the smallest message."""

CHECKED_BYTES: Final = 64 * 1024 * 1024
"""The checks of one search after damage may read this many bytes plus the segment's size."""

ATTEMPTS: Final = 5
"""Number of times that a segment is read before its messages count as damaged."""


def next_frame(segment: Segment, position: int, expected: int) -> SpoolFrame | None:
    """Return the first valid frame at or after `position`, with its positions in the file.

    A message may contain bytes that look like frames. A frame is checked only if its header is
    plausible, and the checks of one search read at most CHECKED_BYTES plus the size of the segment.
    When this limit is reached, later frames are not found.

    Args:
        expected: the next sequence; the frame has this sequence or a later one.

    Raises:
        OSError: the segment cannot be read.
    """
    begin, left = position, CHECKED_BYTES + segment.size
    while position + FRAME_HEADER_BYTES <= segment.size:
        data = segment.read(CHUNK, position)
        if not data:
            return None
        at = data.find(FRAME_MAGIC)
        while at >= 0:
            where = position + at
            header = data[at : at + FRAME_HEADER_BYTES]
            if len(header) < FRAME_HEADER_BYTES:
                header = segment.read(FRAME_HEADER_BYTES, where)
            # Each message in between has at least LEAST_MESSAGE bytes.
            most = expected + (where - begin) // LEAST_MESSAGE
            size = _possible(header, expected, most)
            if size and where + size <= segment.size:
                left -= size
                if left < 0:
                    logger.error("too many bytes look like frames: file=%s", segment.path)
                    return None
                frames = spool_frames(segment.read(size, where))
                if frames:
                    _, end, sequence, messages, arrival = frames[0]
                    return SpoolFrame(
                        where + FRAME_HEADER_BYTES, where + end, sequence, messages, arrival
                    )
            at = data.find(FRAME_MAGIC, at + 1)
        position += max(len(data) - len(FRAME_MAGIC) + 1, 1)
    return None


def _possible(header: bytes, expected: int, most: int) -> int:
    """Return the size of the frame of a header; 0 if its numbers cannot be those of a frame."""
    if len(header) < FRAME_HEADER_BYTES:
        return 0
    _, size, _, messages, sequence, _ = FRAME_HEADER.unpack(header)
    if not expected <= sequence <= most or not messages or messages * LEAST_MESSAGE > size:
        return 0
    return FRAME_HEADER_BYTES + int(size)


def _search(segment: Segment, position: int, expected: int) -> SpoolFrame | None:
    """Call `next_frame` for a copy of a segment, and close the copy. Runs in a thread."""
    try:
        return next_frame(segment, position, expected)
    finally:
        segment.close()


class _Run(NamedTuple):
    """Consecutive messages that are fed together."""

    data: memoryview
    sequence: int
    messages: int
    arrival_ms: int


class Reader:
    """Reads the segments of a spool in order, and feeds their messages to a pool.

    Args:
        segments: the segments, which the owner extends.
        replay_end: messages before this sequence were written by an earlier process.
        on_change: called with a segment that was read to its end, or that lost messages.
        on_found: called at the end of a search after damage; until then, `feed` feeds nothing.

    Attributes:
        fed: number of messages that were fed.
        damaged: number of messages that could not be read.
        error: the error of the last attempt to read, if it failed.
    """

    def __init__(
        self,
        segments: deque[Segment],
        pool: Pool,
        replay_end: int,
        on_change: Callable[[Segment], None],
        on_found: Callable[[], None],
    ) -> None:
        self._segments = segments
        self._pool = pool
        self._replay_end = replay_end
        self._on_change = on_change
        self._on_found = on_found
        self._search: asyncio.Future[SpoolFrame | None] | None = None
        """The search for the next frame after damage, in a thread, until its result is used."""
        self._search_end = 0
        self._current: Segment | None = None
        self._position = 0
        self._expected = 0
        self._runs: deque[_Run] = deque()
        self._attempts = 0
        self._room = pool.max_bytes - pool.max_bytes // 8
        self.fed = 0
        self.damaged = 0
        self.error: OSError | None = None

    @property
    def segment(self) -> Segment | None:
        """The segment that is being read; earlier segments were read completely."""
        return self._current

    def stop(self) -> None:
        """Stop reading, and release the segments."""
        self._current = self._search = None
        self._runs.clear()

    # hot: once per wake-up of the loop
    def feed(self) -> tuple[bool, bool]:
        """Feed messages until TURN_BYTES are fed, none is left, or the pool has no room for them.

        An eighth of the pool is kept free for incomplete messages.

        Returns:
            Whether more can be fed at once, and whether the pool has no room.
        """
        left = TURN_BYTES
        # A part of the pool is reserved for incomplete messages of connections.
        used = self._pool.used_bytes()
        while left > 0:
            if not self._runs and not self._load():
                return False, False
            if not self._runs:
                continue
            run = self._runs[0]
            data = self._fitting(run, self._room - used)
            if not data:
                # `used` is too large if some was freed meanwhile, or if the pool has discarded
                # messages. `press` makes incomplete batches due, so it is called only without room.
                in_use = self._pool.used_bytes()
                if in_use >= used:
                    in_use = self._pool.press()
                    if in_use >= used:
                        return False, True
                used = in_use
                continue
            size = len(data)
            taken = self._pool.feed(
                data,
                sequence=run.sequence,
                replayed=run.sequence < self._replay_end,
                stop_when_full=True,
                arrival_ms=run.arrival_ms,
            )
            left -= taken
            if taken == len(run.data):
                used += taken + run.messages * self._pool.MESSAGE_OVERHEAD
                self.fed += run.messages
                self._runs.popleft()
                continue
            messages = sum(1 for _ in _sizes(run.data[:taken]))
            used += taken + messages * self._pool.MESSAGE_OVERHEAD
            self.fed += messages
            self._runs[0] = _Run(
                run.data[taken:], run.sequence + messages, run.messages - messages, run.arrival_ms
            )
            if taken < size:
                return False, True
        return True, False

    def _fitting(self, run: _Run, room: int) -> memoryview:
        """Return the first messages of a run that are charged at most `room` bytes.

        If the pool holds no message, except incomplete ones, the first message is returned even if
        it is charged more, because no later call would have more room for it.
        """
        overhead = self._pool.MESSAGE_OVERHEAD
        if len(run.data) + run.messages * overhead <= room:
            return run.data
        end = 0
        for size in _sizes(run.data):
            room -= size + overhead
            if room < 0:
                break
            end += size
        if not end and not self._pool.counts().held:
            end = next(_sizes(run.data))
        return run.data[:end]

    def _load(self) -> bool:
        """Read the next frames; return False if there are none yet, or they cannot be read now."""
        segment = self._current
        if segment is None:
            segment = self._next_segment()
            if segment is None:
                return False
        try:
            if self._position < segment.size and self._expected < segment.end:
                if not self._read(segment):
                    return False
                self._attempts = 0
                self.error = None
                return True
        except OSError as error:
            self._attempts += 1
            self.error = error
            segment.close()
            if self._attempts < ATTEMPTS:
                return False
            logger.error("the spool cannot be read: file=%s error=%s", segment.path, error)
            self._attempts = 0
        if not segment.sealed:
            return False
        self._lost(segment, segment.end)
        if segment.left:
            segment.close()  # so that only the current segments have open files
        self._current = None
        self._on_change(segment)
        return True

    def _next_segment(self) -> Segment | None:
        for segment in self._segments:
            # A finished segment of an earlier process is not read.
            if segment.base >= self._expected and segment.left:
                self._current = segment
                self._position, self._expected = SPOOL_HEADER_BYTES, segment.base
                return segment
        return None

    def _read(self, segment: Segment) -> bool:
        """Read the frames at the position; return False during a search after damage."""
        data, frames = memoryview(b""), []
        start = self._position
        if self._search is None:
            data = memoryview(segment.read(CHUNK, start))
            size = _possible(bytes(data[:FRAME_HEADER_BYTES]), self._expected, self._expected)
            if len(data) < size <= segment.size - start:  # a large message
                data = memoryview(segment.read(size, start))
            frames = spool_frames(data)
        if not frames:
            search = self._search
            if search is None:
                self._begin_search(segment)
                return False
            if not search.done():
                return False
            self._search = None
            frame = search.result()
            if frame is None:
                self._position = self._search_end
                return True
            data = memoryview(segment.read(frame.end - frame.begin, frame.begin))
            start = frame.begin
            frames = [frame._replace(begin=0, end=len(data))]
        for frame in frames:
            if frame.sequence > self._expected:
                self._lost(segment, min(frame.sequence, segment.end))
            if frame.sequence == self._expected and frame.sequence + frame.messages <= segment.end:
                self._runs.extend(_unfinished(segment, frame, data[frame.begin : frame.end]))
                self._expected += frame.messages
            # All other frames are skipped: their messages were not accepted, and the next segment
            # uses their sequences again.
        self._position = start + frames[-1].end
        return True

    def _begin_search(self, segment: Segment) -> None:
        """Begin to search for the next frame in a thread, because the search may take long."""
        self._search_end = segment.size
        search = self._search = asyncio.get_running_loop().run_in_executor(
            None, _search, segment.copy(), self._position, self._expected
        )
        search.add_done_callback(self._found)

    def _found(self, search: asyncio.Future[SpoolFrame | None]) -> None:
        if search.cancelled():
            return
        search.exception()  # marks the error as retrieved; `_read` raises it
        if search is self._search:
            self._on_found()

    def _lost(self, segment: Segment, until: int) -> None:
        """Count the messages before `until` that were not read."""
        if until <= self._expected:
            return
        lost = segment.finish_range(self._expected, until)
        if lost:
            segment.damaged = True
            self.damaged += lost
            self._on_change(segment)
            logger.error(
                "messages of the spool cannot be read: file=%s messages=%s", segment.path, lost
            )
        self._expected = until


def _sizes(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield size
        at += size


def _unfinished(segment: Segment, frame: SpoolFrame, data: memoryview) -> Iterator[_Run]:
    """Yield the unfinished messages of a frame as runs of consecutive messages."""
    first, messages = frame.sequence, frame.messages
    finished = segment.finished_in(first, first + messages)
    if not finished:
        yield _Run(data, first, messages, frame.arrival_ms)
        return
    begin = end = count = 0
    for index, size in enumerate(_sizes(data)):
        if segment.is_finished(first + index):
            if count:
                yield _Run(data[begin:end], first + index - count, count, frame.arrival_ms)
            begin = end = end + size
            count = 0
        else:
            end += size
            count += 1
    if count:
        yield _Run(data[begin:end], first + messages - count, count, frame.arrival_ms)
