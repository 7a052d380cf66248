"""Owns the checkpoint files of one log directory: an offset per partition in each of four.

What is noted here is written later, in any thread; a file is written only if it says something
else. What an offset means, and when it is written, is ``directory``'s and ``storage``'s.

Source: Kafka ``OffsetCheckpointFile.java``, ``LogManager.scala``.
Tests: ``tests/unit/broker/log/test_checkpoints.py``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import read_offsets, write_offsets
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.types import TopicPartition

__all__ = ["Checkpoint", "Checkpoints"]

logger = logging.getLogger("aiokq.broker.log")


class Checkpoint:
    """One checkpoint: what was noted, and what its file says. Noted on one thread, written in any.

    A file that is malformed is ignored, as each of these offsets can be done without: recovery
    reads more, or a reader sees records that were deleted.

    Attributes:
        path: of its file.
    """

    __slots__ = ("_files", "_offsets", "_owner", "_written", "path")

    def __init__(self, files: Files, path: str, owner: Checkpoints) -> None:
        self.path = path
        self._files = files
        self._owner = owner
        self._offsets: dict[TopicPartition, int] = {}
        # what the file says; None where that is not known, or there is none
        self._written: dict[TopicPartition, int] | None = None
        try:
            self._offsets = read_offsets(files, path)
        except CorruptRecord as error:
            logger.error("checkpoint ignored file=%s error=%s", path, error.message)
        if self._offsets:
            self._written = dict(self._offsets)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing in it, and never was: it needs no file while a node runs."""
        return self._written is None and not self._offsets

    def get(self, partition: TopicPartition) -> int | None:
        """The offset of a partition, if one was noted."""
        return self._offsets.get(partition)

    def note(self, partition: TopicPartition, offset: int) -> None:
        """A partition's offset is this now."""
        self._offsets[partition] = offset

    def forget(self, partition: TopicPartition) -> bool:
        """A partition has none any more; whether it had one."""
        return self._offsets.pop(partition, None) is not None

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all partitions but these."""
        kept = set(partitions)
        self._offsets = {tp: at for tp, at in self._offsets.items() if tp in kept}

    def write(self) -> None:
        """Write what was noted, unless the file says it; durable when it returns.

        Raises:
            OSError: the disk refused.
        """
        with self._owner.lock:
            # Copied only now: who comes last writes the latest.
            latest = dict(self._offsets)
            if self._owner.closed or self._written == latest:
                return
            self._written = None
            write_offsets(self._files, self.path, latest)
            self._written = latest


class Checkpoints:
    """The checkpoints of one log directory.

    Attributes:
        log_starts: where logs begin whose first records were deleted.
        recovery_points: up to where logs are durable.
        high_watermarks: up to where records were committed.
        cleaned_offsets: up to where logs were compacted.
        lock: held while one of them is written.
        closed: their directory may be another process's: nothing is written any more.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self.lock = threading.Lock()
        self.closed = False
        self.log_starts = Checkpoint(files, f"{directory}/{file_names.LOG_STARTS}", self)
        self.recovery_points = Checkpoint(files, f"{directory}/{file_names.RECOVERY_POINTS}", self)
        self.high_watermarks = Checkpoint(files, f"{directory}/{file_names.HIGH_WATERMARKS}", self)
        self.cleaned_offsets = Checkpoint(files, f"{directory}/{file_names.CLEANED_OFFSETS}", self)

    def forget(self, partition: TopicPartition) -> None:
        """A partition begins anew: what they say is of another one of its name.

        Durable before its first append. A log start left would hide acknowledged records after
        a kill, a recovery point vouch for segments that were never synced.

        Raises:
            OSError: the disk refused.
        """
        self.high_watermarks.forget(partition)
        for checkpoint in (self.cleaned_offsets, self.log_starts, self.recovery_points):
            if checkpoint.forget(partition):
                checkpoint.write()

    def forget_behind(self, partition: TopicPartition, end_offset: int) -> None:
        """Say nothing of a partition's records from an offset on, which are cut off or lost.

        What is written there next nobody has synced or compacted. Durable when it returns; in any
        thread.

        Raises:
            OSError: the disk refused.
        """
        for checkpoint in (self.recovery_points, self.cleaned_offsets):
            if (checkpoint.get(partition) or 0) > end_offset:
                checkpoint.note(partition, end_offset)
                checkpoint.write()
