"""Owns how the end of a log is cut off: where the cut lies, and the order in which files change.

Whatever is derived from the records is cut first, the file with the records last. A crash in
between leaves a log that is longer than what is known of it, which a recovery reads anyway. The
other way round a checkpoint would say of records that are written behind the cut that they are
durable, or compacted.

A follower whose log has gone another way than its leader's is cut (``PartitionLog.truncate_to``),
and a log that a recovery finds to be damaged (``recovery``).

Source: Kafka ``UnifiedLog.truncateTo``, ``LocalLog.truncateTo``.
Tests: ``tests/unit/broker/log/test_truncation.py``, ``tests/property/test_log_replica.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokq.broker.log import file_names
from aiokq.broker.log.producer_snapshot import ProducerReplay, remove_snapshots_behind

if TYPE_CHECKING:
    from aiokq.broker.log.leader_epochs import LeaderEpochs
    from aiokq.broker.log.producer_state import ProducerState
    from aiokq.broker.log.segment import Segment
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["Cut", "cut_files", "find_cut", "rename_behind"]


class Cut(NamedTuple):
    """What is left of a log once it is cut.

    Attributes:
        segments: oldest first; the last of them ends at the cut.
        behind: the segments that go.
        producers: at the end of what is left.
    """

    segments: Sequence[Segment]
    behind: Sequence[Segment]
    producers: ProducerState


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
    """Where a log is cut so that no record from ``offset`` on is left. Reads only; in any thread.

    A batch that holds the offset and earlier ones goes as a whole. Nobody may append meanwhile.

    Raises:
        OffsetOutOfRange: such a batch begins before the high watermark.
        OSError, CorruptRecord: the log cannot be read.
    """
    at = max(number for number, one in enumerate(segments) if one.base_offset <= offset)
    cut = segments[at].cut(offset, high_watermark)
    try:
        replay = ProducerReplay(
            files, directory, cut.next_offset, crc32c, now_ms, remove_later=False
        )
        for segment in segments[:at]:
            if segment.next_offset > replay.start:
                copy = segment.copy()  # the loop reads from the segment meanwhile
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
    """Bring what is on disk in line with a segment that ends the log, and is shorter than its file.

    May be repeated after an error. In any thread; waits for the disk.

    Args:
        epochs: of the log, cut in memory.
        forget_behind: has checkpoints say nothing of records from an offset on, durably.
        remove_behind: removes the segments behind this one, durably, the newest first: a crash
            must leave no hole between segments.

    Raises:
        OSError: the disk refused.
    """
    end_offset = segment.next_offset
    forget_behind(end_offset)
    remove_snapshots_behind(files, directory, end_offset)
    epochs.write()
    remove_behind()
    segment.flush_indexes()
    file = files.open(segment.path(file_names.LOG))
    try:
        file.truncate(segment.size)
        file.sync()  # else a power cut could bring the end back, behind other records
    finally:
        file.close()


def rename_behind(files: Files, directory: str, cut: Cut) -> None:
    """Rename the files of the segments behind a cut, durably, the newest first.

    If no segment is left, create the one with which the log continues. A retry after an error may
    rename that one as well, if it has the name of an old one: it is empty, and created again.
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
