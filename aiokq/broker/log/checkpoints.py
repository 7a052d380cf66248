"""The four offset checkpoints of one log directory.

Offsets are set in memory. Any thread may write a checkpoint to its file.

Source: Kafka ``OffsetCheckpointFile.java``, ``LogManager.scala``.
Tests: ``tests/unit/broker/log/test_checkpoints.py``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import read_offsets, write_offsets
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.types import TopicPartition

__all__ = ["Checkpoint", "Checkpoints"]

logger = logging.getLogger("aiokq.broker.log")


class Checkpoint:
    """One checkpoint: the offsets in memory, and the file to which any thread may write them.

    A malformed file is ignored, because a log can be opened without the offsets of a checkpoint.
    A recovery may then read more, and consumers may see deleted records again.
    """

    __slots__ = ("_files", "_offsets", "_owner", "_uncertain", "_written", "path")

    def __init__(self, files: Files, path: str, owner: Checkpoints) -> None:
        self.path = path
        self._files = files
        self._owner = owner
        self._offsets: dict[TopicPartition, int] = {}
        # The offsets in the file. None if nothing was written since the start, and the file was
        # missing, malformed or without offsets at the start.
        self._written: dict[TopicPartition, int] | None = None
        self._uncertain = False  # whether the last write failed, so that the content is unknown
        try:
            self._offsets = read_offsets(files, path)
        except CorruptRecord as error:
            logger.error("checkpoint ignored file=%s error=%s", path, error.message)
        if self._offsets:
            self._written = dict(self._offsets)

    @property
    def is_blank(self) -> bool:
        """Whether there are no offsets, there were none at the start, and nothing was written."""
        return self._written is None and not self._offsets and not self._uncertain

    def get(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def note(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset of a partition, in memory."""
        self._offsets[partition] = offset

    def lower(self, partition: TopicPartition, offset: int) -> None:
        """Lower the offset of a partition to at most ``offset``, in memory and in the file.

        Any thread may call this. Does nothing if the partition has no offset in memory.

        Raises:
            OSError: the disk failed.
        """
        noted = self._offsets.get(partition)
        if noted is None:
            return
        if noted > offset:
            self.note(partition, offset)
        with self._owner.lock:  # another thread may be writing the higher offset
            written = self._written
            is_stale = self._uncertain or written is None or written.get(partition, 0) > offset
        if is_stale:
            self.write()

    def forget(self, partition: TopicPartition) -> None:
        """Remove the offset of a partition, in memory."""
        self._offsets.pop(partition, None)

    def may_contain(self, partition: TopicPartition) -> bool:
        """Whether the file may contain an offset of a partition."""
        with self._owner.lock:
            return self._uncertain or (self._written is not None and partition in self._written)

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove the offsets of all partitions except these, in memory."""
        kept = set(partitions)
        self._offsets = {tp: at for tp, at in self._offsets.items() if tp in kept}

    def write(self) -> None:
        """Write the offsets to the file durably, unless it contains them already.

        Does nothing once ``Checkpoints.closed`` is set.

        Raises:
            OSError: the disk failed.
        """
        with self._owner.lock:
            # Copied under the lock, so that the last write to the file has the latest offsets.
            latest = dict(self._offsets)
            if self._owner.closed or (self._written == latest and not self._uncertain):
                return
            self._uncertain = True
            write_offsets(self._files, self.path, latest)
            self._written, self._uncertain = latest, False


class Checkpoints:
    """The checkpoints of one log directory.

    Attributes:
        log_starts: log start offsets of logs that do not begin at offset 0.
        recovery_points: the offset before which the records of each log are durable.
        high_watermarks: the high watermark of each log.
        cleaned_offsets: the offset before which each log was compacted.
        lock: held while a checkpoint is written.
        closed: set by ``LogDirectory.close``, which then unlocks the directory. From then on
            nothing is written, because another process may own the directory.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self.lock = threading.Lock()
        self.closed = False
        self.log_starts = Checkpoint(files, f"{directory}/{file_names.LOG_STARTS}", self)
        self.recovery_points = Checkpoint(files, f"{directory}/{file_names.RECOVERY_POINTS}", self)
        self.high_watermarks = Checkpoint(files, f"{directory}/{file_names.HIGH_WATERMARKS}", self)
        self.cleaned_offsets = Checkpoint(files, f"{directory}/{file_names.CLEANED_OFFSETS}", self)

    def keep(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove the offsets of all partitions except these, in memory."""
        for checkpoint in (
            self.log_starts,
            self.recovery_points,
            self.high_watermarks,
            self.cleaned_offsets,
        ):
            checkpoint.keep(partitions)

    def write_all(self) -> None:
        """Write all checkpoints durably; ``cleaned_offsets`` is written only if it is not blank.

        Raises:
            OSError: the disk failed.
        """
        self.log_starts.write()
        self.recovery_points.write()
        self.high_watermarks.write()
        if not self.cleaned_offsets.is_blank:
            self.cleaned_offsets.write()

    def forget(self, partition: TopicPartition) -> None:
        """Remove the offsets that an earlier log of a partition left. Called when a log is created.

        On return, all offsets except the high watermark are also removed from the files. Without
        the removal, a start after a kill would take the old log start offset and recovery point
        for those of the new log. The call may be repeated after an error.

        Raises:
            OSError: the disk failed.
        """
        self.high_watermarks.forget(partition)
        for checkpoint in (self.cleaned_offsets, self.log_starts, self.recovery_points):
            checkpoint.forget(partition)
            if checkpoint.may_contain(partition):
                checkpoint.write()

    def forget_behind(self, partition: TopicPartition, end_offset: int) -> None:
        """Lower the offsets of a partition to at most ``end_offset``; durable on return.

        Any thread may call this, before or after the log is cut to ``end_offset``. The log start
        offset is not lowered, because the ``.log`` may still contain deleted records.

        Raises:
            OSError: the disk failed.
        """
        for checkpoint in (self.recovery_points, self.cleaned_offsets, self.high_watermarks):
            checkpoint.lower(partition, end_offset)

    def lower_log_start(self, partition: TopicPartition, offset: int) -> None:
        """Lower the log start offset of a partition to at most ``offset``; durable on return.

        Called after a log was truncated, or was emptied and restarted at a lower offset. Any thread
        may call this. If the checkpoint were above the new log end offset, a recovery
        would treat the records that are appended next as deleted.

        Raises:
            OSError: the disk failed.
        """
        self.log_starts.lower(partition, offset)
