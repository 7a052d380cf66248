"""Truncation of a log's end: the position of the cut, and the order of changes to files.

Files derived from the records are cut first, the file with the records last. A crash in between
leaves a log that is longer than its derived files say; recovery reads such a log anyway. In the
other order, a checkpoint would count records that are appended after the cut as durable or
compacted.

The log start offset is not derived from records. A truncation that lowers it (``PartitionLog``)
lowers its checkpoint after the file is cut and before the first append. If the checkpoint were
lowered before the cut, a crash in between would bring deleted records back.

A log is truncated if it has diverged from the leader's (``PartitionLog.truncate_to``), or if a
recovery finds damage (``recovery``).

Source: Kafka ``UnifiedLog.truncateTo``, ``LocalLog.truncateTo``.
Tests: ``tests/unit/broker/log/test_truncation.py``, ``tests/property/test_log_replica.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.producer_snapshot import ProducerReplay, remove_snapshots_behind
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.broker.log.leader_epochs import LeaderEpochs
    from aiokq.broker.log.producer_state import ProducerState
    from aiokq.broker.log.segment import Segment
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["Cut", "cut_files", "find_cut", "rename_behind"]


@frozen
class Cut:
    """A log after a truncation.

    Attributes:
        segments: remaining segments, oldest first; the last ends at the cut.
        behind: removed segments.
        producers: producer state at the new end.
        keeps_snapshots: whether earlier producer snapshots stay; False if the log begins again
            without producers.
    """

    segments: Sequence[Segment]
    behind: Sequence[Segment]
    producers: ProducerState
    keeps_snapshots: bool = True


def find_cut(
    files: Files,
    directory: str,
    segments: Sequence[Segment],
    offset: int,
    high_watermark: int,
    *,
    crc32c: Checksum,
    now_ms: int,
) -> Cut:
    """Compute a cut that leaves no record from ``offset`` on. Reads only; in any thread.

    A batch that holds ``offset`` and earlier offsets is removed completely. Nothing must be
    appended meanwhile.

    Raises:
        OffsetOutOfRange: a batch that holds ``offset`` begins before the high watermark.
        OSError, CorruptRecord: the log cannot be read.
    """
    at = max(number for number, one in enumerate(segments) if one.base_offset <= offset)
    cut = segments[at].cut(offset, high_watermark)
    try:
        replay = ProducerReplay(
            files,
            directory,
            segments[0].base_offset,
            cut.next_offset,
            crc32c,
            now_ms,
            remove_later=False,
        )
        for segment in segments[:at]:
            if segment.next_offset > replay.start:
                copy = segment.copy()  # because the loop may read from the segment
                try:
                    replay.walk([copy])
                finally:
                    copy.close()
        replay.walk([cut])
        replay.state.map_end_offset = cut.next_offset
    finally:
        cut.close()
    return Cut([*segments[:at], cut], segments[at + 1 :], replay.state)


def cut_files(
    files: Files,
    directory: str,
    segment: Segment,
    epochs: LeaderEpochs,
    *,
    forget_behind: Callable[[int], None],
    remove_behind: Callable[[], None],
    keep_snapshots: bool = True,
) -> None:
    """Cut the files of a log to the end of ``segment``, which is shorter than its file.

    May be repeated after an error. May be called in any thread; waits for the disk.

    Args:
        epochs: leader epochs of the log, already cut in memory.
        forget_behind: lowers the checkpoints to an offset, durably.
        remove_behind: removes the later segments, durably, the newest first, so that a crash leaves
            no hole between segments.
        keep_snapshots: whether producer snapshots up to the new end stay.

    Raises:
        OSError: the disk failed.
    """
    end_offset = segment.next_offset
    forget_behind(end_offset)
    remove_snapshots_behind(files, directory, end_offset if keep_snapshots else -1)
    epochs.write()
    remove_behind()
    segment.flush_indexes()
    file = files.open(segment.path(file_names.LOG))
    try:
        file.truncate(segment.size)
        file.sync()  # otherwise a power cut could bring the old end back after newer records
    finally:
        file.close()


def rename_behind(files: Files, directory: str, cut: Cut) -> None:
    """Rename the files of the segments after a cut, durably, the newest first.

    If no segment remains, create the empty segment with which the log continues. If that segment
    has the name of an old one, a retry after an error may rename it too; it is then created again.
    """
    for segment in reversed(cut.behind):
        segment.add_suffix(file_names.DELETED)
    if cut.behind:
        files.sync_dir(directory)
    last = cut.segments[-1]
    if not files.exists(last.path(file_names.LOG)):
        last.create()
        last.release()
        files.sync_dir(directory)
