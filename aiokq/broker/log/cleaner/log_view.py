"""Owns what a cleaning is told of a log: its segments as they were when it began, and its rules.

Taken on the loop, used in an executor: nothing in it changes, and it touches no ``Segment``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.broker.log import file_names
from aiokq.core.errors import CorruptRecord
from aiokq.records.header import LOG_OVERHEAD

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.log.segment import Segment
    from aiokq.broker.log.transaction_index import AbortedTransaction
    from aiokq.core.files import Files

__all__ = ["LogView", "SegmentView", "chunks", "following"]

_SIZE_KNOWN: Final = 17
"""Bytes of a batch from which its size and magic can be read."""


class SegmentView(NamedTuple):
    """A segment that is not appended to any more.

    Attributes:
        segment: to be recognised by when the cleaning is over; not to be touched off the loop.
        next_offset: the next segment's base offset.
        size: bytes of whole batches in its ``.log``.
    """

    segment: Segment
    path: str
    base_offset: int
    next_offset: int
    size: int

    @classmethod
    def of(cls, segment: Segment) -> SegmentView:
        return cls(
            segment,
            segment.path(file_names.LOG),
            segment.base_offset,
            segment.next_offset,
            segment.size,
        )


class LogView(NamedTuple):
    """A log as a cleaning finds it.

    Attributes:
        segments: those before ``upper_offset``, oldest first.
        first_dirty_offset: records before it were cleaned by an earlier run.
        upper_offset: records from here on are not cleaned: base offset of a segment.
        aborted: transactions with records before ``upper_offset``.
        last_offsets: of each live producer with records the last offset it wrote.
        marker_epochs: the epoch of each live producer without any.
        now_ms: the time of the run.
        buffer_bytes: to be read at a time, and as many to be kept before they are written.
    """

    name: str
    directory: str
    config: LogConfig
    segments: tuple[SegmentView, ...]
    first_dirty_offset: int
    upper_offset: int
    aborted: tuple[AbortedTransaction, ...]
    last_offsets: Mapping[int, int]
    marker_epochs: Mapping[int, int]
    now_ms: int
    buffer_bytes: int

    @classmethod
    def of(
        cls, log: PartitionLog, first_dirty: int, upper: int, *, now_ms: int, buffer_bytes: int
    ) -> LogView:
        """The log as it is now. On its loop."""
        segments = tuple(
            SegmentView.of(segment) for segment in log.segments if segment.base_offset < upper
        )
        producers = list(log.producers)
        return cls(
            str(log.topic_partition),
            log.directory,
            log.config,
            segments,
            first_dirty,
            upper,
            tuple(log.aborted_transactions(segments[0].base_offset if segments else 0, upper)),
            {p.producer_id: p.batches[-1].last_offset for p in producers if p.batches},
            {p.producer_id: p.producer_epoch for p in producers if not p.batches},
            now_ms,
            max(buffer_bytes, 1),
        )

    @property
    def dirty(self) -> Sequence[SegmentView]:
        """The segments that hold records no run has cleaned yet."""
        return [one for one in self.segments if one.next_offset > self.first_dirty_offset]


def chunks(files: Files, view: SegmentView, buffer_bytes: int) -> Generator[memoryview, int, None]:
    """The bytes of a segment, piece by piece, each beginning with a batch.

    To be sent how many bytes of the piece were used; the next one begins behind them.

    Raises:
        FileNotFoundError: the segment was deleted meanwhile.
        CorruptRecord: it ends within a batch, or what should be one is none.
    """
    file = files.open(view.path, writable=False)
    try:
        buffer = bytearray(min(max(buffer_bytes, _SIZE_KNOWN), view.size))
        position = 0
        while position < view.size:
            wanted = min(len(buffer), view.size - position)
            piece = memoryview(buffer)[:wanted]
            if file.preadinto(piece, position) != wanted:
                raise CorruptRecord(f"{view.path} has fewer than {view.size} bytes")
            used = yield piece
            if not used:
                # A batch larger than the buffer, or the end of the file within one.
                size = int.from_bytes(piece[8:12], "big", signed=True) + LOG_OVERHEAD
                if wanted < _SIZE_KNOWN or not wanted < size <= view.size - position:
                    raise CorruptRecord(f"{view.path} has no whole batch at position {position}")
                piece.release()
                buffer = bytearray(size)
            position += used
    finally:
        file.close()


def following(pieces: Generator[memoryview, int, None], used: int) -> memoryview | None:
    """The next piece, once ``used`` bytes of the last one were; None at the end."""
    try:
        return pieces.send(used)
    except StopIteration:
        return None
