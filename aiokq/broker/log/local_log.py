"""Owns what a log is on disk: its segments, how much of them is durable, and errors of the disk.

Knows no producers, leader epochs or readers; those are in ``partition_log``.

Source: Kafka ``LocalLog.java``. Tests: ``tests/unit/broker/log/test_local_log.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.durability import Durability
from aiokq.broker.log.flusher import PendingFlush
from aiokq.broker.log.log_writer import LogWriter
from aiokq.broker.log.segment import Segment
from aiokq.broker.log.segments import Segments
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.core.files import File

if TYPE_CHECKING:
    from aiokq.broker.log.cleaned_segment import CleanedSegment
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.opened_log import OpenedLog

__all__ = ["LocalLog"]


class LocalLog(ABC):
    """The segments of one partition, as the flusher and the cleaner see a ``PartitionLog``.

    Attributes:
        topic_partition: whose records.
        directory: path of its files.
        config: its topic's settings; changed by ``update_config``.
        durability: how much of it would survive a power cut.
        is_truncating: whether its end is being cut off, or could not be; nothing is appended then.
        generation: grows with each truncation; results of work begun before are discarded.
        on_change: set by the replica; called on the loop when a flush has ended or failed, and when
            the log is truncated or closed, or its directory fails.
    """

    def __init__(self, opened: OpenedLog) -> None:
        self.topic_partition = opened.topic_partition
        self.directory = opened.directory
        self.config = opened.config
        self.durability = Durability(opened.config)
        self.on_change: Callable[[], None] | None = None
        self._files = opened.files
        self._disk = opened.disk
        self._segments = Segments(opened.segments, opened.open_files)
        self._writer = LogWriter(
            opened.topic_partition,
            opened.directory,
            files=opened.files,
            config=opened.config,
            segments=self._segments,
            disk=opened.disk,
        )
        self._closed = False
        self.is_truncating = False
        self.generation = 0
        self._unsettled: list[CleanedSegment] = []
        # what a clean stop has to do: anything at all, and make new names durable
        self._changed = self._renamed = opened.changed

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._segments.active.next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return sum(segment.size for segment in self._segments.all)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; a new tuple whenever they change."""
        return self._segments.all

    @property
    def failed(self) -> bool:
        """Whether its directory is offline; nothing is written until the node restarts."""
        return self._disk.failure is not None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed or deleted; its paths may belong to another log by now."""
        return self._closed

    @property
    def recovery_point(self) -> int:
        """Records before it are durable."""
        return self.durability.recovery_point

    @property
    def flush_policy_end(self) -> int:
        """The offset up to which the topic's flush policy asks for no sync that is still to come.

        The end of the log, unless ``flush.messages`` records or more were not synced.
        """
        durability = self.durability
        return durability.policy_end if durability.may_wait else self.log_end_offset

    def update_config(self, config: LogConfig) -> None:
        """Take over changed topic settings."""
        self.config = config
        self._writer.update_config(config)
        self.durability.update_config(config, self)

    # --- what the disk refuses

    def read_refused(self, error: OSError) -> KafkaStorage:
        """Log that a read of this log's files failed; the error to answer with.

        A log that was closed or deleted meanwhile is no error of the disk.
        """
        return self._closed_error() if self._closed else self._refused("read failed", error)

    def _refused(self, what: str, error: OSError | CorruptRecord) -> KafkaStorage:
        return self._disk.refused(self.topic_partition, what, error, self.directory)

    def check_usable(self) -> None:
        """Raise KafkaStorage if the log is closed, being truncated, or its directory offline."""
        failure = self._disk.failure
        if failure is not None:
            raise KafkaStorage(failure.message, topic_partition=self.topic_partition)
        if self._closed:
            raise self._closed_error()
        if self.is_truncating:
            raise self._truncating_error()

    def _truncating_error(self) -> KafkaStorage:
        return KafkaStorage(
            f"log of {self.topic_partition} is being truncated",
            topic_partition=self.topic_partition,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> KafkaStorage:
        return KafkaStorage(
            f"log of {self.topic_partition} is closed", topic_partition=self.topic_partition
        )

    # --- durability

    def begin_flush(self, before: int | None) -> PendingFlush | None:
        """What has to be synced to make records durable.

        None if nothing has, or while the log is closed or being truncated.

        Args:
            before: records from this offset on may be left out; None for none of them.

        Raises:
            KafkaStorage: a file cannot be opened.
        """
        if self._closed or self.is_truncating:
            return None
        *older, active = self._segments.all
        end = self.log_end_offset
        if before is not None and before <= active.base_offset:
            end = active.base_offset
        elif active.next_offset > self.recovery_point:
            older.append(active)
        files: list[File] = []
        taken: list[Segment] = []
        try:
            for segment in reversed(older):
                finished = segment is not active
                if segment.next_offset <= self.recovery_point and not (
                    finished and segment.needs_sync
                ):
                    break
                taken.append(segment)
                files += segment.begin_sync(finished=finished)
        except OSError as error:
            for segment in taken:
                segment.redo_sync()
            raise self._refused("flush failed", error) from error
        if end <= self.recovery_point and not files:
            return None
        directories: list[str] = []
        if self._renamed:
            self._renamed = False
            directories.append(self.directory)
        if self.durability.is_new:
            self.durability.is_new = False
            directories.append(self.directory.rpartition("/")[0] or "/")
        return PendingFlush(self, self.generation, end, taken, files, directories)

    def redo_flush(self, failed: PendingFlush) -> None:
        """Mark what ``begin_flush`` returned for another flush: not all of it was synced."""
        for segment in failed.segments:
            segment.redo_sync()
        for directory in failed.directories:
            if directory == self.directory:
                self._renamed = True
            else:
                self.durability.is_new = True

    def end_flush(self, done: PendingFlush) -> None:
        """Note that what ``begin_flush`` returned is synced; the replica may commit more.

        A flush that began before a truncation does not count: its records may have been cut off.
        """
        if done.generation == self.generation:
            self.durability.flushed(self, done.end_offset)
        self.tell_replica()

    def flush(self) -> None:
        """Make all records durable. Waits for the disk: for the thread that opens or closes it."""
        for segment in self._segments.all:
            segment.sync()
        self.durability.synced(self.log_end_offset)

    def write_indexes(self) -> None:
        """Bring the index files of the newest segment up to date. Raises OSError."""
        if not self.is_truncating:
            self._segments.active.flush_indexes()

    def tell_replica(self) -> None:
        """Call ``on_change``. On the loop."""
        if self.on_change is not None:
            self.on_change()

    # --- segments

    @abstractmethod
    def take_snapshot(self) -> None:
        """Write the producer state at the log's end. Raises OSError."""

    def roll_idle(self, now_ms: int) -> bool:
        """Begin a new segment if the newest is older than segment.ms; whether it was.

        Kafka does so at the next append only, so that an idle log is never compacted.

        Raises:
            KafkaStorage: the disk refused, or the segment cannot be read.
        """
        self.check_usable()
        try:
            idle = self._writer.is_idle(now_ms)
        except (OSError, CorruptRecord) as error:
            raise self._refused("not rolled", error) from error
        if idle:
            self._roll(now_ms)
        return idle

    def _roll(self, now_ms: int) -> None:
        self._changed = self._renamed = True
        base_offset = self.log_end_offset
        self._writer.roll(base_offset, now_ms, before=self.take_snapshot)
        self.durability.segment_finished(self, base_offset)

    def swap_segments(self, cleaned: CleanedSegment, originals: Sequence[Segment]) -> bool:
        """Replace adjacent segments by the compacted copy of them.

        Readers see either the originals or the copy. The copy's files are durable, and their names
        end in ``.swap`` until ``settle_segments``: after a crash, recovery puts them in the place
        of the originals.

        Returns:
            False if the originals are no longer the log's, or it is deleted or being truncated;
            nothing is done then.

        Raises:
            KafkaStorage: the disk refused; what readers see is changed nevertheless.
        """
        if self._closed or self.is_truncating:
            return False
        self.check_usable()
        known = set(map(id, self._segments.all[:-1]))
        if not known.issuperset(map(id, originals)):
            return False
        self._changed = self._renamed = True
        self._unsettled.append(cleaned)
        try:
            self._segments.swap(cleaned, originals)
        except OSError as error:
            raise self._refused("segments not swapped", error) from error
        return True

    @property
    def is_settled(self) -> bool:
        """Whether every segment that was swapped in has its final name."""
        return not self._unsettled

    def settle_segments(self) -> None:
        """Rename swapped segments to their final names, once those of the originals are gone.

        Raises:
            KafkaStorage: the disk refused.
        """
        if self._closed:
            return
        self._changed = self._renamed = True
        try:
            while self._unsettled:
                cleaned = self._unsettled[0]
                if cleaned in self._segments.all:  # else it was deleted meanwhile, as it was called
                    cleaned.rename("")
                    cleaned.release()
                del self._unsettled[0]
        except OSError as error:
            raise self._refused("segments not swapped", error) from error

    def take_removed(self) -> list[Segment]:
        """The segments that were removed from the log; the caller removes their renamed files."""
        return self._segments.take_removed()

    def purge(self) -> None:
        """Remove the files of segments that were removed from the log.

        Raises:
            OSError: the disk refused; the next start removes them.
        """
        for segment in self.take_removed():
            segment.remove_renamed(file_names.DELETED)

    # --- end

    def retire(self) -> None:
        """Stop appends and writes, as the directory is being deleted.

        The files are closed when the last response that is sent from them is finished.
        """
        self._closed = True
        self._segments.release()
        self.tell_replica()

    def close(self, clean: bool = True) -> None:
        """Close the files; with ``clean``, sync them and write what the next start needs.

        Raises:
            KafkaStorage: the disk refused; the directory must then not be marked clean.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if clean and self._disk.failure is not None:
                raise KafkaStorage(self._disk.failure.message)
            if clean and self.is_truncating:
                raise self._truncating_error()
            if clean and self._changed:
                self._close_clean()
        except (OSError, CorruptRecord) as error:
            raise self._refused("not closed", error) from error
        finally:
            self._segments.close()

    def _close_clean(self) -> None:
        """Write everything, and make the records durable, with the leader epochs.

        Indexes and snapshot are not synced, which would take three times as long: if a power cut
        damages them, the next start sees it and rebuilds them from the log.
        """
        self._segments.active.seal()
        self.take_snapshot()
        self.flush()
        self.purge()
        if self._renamed:
            self._files.sync_dir(self.directory)
