"""Owns one log directory: its ids, lock and clean-stop marker, and the partitions in it.

Knows no topics: which partitions should exist is the metadata log's to say.

Source: Kafka ``LogManager.scala``, KIP-858. Tests: ``tests/unit/broker/log/test_directory.py``.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import names
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.disk_trouble import DiskTrouble, remedy, unusable
from aiokq.broker.log.meta_properties import MetaProperties, decode_meta_properties, random_id
from aiokq.broker.log.open_files import OpenFiles
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.recovery import GAPS_ANYWHERE, Progress, open_log, unchecked_bytes
from aiokq.broker.log.text_files import (
    format_uuid,
    read_offsets,
    read_partition_metadata,
    write_offsets,
    write_partition_metadata,
)
from aiokq.core.errors import ConfigError, CorruptRecord, KafkaStorage
from aiokq.core.files import Files, Lock
from aiokq.core.types import TopicPartition
from aiokq.records.header import Checksum

if TYPE_CHECKING:
    from aiokq.broker.log.flusher import Flusher
    from aiokq.broker.log.segment import Segment

logger = logging.getLogger("aiokq.broker.log")

NO_BROKER_EPOCH: Final = -1


class LogDirectory:
    """A directory of partition logs that this process has locked.

    ``open`` makes one. Touched from one thread at a time; opening a log may take long after an
    unclean stop and belongs in an executor then.

    Attributes:
        path: of the directory.
        properties: its ids.
        clean: the last stop was clean, so nothing needs to be scanned.
        disk: what becomes of it when its disk refuses.
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
        clean: bool,
    ) -> None:
        self.path = path
        self.properties = properties
        self.clean = clean
        self._files = files
        self._lock = lock
        self._crc32c = crc32c
        self._random = random
        self.disk = DiskTrouble(now, path)
        self._flusher: Flusher | None = None
        self._open_files = OpenFiles()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._deleted: list[str] = []
        # what each checkpoint on disk says
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._starts = self._read(names.LOG_STARTS)
        self._points = self._read(names.RECOVERY_POINTS)
        self._watermarks = self._read(names.HIGH_WATERMARKS)
        self._cleaned = self._read(names.CLEANED_OFFSETS)
        self._broker_epoch = NO_BROKER_EPOCH
        self._not_closed: list[KafkaStorage] = []
        self._closed = self._unlocked = False
        self._unrecovered = False
        self._checkpoints = threading.Lock()

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
        """Open a log directory, which is made if it is missing, and lock it.

        Args:
            now: seconds, by a clock that goes on; for how often trouble is logged.
            node_id: the broker's; None takes the stored one, 0 in a new directory.
            cluster_id: None takes the stored one, a new one in a new directory.

        Raises:
            ConfigError: another node's or cluster's directory.
            KafkaStorage: it cannot be made, written or locked; says what to do.
        """
        try:
            files.mkdirs(path)
            lock = files.lock(f"{path}/{names.LOCK}")
        except BlockingIOError as error:
            raise KafkaStorage(
                f"log directory {path} is in use ({error.strerror}): stop the other broker, or"
                " choose another directory"
            ) from error
        except OSError as error:
            raise unusable(path, error) from error
        try:
            properties = _adopt(files, path, node_id, cluster_id, random)
            marker = f"{path}/{names.CLEAN_SHUTDOWN}"
            clean = files.exists(marker)
            broker_epoch = _broker_epoch(files, marker) if clean else NO_BROKER_EPOCH
            if clean:
                # gone at once: a crash while loading is no clean stop (KAFKA-10471)
                files.remove(marker)
                files.sync_dir(path)
            directory = cls(
                files,
                path,
                properties,
                lock,
                crc32c=crc32c,
                random=random,
                now=now,
                clean=clean,
            )
            directory._broker_epoch = broker_epoch
            directory._remove_leftovers()
        except OSError as error:
            lock.release()
            raise unusable(path, error) from error
        except BaseException:
            lock.release()
            raise
        return directory

    def attach(self, flusher: Flusher) -> None:
        """The logs opened from now on ask it for their flushes."""
        self._flusher = flusher

    # --- partitions

    def partitions(self) -> dict[TopicPartition, uuid.UUID | None]:
        """The partitions that have a directory, each with the topic id it says it is of."""
        found: dict[TopicPartition, uuid.UUID | None] = {}
        for name in self._files.listdir(self.path):
            partition = names.parse_partition_directory(name)
            if partition is not None and self._files.is_dir(f"{self.path}/{name}"):
                try:
                    topic_id = read_partition_metadata(self._files, f"{self.path}/{name}")
                except CorruptRecord as error:
                    logger.warning("topic id unknown partition=%s %s", partition, error.message)
                    topic_id = None
                found[partition] = topic_id
        return found

    def has_segments(self, partition: TopicPartition) -> bool:
        """Whether the directory of a partition has a log in it.

        Raises:
            OSError: the disk refused.
        """
        found = self._files.listdir(f"{self.path}/{names.partition_directory(partition)}")
        return any(name.endswith(names.LOG) for name in found)

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The open logs."""
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
        is_kafkas: bool = False,
        progress: Progress | None = None,
    ) -> PartitionLog:
        """The log of a partition: the one on disk, made sound if need be, or a new one.

        Args:
            topic_id: written down for a new one; a directory of another id is set aside. None
                takes whatever is there.
            is_kafkas: Apache Kafka has written to it.
            progress: told of a recovery's progress, from the thread that runs this.

        Raises:
            KafkaStorage: the disk refused.
        """
        directory = f"{self.path}/{names.partition_directory(partition)}"
        try:
            if topic_id is not None:
                self._set_stray_aside(partition, topic_id)
            exists = self._files.is_dir(directory)
            if not exists:
                self._forget(partition)
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
                log_start_offset=self._starts.get(partition, 0),
                recovery_point=self._points.get(partition, 0),
                gaps_before=self._gaps_before(partition, config, is_kafkas=is_kafkas),
                progress=progress,
            )
            if topic_id is not None and not self._files.exists(
                f"{directory}/{names.PARTITION_METADATA}"
            ):
                write_partition_metadata(self._files, directory, topic_id)
            if self._points.get(partition, 0) > log.log_end_offset:
                # Recovery cut the log: what is written behind the cut, nobody has synced.
                self._points[partition] = log.log_end_offset
                self._write(names.RECOVERY_POINTS, self._points)
            if self._cleaned.get(partition, 0) > log.log_end_offset:
                self._cleaned[partition] = log.log_start_offset
            log.durability.recovery_point = min(self._points.get(partition, 0), log.log_end_offset)
            # also after a kill: nobody knows whether it came to the sync of its name
            log.durability.is_new = not exists or not self.clean
            if log.durability.has_policy and log.recovery_point < log.log_end_offset:
                # readers see it all from now on: no power cut may take it
                log.flush()
                for path in (directory, self.path):
                    self._files.sync_dir(path)
            if self._flusher is not None:
                log.durability.attach(self._flusher)
        except OSError as error:
            self.disk.refused(partition, "log not opened", error, directory)
            raise KafkaStorage(
                f"log of {partition} cannot be opened: {error.strerror or error} ({directory});"
                f" {remedy(error)}",
                topic_partition=partition,
            ) from error
        self._logs[partition] = log
        return log

    def _gaps_before(self, partition: TopicPartition, config: LogConfig, *, is_kafkas: bool) -> int:
        """Up to where compaction may have left gaps between the segments of a log.

        What was compacted was synced before: no power cut takes it.
        """
        cleaned = self._cleaned.get(partition)
        # Without a policy it is a log that was found: nobody knows whether it was compacted.
        found = not config.cleanup_policy
        if found or (is_kafkas and (cleaned is not None or config.compacted)):
            return GAPS_ANYWHERE
        return cleaned or 0

    def bytes_to_check(self, partition: TopicPartition) -> int:
        """How much of a log a recovery reads, from the recovery point on; 0 if nobody knows."""
        directory = f"{self.path}/{names.partition_directory(partition)}"
        try:
            return unchecked_bytes(self._files, directory, self._points.get(partition, 0))
        except OSError:
            return 0  # said when it is opened

    def leave_unclean(self) -> None:
        """Leave no marker of a clean stop: some log here was not recovered."""
        self._unrecovered = True

    def _forget(self, partition: TopicPartition) -> None:
        """A partition begins anew: what the checkpoints say is of another one of its name.

        Durable before its first append. A log start left would hide acknowledged records after
        a kill, a recovery point vouch for segments that were never synced.
        """
        self._watermarks.pop(partition, None)
        if self._cleaned.pop(partition, None) is not None:
            self._write(names.CLEANED_OFFSETS, self._cleaned)
        if self._starts.pop(partition, None) is not None:
            self.write_log_starts()
        if self._points.pop(partition, None) is not None:
            self._write(names.RECOVERY_POINTS, self._points)

    def delete_partition(self, partition: TopicPartition) -> None:
        """Delete a partition's log: gone at once by name, its files when ``purge`` is called.

        Raises:
            KafkaStorage: the disk refused.
        """
        directory = f"{self.path}/{names.partition_directory(partition)}"
        log = self._logs.pop(partition, None)
        if log is not None:
            log.retire()
        if self.disk.failure is not None:
            return  # no topic owns it any more: the next start sets it aside
        try:
            if self._files.is_dir(directory):
                self._deleted.append(self._rename_away(partition, names.DELETED_DIRECTORY))
        except OSError as error:
            raise self.disk.refused(partition, "log not deleted", error, directory) from error

    def set_aside(self, partition: TopicPartition) -> str:
        """Rename the directory of a partition that no topic owns, as Kafka does; its new path.

        Raises:
            OSError: the disk refused.
        """
        return self._rename_away(partition, names.STRAY_DIRECTORY)

    def strays(self) -> dict[tuple[uuid.UUID, int], str]:
        """The directories that were set aside, by topic id and partition number."""
        found: dict[tuple[uuid.UUID, int], str] = {}
        for name in self._files.listdir(self.path):
            number = names.parse_stray_directory(name)
            if number is None:
                continue
            try:
                topic_id = read_partition_metadata(self._files, f"{self.path}/{name}")
            except CorruptRecord:
                continue
            if topic_id is not None:
                found[topic_id, number] = f"{self.path}/{name}"
        return found

    def take_back(self, partition: TopicPartition, path: str) -> None:
        """Give a directory that was set aside its partition's name again.

        Raises:
            OSError: the disk refused.
        """
        self._files.rename(path, f"{self.path}/{names.partition_directory(partition)}")
        self._files.sync_dir(self.path)

    def _rename_away(self, partition: TopicPartition, suffix: str) -> str:
        """Give a partition's directory a name that is no partition's; the new path."""
        directory = f"{self.path}/{names.partition_directory(partition)}"
        unique = uuid.UUID(int=self._random.getrandbits(128)).hex
        renamed = f"{self.path}/{names.renamed_directory(partition, unique, suffix)}"
        self._files.rename(directory, renamed)
        self._files.sync_dir(self.path)
        return renamed

    def _set_stray_aside(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Records of another topic of the same name must not be served as this one's.

        A stop between the record of a deletion and the deletion leaves them. Kept, not removed:
        they may also be somebody's who copied a directory here.
        """
        directory = f"{self.path}/{names.partition_directory(partition)}"
        try:
            stored = read_partition_metadata(self._files, directory)
        except CorruptRecord:
            return
        if stored is not None and stored != topic_id:
            renamed = self.set_aside(partition)
            logger.warning(
                "directory of another topic set aside partition=%s topic_id=%s kept=%s",
                partition,
                format_uuid(stored),
                renamed,
            )

    def purge(self) -> None:
        """Remove the files of deleted partitions and segments, now."""
        for _, remove in self.removals(0):
            remove()

    def removals(self, delay_ms: int) -> Iterable[tuple[int, Callable[[], None]]]:
        """What was deleted since the last call: ways to remove its files, and when to.

        They may be called in any thread: it takes long. Waiting ``file.delete.delay.ms`` allows to
        undo a mistake by hand, as in Kafka. Responses that are still sent from the files are not
        disturbed. What cannot be removed is logged, and removed at the next start.

        Args:
            delay_ms: of partitions; segments have their topic's.
        """
        found: dict[int, _Removal] = {}
        if self._deleted:
            found[delay_ms] = _Removal(self._remove, self._deleted, [])
            self._deleted = []
        for log in list(self._logs.values()):
            segments = log.gone()
            if segments:
                due = log.config.file_delete_delay_ms
                found.setdefault(due, _Removal(self._remove, [], [])).segments.extend(segments)
        return found.items()

    # --- checkpoints

    def write_log_starts(self) -> None:
        """Write where each log starts, so that deleted records stay deleted after a restart.

        Raises:
            KafkaStorage: the disk refused.
        """
        self.note_log_starts()
        self.save_log_starts()

    def note_log_starts(self) -> None:
        """Take note of where each log starts now, for ``save_log_starts``."""
        for partition, log in list(self._logs.items()):
            # Also where it is the base of the first segment: a power cut may bring back the
            # segments before it.
            if log.log_start_offset > 0:
                self._starts[partition] = log.log_start_offset

    def note_recovery_points(self) -> None:
        """Take note of what is durable of each log now, for ``save_recovery_points``."""
        for partition, log in list(self._logs.items()):
            self._points[partition] = log.recovery_point

    def note_high_watermarks(self) -> None:
        """Take note of each log's high watermark now, for ``save_high_watermarks``."""
        for partition, log in list(self._logs.items()):
            self._watermarks[partition] = log.high_watermark

    def cleaned_offset(self, partition: TopicPartition) -> int | None:
        """The offset before which a log was compacted; None if it never was."""
        return self._cleaned.get(partition)

    def note_cleaned(self, partition: TopicPartition, offset: int) -> None:
        """A log was compacted up to this offset, for ``save_cleaned_offsets``."""
        self._cleaned[partition] = offset

    def save_cleaned_offsets(self) -> None:
        """As ``save_log_starts``."""
        self._save(names.CLEANED_OFFSETS, self._cleaned)

    def save_log_starts(self) -> None:
        """Write what was noted, unless the file says it; waits for the disk. In any thread.

        Raises:
            KafkaStorage: the disk refused.
        """
        self._save(names.LOG_STARTS, self._starts)

    def save_recovery_points(self) -> None:
        """As ``save_log_starts``."""
        self._save(names.RECOVERY_POINTS, self._points)

    def save_high_watermarks(self) -> None:
        """As ``save_log_starts``."""
        self._save(names.HIGH_WATERMARKS, self._watermarks)

    def _save(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets and name not in self._written:
            return
        try:
            self._write(name, offsets)
        except OSError as error:
            self.disk.refused(None, "checkpoint not written", error, f"{self.path}/{name}")
            raise unusable(self.path, error) from error

    # --- end

    def close_logs(self, logs: Iterable[PartitionLog], clean: bool = True) -> None:
        """Close some of the logs, before ``close``; what fails is told there.

        Waits for the disk, mostly: several threads may each close a share of the logs.
        """
        clean = clean and self.disk.failure is None
        for log in logs:
            try:
                log.close(clean)
            except KafkaStorage as error:
                self._not_closed.append(error)

    def close(self, clean: bool = True) -> None:
        """Close every log and let go of the directory; twice is harmless.

        Args:
            clean: sync all records and leave the marker, so that the next start scans nothing.
                Without it the next start recovers, as after a kill.

        Raises:
            KafkaStorage: something could not be written; the next start recovers.
        """
        if self._closed:
            return
        self._closed = True
        if self.disk.failure is not None and not self._not_closed:
            clean = False  # said when it went offline: the next start recovers
        try:
            self.close_logs(self._logs.values(), clean)
            if self._not_closed:
                raise KafkaStorage(
                    f"{len(self._not_closed)} of {len(self._logs)} logs in {self.path} were not"
                    " closed clean, the next start checks them and needs room on the disk for that:"
                    f" {self._not_closed[0].message}"
                )
            if clean and self._unrecovered:
                self.note_log_starts()
                self.save_log_starts()
            elif clean:
                self._close_clean()
        finally:
            with self._checkpoints:
                self._unlocked = True
                self._lock.release()

    def _close_clean(self) -> None:
        self._points = {tp: log.log_end_offset for tp, log in self._logs.items()}
        self._starts = {tp: start for tp, start in self._starts.items() if tp in self._logs}
        self._watermarks = {tp: log.high_watermark for tp, log in self._logs.items()}
        try:
            for directory in self._deleted:
                self._remove(directory)
            self.note_log_starts()
            self._write(names.LOG_STARTS, self._starts)
            self._write(names.RECOVERY_POINTS, self._points)
            self._write(names.HIGH_WATERMARKS, self._watermarks)
            self._files.sync_dir(self.path)
            marker = json.dumps({"version": 0, "brokerEpoch": self._broker_epoch})
            self._files.write_atomic(f"{self.path}/{names.CLEAN_SHUTDOWN}", marker.encode())
        except OSError as error:
            raise unusable(self.path, error) from error

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            offsets = read_offsets(self._files, f"{self.path}/{name}")
            if offsets:
                self._written[name] = dict(offsets)
            return offsets
        except CorruptRecord as error:
            logger.error("checkpoint ignored file=%s/%s error=%s", self.path, name, error.message)
            return {}

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._checkpoints:
            # Copied only now: who comes last writes the latest. Once unlocked, the file is another
            # process's.
            latest = dict(offsets)
            if self._unlocked or self._written.get(name) == latest:
                return
            self._written.pop(name, None)
            write_offsets(self._files, f"{self.path}/{name}", latest)
            self._written[name] = latest

    def _remove_leftovers(self) -> None:
        """Directories that a stop left half deleted."""
        for name in self._files.listdir(self.path):
            if name.endswith(names.DELETED_DIRECTORY) and self._files.is_dir(f"{self.path}/{name}"):
                self._remove(f"{self.path}/{name}")

    def _remove(self, directory: str) -> None:
        try:
            self._files.remove_tree(directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("deleted log not removed directory=%s error=%s", directory, error)


@dataclass(frozen=True, slots=True)
class _Removal:
    """Directories and segments whose files go at the same time."""

    remove: Callable[[str], None]
    directories: list[str]
    segments: list[Segment]

    def __call__(self) -> None:
        for directory in self.directories:
            self.remove(directory)
        for segment in self.segments:
            try:
                segment.remove_renamed(names.DELETED)
            except OSError as error:
                path = segment.path(names.LOG)
                logger.warning("deleted segment not removed file=%s error=%s", path, error)


def _broker_epoch(files: Files, marker: str) -> int:
    """The epoch that Apache Kafka had when it stopped: it looks for it when it starts again here.

    Where another one is found, it takes its last stop for unclean, and its replicas for stale.
    """
    try:
        values = json.loads(files.read_bytes(marker))
    except ValueError:
        return NO_BROKER_EPOCH
    epoch = values.get("brokerEpoch") if isinstance(values, dict) else None
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def _adopt(
    files: Files,
    path: str,
    node_id: int | None,
    cluster_id: str | None,
    random: Random,
) -> MetaProperties:
    """The stored ids, or new ones, written down."""
    file = f"{path}/{names.META_PROPERTIES}"
    if not files.exists(file):
        properties = MetaProperties(
            cluster_id or format_uuid(random_id(random)),
            0 if node_id is None else node_id,
            format_uuid(random_id(random)),
        )
        files.write_atomic(file, properties.encode())
        return properties
    stored = decode_meta_properties(files.read_bytes(file), file)
    if node_id is not None and node_id != stored.node_id:
        raise ConfigError(
            f"log directory {path} belongs to node {stored.node_id}, not {node_id}: leave the"
            " node id out, or choose another directory"
        )
    if cluster_id is not None and cluster_id != stored.cluster_id:
        raise ConfigError(
            f"log directory {path} belongs to cluster {stored.cluster_id}, not {cluster_id}"
        )
    if stored.directory_id is None:  # written before Kafka 3.7
        stored = stored._replace(directory_id=format_uuid(random_id(random)))
        files.write_atomic(file, stored.encode())
    return stored
