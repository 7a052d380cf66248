"""A view of a log for a cleaning: its segments and settings as they were when the cleaning began.

The view is created on the loop and may be read in an executor, because it never changes. Its
segment objects, however, may be used only on the loop.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.core.errors import CorruptRecord
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import LOG_OVERHEAD

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.log.segment import Segment
    from aiokq.broker.log.transaction_index import AbortedTransaction
    from aiokq.core.files import Files

__all__ = ["LogView", "SegmentView", "chunks", "following"]

_SIZE_KNOWN: Final = 17
"""Number of bytes at the beginning of a batch that contain its size and magic."""


class SegmentView(NamedTuple):
    """A finished segment.

    Attributes:
        segment: the segment object, for ``LocalLog.swap_segments``; only the loop may use it.
        next_offset: the next segment's base offset.
        size: bytes of whole batches in the ``.log`` file.
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
    """A log at the start of a cleaning.

    Attributes:
        segments: segments before ``upper_offset``, oldest first.
        first_dirty_offset: records before this offset were cleaned by earlier runs.
        upper_offset: records from this offset on are not cleaned.
        aborted: aborted transactions with records before ``upper_offset``.
        last_offsets: for each known producer id that has batches, the last offset.
        marker_epochs: for each known producer id that has only markers, the epoch.
        now_ms: the time at which the cleaning began, in milliseconds since the Unix epoch.
        buffer_bytes: size of the read buffer; the write buffer has the same size.
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
        """Return a view of the log as it is now. Called on the log's loop."""
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
        """The segments with records that were never cleaned."""
        return [one for one in self.segments if one.next_offset > self.first_dirty_offset]


def chunks(files: Files, view: SegmentView, buffer_bytes: int) -> Generator[memoryview, int, None]:
    """Yield the bytes of a segment in pieces that begin with a batch.

    The caller sends back the number of used bytes; the next piece begins after these bytes. If the
    number is 0, the next piece is one whole batch.

    Raises:
        FileNotFoundError: the segment was deleted meanwhile.
        CorruptRecord: the segment ends inside a batch, or a batch is malformed.
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
                # the batch at `position` is larger than the buffer, or the file ends inside it
                size = int.from_bytes(piece[8:12], "big", signed=True) + LOG_OVERHEAD
                if wanted < _SIZE_KNOWN or not wanted < size <= view.size - position:
                    raise CorruptRecord(f"{view.path} has no complete batch at position {position}")
                piece.release()
                buffer = bytearray(size)
            position += used
    finally:
        file.close()


def following(pieces: Generator[memoryview, int, None], used: int) -> memoryview | None:
    """Return the next piece; None at the end of the segment.

    Args:
        used: the number of used bytes in the previous piece; the next piece begins after them.
    """
    try:
        return pieces.send(used)
    except StopIteration:
        return None
