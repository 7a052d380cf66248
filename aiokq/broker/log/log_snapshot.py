"""A point-in-time view of one log: ranges of its files, and its state in memory.

`aiokq.broker.snapshot` copies the files of the view while the log is appended to.

Tests: ``tests/unit/broker/test_snapshot.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.leader_epochs import EpochEntry
from aiokq.broker.log.producer_snapshot import encode_snapshot
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.log.segment import Segment
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["SnapshotFile", "LogSnapshot", "snapshot_log"]


class SnapshotFile(NamedTuple):
    """The first bytes of a file, which do not change while the file grows.

    Attributes:
        source: path of the file.
        name: file name in the copy.
        size: number of bytes.
        finished: whether the file is the ``.log`` of a finished segment.
    """

    source: str
    name: str
    size: int
    finished: bool


class LogSnapshot(NamedTuple):
    """A log at one moment.

    Attributes:
        generation: the log's generation.
        producers: the producer state at ``end``, as the content of a snapshot file.
        start, end: the log start and end offsets.
        cleaned: the offset before which the log was compacted; None if it never was.
    """

    log: PartitionLog
    generation: int
    segments: tuple[Segment, ...]
    files: list[SnapshotFile]
    producers: bytes
    epochs: tuple[EpochEntry, ...]
    start: int
    end: int
    high_watermark: int
    cleaned: int | None

    @property
    def is_current(self) -> bool:
        """Whether the log still has all these segments, and was not truncated since.

        Otherwise the files of this view may have been replaced.
        """
        if self.log.is_truncating or self.log.generation != self.generation:
            return False
        return set(map(id, self.segments)) <= set(map(id, self.log.segments))


def snapshot_log(
    log: PartitionLog, files: Files, crc32c: Checksum, cleaned: int | None
) -> LogSnapshot:
    """Write the newest segment's index files; return a view of the log. Called on the log's loop.

    Raises:
        OSError: the disk failed.
    """
    *finished, active = log.segments
    log.write_indexes()  # the index files of finished segments are complete
    found = []
    for segment in log.segments:
        for suffix in (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT):
            source = segment.path(suffix)
            if suffix == file_names.LOG:
                size = segment.size
            elif suffix == file_names.SNAPSHOT and segment.base_offset == log.log_end_offset:
                continue  # in the copy this file gets the content of ``producers``
            elif files.exists(source):
                size = files.stat_size(source)
            else:
                continue
            name = file_names.segment_file("", segment.base_offset, suffix).removeprefix("/")
            is_finished = suffix == file_names.LOG and segment is not active
            found.append(SnapshotFile(source, name, size, is_finished))
    return LogSnapshot(
        log,
        log.generation,
        (*finished, active),
        found,
        encode_snapshot(log.producers, crc32c),
        log.epochs.entries,
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        cleaned,
    )
