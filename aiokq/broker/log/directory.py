"""One log directory: its ids, lock and clean shutdown marker, and the partitions in it.

Which partitions should exist is recorded in the metadata log, which this module does not read.

Source: Kafka ``LogManager.scala``, KIP-858. Tests: ``tests/unit/broker/log/test_directory.py``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoints import Checkpoint, Checkpoints
from aiokq.broker.log.clean_shutdown import CleanShutdown
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.disk_trouble import DiskTrouble, is_full, remedy, unusable
from aiokq.broker.log.file_removal import FileRemoval, remove_directory
from aiokq.broker.log.meta_properties import (
    MetaProperties,
    find_meta_properties,
    write_meta_properties,
)
from aiokq.broker.log.open_files import OpenFiles
from aiokq.broker.log.partition_directories import PartitionDirectories
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.log.recovery import GAPS_ANYWHERE, Progress, open_log, unchecked_bytes
from aiokq.broker.log.stray_directories import StrayDirectories
from aiokq.core.descriptor_reserve import PROCESS
from aiokq.core.errors import KafkaStorage
from aiokq.core.files import Files, Lock
from aiokq.core.types import TopicPartition
from aiokq.records.header import Checksum

if TYPE_CHECKING:
    from aiokq.broker.log.flusher import Flusher

logger = logging.getLogger("aiokq.broker.log")


class LogDirectory:
    """A log directory that this process has locked; ``open`` creates the object.

    ``open`` changes no existing file, so that a start can still be refused. ``begin`` prepares the
    directory for changes, and is called before the first log is loaded.

    Used on the loop, with these exceptions. Existing logs are opened in other threads, each log in
    one thread; after an unclean shutdown several threads open logs, while logs that are already
    open are served. Several threads close logs. Checkpoints are written and files are removed in
    any thread.

    Attributes:
        path: path of the log directory.
        properties: the ids of the directory.
        clean: whether the last shutdown was clean, so that logs need no recovery. When the node
            stops, ``Storage`` replaces the value for a directory that has only the metadata log:
            the new value tells ``close_unused`` whether this stop is clean.
        disk: handles errors of the disk.
        checkpoints: the offset checkpoints of the directory.
        on_disk: finds the directories of partitions.
        strays: renames partition directories that are set aside or deleted, and finds those that
            were set aside.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        properties: MetaProperties,
        lock: Lock,
        *,
        crc32c: Checksum,
        random: Random,
        now: Callable[[], float],
        clean_shutdown: CleanShutdown,
        has_ids: bool,
    ) -> None:
        self.path = path
        self.properties = properties
        self.clean = clean_shutdown.found
        self._files = files
        self._lock = lock
        self._crc32c = crc32c
        self.disk = DiskTrouble(now, path)
        self._flusher: Flusher | None = None
        self._open_files = OpenFiles()
        PROCESS.add_cache(self._open_files)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._deleted: list[str] = []
        self.checkpoints = Checkpoints(files, path)
        # bound once, so that all logs share the two bound methods
        self._forget_behind = self.checkpoints.forget_behind
        self._lower_log_start = self.checkpoints.lower_log_start
        self.on_disk = PartitionDirectories(files, path)
        self.strays = StrayDirectories(files, path, random)
        self._clean_shutdown = clean_shutdown
        self._has_ids = has_ids
        self._has_begun = False
        # Error messages of logs that were not closed cleanly. The exceptions themselves are not
        # kept, because the frames of their tracebacks would keep files open.
        self._not_closed: list[str] = []
        self._closed = self._unrecovered = False
        self._unserved: set[TopicPartition] = set()  # partitions whose recovery has not ended

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        crc32c: Checksum,
        random: Random,
        now: Callable[[], float],
        node_id: int | None = None,
        cluster_id: str | None = None,
    ) -> LogDirectory:
        """Open and lock a log directory; create it if it is missing.

        Files are only read, except that a missing directory and its lock file are created.

        Args:
            now: returns the seconds of a monotonic clock; limits how often errors are logged.
            node_id: the broker's id; None takes the stored id, or 0 in a new directory.
            cluster_id: id of the cluster; None takes the stored id, or a random id in a new
                directory.

        Raises:
            ConfigError: the directory belongs to another node or cluster, or its
                ``meta.properties`` is invalid.
            KafkaStorage: the directory cannot be created, written or locked. The message says what
                to do.
        """
        try:
            files.mkdirs(path)
            lock = files.lock(f"{path}/{file_names.LOCK}")
        except BlockingIOError as error:
            raise KafkaStorage(
                f"log directory {path} is in use ({error.strerror}): stop the other broker, or"
                " choose another directory"
            ) from error
        except OSError as error:
            raise unusable(path, error) from error
        try:
            properties, has_ids = find_meta_properties(files, path, node_id, cluster_id, random)
            directory = cls(
                files,
                path,
                properties,
                lock,
                crc32c=crc32c,
                random=random,
                now=now,
                clean_shutdown=CleanShutdown(files, path),
                has_ids=has_ids,
            )
        except OSError as error:
            lock.release()
            raise unusable(path, error) from error
        except BaseException:
            lock.release()
            raise
        return directory

    def write_ids(self) -> None:
        """Store the ids of the directory durably, unless they are stored already.

        Raises:
            OSError: the disk failed.
        """
        if not self._has_ids:
            write_meta_properties(self._files, self.path, self.properties)
            self._has_ids = True

    def begin(self) -> None:
        """Prepare the directory for changes: remove the clean shutdown marker and leftovers.

        Called when the start cannot be refused any more. The removal of the marker is durable on
        return. Leftovers are directories of deleted partitions.

        Raises:
            OSError: the disk failed; no log may be loaded.
        """
        self.write_ids()
        self._clean_shutdown.remove()
        self._has_begun = True
        for name in self._files.listdir(self.path):
            if name.endswith(file_names.DELETED_DIRECTORY) and self._files.is_dir(
                f"{self.path}/{name}"
            ):
                remove_directory(self._files, f"{self.path}/{name}")

    @functools.cached_property
    def directory_id(self) -> uuid.UUID:
        """The id of the directory; ``open`` chooses an id if no id is stored."""
        # cached, because a start reads it once per partition
        found = self.properties.directory_uuid
        assert found is not None
        return found

    @property
    def open_files(self) -> OpenFiles:
        """The open files of the directory's logs."""
        return self._open_files

    @property
    def broker_epoch(self) -> int:
        """The broker epoch in the clean shutdown marker that was found; -1 if there was none.

        After ``set_broker_epoch``, the epoch that the next marker gets.
        """
        return self._clean_shutdown.broker_epoch

    def set_broker_epoch(self, broker_epoch: int) -> None:
        """Set the broker epoch of the registration, for the next clean shutdown marker."""
        self._clean_shutdown.broker_epoch = broker_epoch

    def attach(self, flusher: Flusher) -> None:
        """Set the flusher of logs that are opened from now on."""
        self._flusher = flusher

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The open logs, by partition."""
        return self._logs

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in the open logs."""
        return sum(log.size_bytes for log in list(self._logs.values()))

    def open_partition(
        self,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        *,
        now_ms: int,
    ) -> PartitionLog:
        """Load a partition's log and add it to ``logs``; see ``load_partition``."""
        log = self.load_partition(partition, topic_id, config, now_ms=now_ms)
        self.add(log)
        return log

    def load_partition(
        self,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        *,
        now_ms: int,
        is_new: bool = False,
        is_kafkas: bool = False,
        progress: Progress | None = None,
    ) -> PartitionLog:
        """Return the log of a partition: the existing one, recovered if necessary, or a new one.

        Any thread may call this. The log is not used by anything else before it is passed to
        ``add``.

        If the disk is too full to create a new log, the directory stays online. In all other cases
        a full disk takes the directory offline.

        Args:
            topic_id: id of the topic, written to the partition's directory if the directory has no
                valid topic id. A directory with the id of another topic is set aside. None accepts
                any id.
            is_new: whether the partition is being created. A missing log is created in any case.
            is_kafkas: whether Apache Kafka has written to the log.
            progress: called with a recovery's progress, in the calling thread.

        Raises:
            KafkaStorage: the disk failed or is full, or no file descriptor is left.
        """
        assert self._has_begun, "the clean shutdown marker must be removed before any change"
        directory = f"{self.path}/{file_names.partition_directory(partition)}"
        if not self.clean and not is_new:
            self._unserved.add(partition)
        says_so = exists = True
        try:
            says_so = topic_id is None or self.strays.set_aside_other(partition, topic_id)
            exists = self._files.is_dir(directory)
            if not exists:
                self.checkpoints.forget(partition)
            log = open_log(
                self._files,
                directory,
                partition,
                config=config,
                crc32c=self._crc32c,
                now_ms=now_ms,
                disk=self.disk,
                open_files=self._open_files,
                clean=self.clean or not exists,
                log_start_offset=self.checkpoints.log_starts.get(partition) or 0,
                high_watermark=self.checkpoints.high_watermarks.get(partition) or 0,
                recovery_point=self.checkpoints.recovery_points.get(partition) or 0,
                gaps_before=self._gaps_before(partition, config, is_kafkas=is_kafkas),
                forget_behind=self._forget_behind,
                lower_log_start=self._lower_log_start,
                progress=progress,
            )
            if topic_id is not None and not says_so:
                write_partition_metadata(self._files, directory, topic_id)
            self.checkpoints.forget_behind(partition, log.log_end_offset)
            # After a kill, an existing directory also counts as new: its name may be unsynced.
            self._settle_durability(log, is_new=not exists or not self.clean)
        except OSError as error:
            is_creation = is_new or not exists or not (says_so or self._may_be_written(partition))
            raise self._not_opened(partition, directory, error, is_creation, exists) from error
        return log

    def _may_be_written(self, partition: TopicPartition) -> bool:
        try:
            return self.on_disk.was_written(partition)
        except OSError:
            return True

    def _not_opened(
        self,
        partition: TopicPartition,
        directory: str,
        error: OSError,
        is_creation: bool,
        existed: bool,
    ) -> KafkaStorage:
        """Report a log that cannot be opened or created; return the error to raise.

        If the log directory stays online, and the partition's directory is new, the partition's
        directory is removed.
        """
        what = "created" if is_creation else "opened"
        self.disk.refused(partition, f"log not {what}", error, directory, may_be_full=is_creation)
        advice = remedy(error)
        if self.disk.failure is None:
            if not existed:
                self._unserved.discard(partition)
                with contextlib.suppress(OSError):  # the next attempt can use remaining files
                    self._files.remove_tree(directory)
            if is_full(error):
                advice = "free space on the disk; the broker then creates it"
        return KafkaStorage(
            f"log of {partition} cannot be {what}: {error.strerror or error} ({directory});"
            f" {advice}",
            topic_partition=partition,
        )

    def _settle_durability(self, log: PartitionLog, *, is_new: bool) -> None:
        """Set the recovery point of a loaded log, and attach the flusher.

        If the log has a flush policy, unsynced records are synced before the flusher is attached.
        """
        durability = log.durability
        durability.recovery_point = self.checkpoints.recovery_points.get(log.topic_partition) or 0
        durability.policy_end = log.log_end_offset
        durability.is_new = is_new
        if durability.has_policy and log.recovery_point < log.log_end_offset:
            # A leader may commit all records from now on, so a power cut must not remove any.
            log.flush()
            for path in (log.directory, self.path):
                self._files.sync_dir(path)
        if self._flusher is not None:
            durability.attach(self._flusher)

    def add(self, log: PartitionLog) -> None:
        """Add a loaded log to ``logs``. Called on the loop."""
        self._logs[log.topic_partition] = log
        self._unserved.discard(log.topic_partition)

    def _gaps_before(self, partition: TopicPartition, config: LogConfig, *, is_kafkas: bool) -> int:
        """Return the offset up to which compaction may have left gaps between segments.

        A gap before this offset does not mean that records were lost: the cleaner syncs a segment
        before it compacts the segment, so a power cut cannot remove records from it.
        """
        cleaned = self.checkpoints.cleaned_offsets.get(partition)
        # The settings of a topic with an empty cleanup.policy were lost with the metadata (see
        # `found_partitions`). The log of such a topic may have been compacted before the settings
        # were lost.
        found = not config.cleanup_policy
        if found or (is_kafkas and (cleaned is not None or config.compacted)):
            return GAPS_ANYWHERE
        return cleaned or 0

    def bytes_to_check(self, partition: TopicPartition) -> int:
        """Return how many bytes a recovery of the partition's log checks; 0 if unknown."""
        directory = f"{self.path}/{file_names.partition_directory(partition)}"
        try:
            point = self.checkpoints.recovery_points.get(partition) or 0
            return unchecked_bytes(self._files, directory, point)
        except OSError:
            return 0  # the error is logged when the log is opened

    def leave_unclean(self) -> None:
        """Make ``close`` and ``close_unused`` omit the clean shutdown marker.

        Called if a log was not recovered, or was not closed cleanly.
        """
        self._unrecovered = True

    def delete_partition(self, partition: TopicPartition) -> None:
        """Delete a partition's log by renaming its directory.

        ``removals`` returns a function that removes the files. The deletion is durable after
        ``sync_names``. The next start sets the directory of the partition aside if a power cut
        brings the directory back, or if the log directory is offline now.

        Raises:
            KafkaStorage: the disk failed.
        """
        directory = f"{self.path}/{file_names.partition_directory(partition)}"
        self._unserved.discard(partition)
        log = self._logs.pop(partition, None)
        if log is not None:
            log.retire()
        if self.disk.failure is not None:
            return  # no topic owns the directory any more, so the next start sets it aside
        try:
            if self._files.is_dir(directory):
                self._deleted.append(self.strays.rename(partition, file_names.DELETED_DIRECTORY))
        except OSError as error:
            raise self.disk.refused(partition, "log not deleted", error, directory) from error

    def sync_names(self) -> None:
        """Make all deletions of partitions durable. Waits for the disk; any thread may call this.

        Raises:
            KafkaStorage: the disk failed.
        """
        try:
            self._files.sync_dir(self.path)
        except OSError as error:
            raise self.disk.refused(None, "deletion not synced", error, self.path) from error

    def purge(self) -> None:
        """Remove the files of deleted partitions and segments now."""
        for _, remove in self.removals(0):
            remove()

    def removals(self, delay_ms: int) -> Iterable[tuple[int, Callable[[], None]]]:
        """Return a delay in milliseconds and a removal function for each group of deleted files.

        The groups contain the files that were deleted since the last call. The functions take long
        and may be called in any thread. The delay gives an operator time to undo a mistake by hand.
        A removal does not affect responses that are still sent from the files. Files that cannot be
        removed are logged, and removed at the next start.

        Args:
            delay_ms: the delay for deleted partitions; segments have their topic's own delay.
        """
        found: dict[int, FileRemoval] = {}
        if self._deleted:
            found[delay_ms] = FileRemoval(self._files, self._deleted)
            self._deleted = []
        for log in list(self._logs.values()):
            segments = log.take_removed()
            if segments:
                due = log.config.file_delete_delay_ms
                found.setdefault(due, FileRemoval(self._files)).segments.extend(segments)
        return found.items()

    def write_log_starts(self) -> None:
        """Write the log start offsets, so that deleted records stay deleted after a restart.

        Raises:
            KafkaStorage: the disk failed.
        """
        self.note_log_starts()
        self.save(self.checkpoints.log_starts)

    def note_log_starts(self) -> None:
        """Copy the log start offsets above 0 to their checkpoint, in memory."""
        for partition, log in list(self._logs.items()):
            # The offset is noted even if it is the base offset of the first segment: a power cut
            # may bring back the removed segments before it.
            if log.log_start_offset > 0:
                self.checkpoints.log_starts.note(partition, log.log_start_offset)

    def note_recovery_points(self) -> None:
        """Copy each log's recovery point to its checkpoint, in memory."""
        for partition, log in list(self._logs.items()):
            self.checkpoints.recovery_points.note(partition, log.recovery_point)

    def note_high_watermarks(self) -> None:
        """Copy each log's high watermark to its checkpoint, in memory."""
        for partition, log in list(self._logs.items()):
            self.checkpoints.high_watermarks.note(partition, log.high_watermark)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint unless its file is up to date.

        Waits for the disk; any thread may call this.

        Raises:
            KafkaStorage: the disk failed.
        """
        if checkpoint.is_blank:
            return
        try:
            checkpoint.write()
        except OSError as error:
            self.disk.refused(None, "checkpoint not written", error, checkpoint.path)
            raise unusable(self.path, error) from error

    def close_logs(self, logs: Iterable[PartitionLog], clean: bool = True) -> None:
        """Close some of the logs. If one cannot be closed, ``close`` raises the error later.

        Waits for the disk, so several threads may each close a part of the logs.
        """
        clean = clean and self.disk.failure is None
        for log in logs:
            try:
                log.close(clean)
            except KafkaStorage as error:
                self._not_closed.append(error.message)

    def close(self, clean: bool = True) -> None:
        """Close all logs and unlock the directory; a second call does nothing.

        Args:
            clean: sync all records and write the clean shutdown marker, so that the next start
                needs no recovery. The marker is not written if a log is not recovered, or after
                ``leave_unclean``. If False, or if the directory is offline, nothing is written, and
                the next start recovers the logs, as after a kill.

        Raises:
            KafkaStorage: a log or a file could not be written; the next start recovers the logs.
        """
        if self._closed:
            return
        self._closed = True
        if self.disk.failure is not None and not self._not_closed:
            clean = False  # the failure is logged already; the next start recovers
        try:
            self.close_logs(self._logs.values(), clean)
            if self._not_closed:
                raise KafkaStorage(
                    f"{len(self._not_closed)} of {len(self._logs)} logs in {self.path} were not "
                    "closed cleanly; the next start checks these logs and needs free disk space "
                    f"for that: {self._not_closed[0]}"
                )
            if clean and (self._unrecovered or self._unserved):
                self.write_log_starts()
            elif clean:
                self._close_clean()
        finally:
            with self.checkpoints.lock:
                self.checkpoints.closed = True
                self._lock.release()

    def close_unused(self) -> None:
        """Unlock a directory in which no log of a partition was opened.

        Called if the start was refused or cancelled, or if the node stops and the directory has
        only the metadata log. If ``begin`` was not called, no file is changed. Otherwise the
        clean shutdown marker is written if ``clean`` is true, except after ``leave_unclean``. If
        the write fails, the next start recovers the logs.
        """
        self._closed = True
        try:
            if self._has_begun and self.clean and not self._unrecovered:
                self._clean_shutdown.leave()
        except OSError as error:
            logger.warning("clean shutdown not recorded path=%s error=%s", self.path, error)
        finally:
            self._lock.release()

    def _close_clean(self) -> None:
        checkpoints = self.checkpoints
        try:
            for directory in self._deleted:
                remove_directory(self._files, directory)
            # Also keep the offsets of logs that could not be opened; drop those of deleted logs.
            checkpoints.keep(self.on_disk.names())
            self.note_log_starts()
            self.note_recovery_points()
            self.note_high_watermarks()
            checkpoints.write_all()
            self._clean_shutdown.leave()
        except OSError as error:
            raise unusable(self.path, error) from error
