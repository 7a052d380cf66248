"""The part of a log that handles its disk: segments, durability, and errors of the disk.

Producers, leader epochs and reads are in ``partition_log`` and ``log_reading``.

Source: Kafka ``LocalLog.java``. Tests: ``tests/unit/broker/log/test_local_log.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from aiokq.broker.log import file_names
from aiokq.broker.log.durability import Durability
from aiokq.broker.log.flusher import PendingFlush
from aiokq.broker.log.log_writer import LogWriter
from aiokq.broker.log.producer_snapshot import UnsyncedSnapshots
from aiokq.broker.log.segment import Segment
from aiokq.broker.log.segments import Segments
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.core.files import File

if TYPE_CHECKING:
    from aiokq.broker.log.cleaned_segment import CleanedSegment
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.opened_log import OpenedLog

__all__ = ["LocalLog"]


class LogListener(Protocol):
    """The part of a replica that the log of the replica uses."""

    def log_changed(self) -> None:
        """Handle a flush, a truncation, a close, a deletion or a failed directory.

        Called on the loop.
        """


class LocalLog(ABC):
    """The part of a ``PartitionLog`` that handles segments, syncs, and errors of the disk.

    Attributes:
        topic_partition: the partition of the log.
        directory: path of the log's directory.
        config: the topic's settings; changed by ``update_config``.
        durability: how far the log is synced.
        is_truncating: whether a truncation is in progress, or was left unfinished by an error; if
            so, nothing is appended.
        generation: grows with each truncation; results of work that began before the truncation are
            discarded.
        replica: the listener, set by the replica of the partition.
    """

    def __init__(self, opened: OpenedLog) -> None:
        self.topic_partition = opened.topic_partition
        self.directory = opened.directory
        self.config = opened.config
        self.durability = Durability(opened.config)
        self.replica: LogListener | None = None
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
        self._snapshots = UnsyncedSnapshots(opened.files, opened.directory)
        self._closed = False
        self.is_truncating = False
        self.generation = 0
        self._unsettled: list[CleanedSegment] = []
        # A clean shutdown writes files only if `_changed` is true, and a flush syncs directory
        # entries only if `_renamed` is true.
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
        """The segments, oldest first; a change of the list creates a new tuple."""
        return self._segments.all

    @property
    def failed(self) -> bool:
        """Whether the directory is offline; if so, nothing is written until the node restarts."""
        return self._disk.failure is not None

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed or deleted; if so, its paths may belong to another log."""
        return self._closed

    @property
    def recovery_point(self) -> int:
        """The offset before which all records are durable."""
        return self.durability.recovery_point

    @property
    def flush_policy_end(self) -> int:
        """The offset before which the flush policy allows records to be acknowledged.

        Records from this offset on wait for a sync. If no record waits, this is the log end offset.
        """
        durability = self.durability
        return durability.policy_end if durability.may_wait else self.log_end_offset

    def update_config(self, config: LogConfig) -> None:
        """Apply changed topic settings."""
        self.config = config
        self._writer.update_config(config)
        self.durability.update_config(config, self)

    def read_refused(self, error: OSError) -> KafkaStorage:
        """Return the error to raise after a read of this log's files has failed.

        If the log was closed or deleted meanwhile, the failure is not an error of the disk.
        Otherwise it is reported to ``DiskTrouble``, which may take the directory offline.
        """
        return self._closed_error() if self._closed else self._refused("read failed", error)

    def _refused(self, what: str, error: OSError | CorruptRecord) -> KafkaStorage:
        return self._disk.refused(self.topic_partition, what, error, self.directory)

    def check_usable(self) -> None:
        """Check that the log can be written.

        Raises:
            KafkaStorage: the log is closed or being truncated, or its directory is offline.
        """
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

    def begin_flush(self, before: int | None) -> PendingFlush | None:
        """Return the files that the caller has to sync to make records durable.

        Returns None if all these records and their files are durable already, or if the log is
        closed or being truncated. The returned files count as synced from now on. If their sync
        fails or is not done, the caller calls ``redo_flush``.

        Args:
            before: only records before this offset have to be durable; None means all.

        Raises:
            KafkaStorage: a file cannot be opened or written.
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
            files += self._snapshots.begin_sync(active.base_offset)
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
        """Mark the files of a failed flush for another flush."""
        for segment in failed.segments:
            segment.redo_sync()
        self._snapshots.redo_sync()
        for directory in failed.directories:
            if directory == self.directory:
                self._renamed = True
            else:
                self.durability.is_new = True

    def end_flush(self, done: PendingFlush) -> None:
        """Record that a flush has ended; notify the replica, which may advance its high watermark.

        If the flush began before a truncation, the recovery point is not raised, because records
        that were synced may have been cut off.
        """
        if done.generation == self.generation:
            self.durability.flushed(self, done.end_offset)
        self.notify_replica()

    def flush(self) -> None:
        """Make all records durable, but not the directory entries of new files.

        Waits for the disk, so it must not be called on the loop.
        """
        for segment in self._segments.all:
            segment.sync(finished=segment is not self._segments.active)
        self._snapshots.sync(self._segments.active.base_offset)
        self.durability.synced(self.log_end_offset)

    def sync_records(self) -> None:
        """Sync the ``.log`` and ``.txnindex`` files, but not the other files of the log.

        The directory entries of new segments are not synced. Waits for the disk, so it must not be
        called on the loop.

        Raises:
            KafkaStorage: the disk failed.
        """
        try:
            for segment in self._segments.all:
                segment.sync(finished=False)
        except OSError as error:
            raise self._refused("sync failed", error) from error

    def write_indexes(self) -> None:
        """Write the index entries of the newest segment to its files, except during a truncation.

        Raises OSError.
        """
        if not self.is_truncating:
            self._segments.active.flush_indexes()

    def notify_replica(self) -> None:
        """Notify the replica that the log has changed. Called on the loop."""
        if self.replica is not None:
            self.replica.log_changed()

    @abstractmethod
    def take_snapshot(self) -> None:
        """Write a snapshot of the producer state at the log end offset. Raises OSError."""

    def roll_idle(self, now_ms: int) -> bool:
        """Roll if the newest segment is older than segment.ms; return whether the log has rolled.

        The last segment of an idle log can then be compacted, unlike in Kafka, which checks
        segment.ms only at the next append.

        Raises:
            ColdRead: the segment's first timestamp has to be read from the disk first.
            KafkaStorage: the disk failed, the segment cannot be read, or the log is closed or being
                truncated.
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
        """Replace adjacent segments with their compacted copy.

        Readers see either the originals or the copy. The copy's files are durable; their names end
        in ``.swap`` until ``settle_segments``. After a crash before ``settle_segments``, recovery
        replaces the originals with the copy.

        Returns:
            False, with nothing changed, if an original is no longer in the log, or the log is
            deleted or being truncated.

        Raises:
            KafkaStorage: the directory is offline, and nothing is changed; or a file could not be
                renamed, and readers see the copy.
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
        """Rename swapped segments to their final names. The caller must sync the directory first.

        Raises:
            KafkaStorage: the disk failed.
        """
        if self._closed:
            return
        self._changed = self._renamed = True
        try:
            while self._unsettled:
                cleaned = self._unsettled[0]
                if cleaned in self._segments.all:  # if not, it was deleted under its temporary name
                    cleaned.rename("")
                    cleaned.release()
                del self._unsettled[0]
        except OSError as error:
            raise self._refused("segments not swapped", error) from error

    def take_removed(self) -> list[Segment]:
        """Return the segments that were removed from the log; the caller removes their files."""
        return self._segments.take_removed()

    def purge(self) -> None:
        """Remove the files of segments that were removed from the log.

        Raises:
            OSError: the disk failed; the next start removes the remaining files.
        """
        for segment in self.take_removed():
            segment.remove_renamed(file_names.DELETED)

    def retire(self) -> None:
        """Stop appends and writes, because the log is being deleted.

        The files are closed when the last response that is sent from them has ended.
        """
        self._closed = True
        self._segments.release()
        self.notify_replica()

    def close(self, clean: bool = True) -> None:
        """Close the files; with ``clean``, first write all that a start without recovery needs.

        Raises:
            KafkaStorage: the disk failed, the newest segment cannot be read, or a truncation is not
                finished; the directory must not get the clean shutdown marker.
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
        """Write the indexes and a producer snapshot; sync the records and leader epochs.

        The snapshot of the log end and the indexes of the newest segment are not synced, because
        that would take three times as long. If a power cut damages them, the next start detects
        the damage and rebuilds them from the log. The snapshot at the base offset of the newest
        segment is synced, because the records before that offset may be deleted.
        """
        self._segments.active.seal()
        self.take_snapshot()
        self.flush()
        self.purge()
        # A power cut could remove the directory entry of a file. After a clean shutdown there is no
        # recovery that would notice this. Without a segment, its records would be lost; without a
        # transaction index, aborted records would be read as committed.
        self._files.sync_dir(self.directory)
