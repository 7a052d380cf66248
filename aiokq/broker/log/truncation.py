"""Truncation of a log's end: the position of the cut, and the order of changes to files.

Files derived from the records are cut first. The file with the records is cut last. A crash in
between leaves records that the derived files do not cover; recovery reads these records and
completes the derived files. If the records were cut first, a crash in between would leave
checkpoints beyond the log end offset. Records that are appended later would count as durable or
compacted.

A log that is restarted with an empty segment (``restart_files``) loses all leader epochs and
producers. Its segments are removed before the leader epoch file is cleared and the producer
snapshots are removed. In the other order, a crash in between could leave records without their
epochs and producers, because recovery does not read records before the recovery point.

The log start offset is not derived from records. ``PartitionLog`` lowers the log start checkpoint
after the file is cut and before the first append. If the checkpoint were lowered before the cut, a
crash in between would bring deleted records back.

A log is truncated if it has diverged from the leader's log (``PartitionLog.truncate_to``), or if a
recovery finds damage (``recovery``).

Source: Kafka ``UnifiedLog.truncateTo``, ``truncateFullyAndStartAt``, ``LocalLog.truncateTo``.
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

__all__ = ["Cut", "cut_files", "find_cut", "rename_segments", "restart_files"]


@frozen
class Cut:
    """A log after a truncation.

    Attributes:
        segments: remaining segments, oldest first; the last ends at the cut.
        behind: removed segments.
        producers: producer state at the new end.
        is_restart: whether ``PartitionLog.start_at`` empties the log; ``segments`` is then one new
            segment.
    """

    segments: Sequence[Segment]
    behind: Sequence[Segment]
    producers: ProducerState
    is_restart: bool = False


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
    """Compute a cut that leaves no record from ``offset`` on.

    Any thread may call this. Nothing is cut yet; but malformed producer snapshots are removed, and
    damaged index files are rebuilt. A batch that holds ``offset`` and earlier offsets is removed
    completely. The caller makes sure that nothing is appended meanwhile.

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
            repair=False,
        )
        for segment in segments[:at]:
            if segment.next_offset > replay.start:
                copy = segment.copy()  # the event loop may read from `segment` meanwhile
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
) -> None:
    """Cut the files of a log to the end of ``segment``.

    May be repeated after an error. May be called in any thread; waits for the disk.

    Args:
        epochs: leader epochs of the log, already cut in memory.
        forget_behind: lowers the checkpoints to an offset, durably.
        remove_behind: removes the later segments, durably. It is called before ``segment`` is cut.

    Raises:
        OSError: the disk failed.
    """
    end_offset = segment.next_offset
    forget_behind(end_offset)
    remove_snapshots_behind(files, directory, end_offset)
    # The epochs are written before the records are cut. Otherwise recovery after a kill would find
    # the removed epochs in the file, and keep the newest of them.
    epochs.write()
    remove_behind()
    segment.flush_indexes()
    file = files.open(segment.path(file_names.LOG))
    try:
        file.truncate(segment.size)
        file.sync()  # otherwise, after a power cut, removed records could follow newer records
    finally:
        file.close()


def restart_files(
    files: Files,
    directory: str,
    segment: Segment,
    behind: Sequence[Segment],
    epochs: LeaderEpochs,
    *,
    forget_behind: Callable[[int], None],
) -> None:
    """Remove all segments of a log, and create the empty ``segment`` with which it is restarted.

    May be repeated after an error. May be called in any thread; waits for the disk. If the new
    segment has the name of a removed segment, a repeated call also renames the new segment, and
    creates it again.

    Args:
        behind: the segments to remove.
        epochs: leader epochs of the log, already empty in memory.
        forget_behind: lowers the checkpoints to an offset, durably.

    Raises:
        OSError: the disk failed.
    """
    forget_behind(segment.base_offset)
    rename_segments(files, directory, behind)
    remove_snapshots_behind(files, directory, -1)
    epochs.write()
    files.sync_dir(directory)  # so that a power cut leaves no old snapshot with the new segment
    if not files.exists(segment.path(file_names.LOG)):
        segment.create()
        segment.release()
        files.sync_dir(directory)


def rename_segments(files: Files, directory: str, segments: Sequence[Segment]) -> None:
    """Rename the files of removed segments, durably.

    The newest segment is renamed first, so that a crash leaves no hole between segments.
    """
    for segment in reversed(segments):
        segment.add_suffix(file_names.DELETED)
    if segments:
        files.sync_dir(directory)
