"""The log directories of one node: placement of partitions, and failed directories.

``directory`` handles a single directory. A directory that cannot be used is offline; the node
continues with the other directories. A partition that may be in an offline directory is not created
in another directory, because the new log would lack the records in the offline directory.

Source: Kafka ``LogManager.scala``, KIP-112. Tests: ``tests/unit/broker/log/test_directories.py``.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.disk_trouble import METADATA_DIRECTORY, is_full
from aiokq.broker.log.file_names import META_PROPERTIES, partition_directory
from aiokq.core.errors import ConfigError, KafkaStorage

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.flusher import Flusher
    from aiokq.broker.log.meta_properties import MetaProperties
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.log.recovery import Progress
    from aiokq.core.files import Files
    from aiokq.core.types import TopicPartition
    from aiokq.records.header import Checksum

__all__ = ["DirectoriesOpening", "Listed", "LogDirectories"]

logger = logging.getLogger("aiokq.broker.log")

Listed: TypeAlias = "dict[LogDirectory, dict[TopicPartition, uuid.UUID | None] | OSError]"
"""The partitions in each log directory, each with its stored topic id; or the error of the disk."""


class LogDirectories:
    """The log directories of one node, in the configured order.

    Used on the loop, except for the opening of logs; see ``LogDirectory``.

    Attributes:
        all: the log directories that could be opened, including directories that failed later.
        unopened: the error of each directory that could not be opened, by path.
        metadata: the directory of the metadata log. If it is not one of the log directories, it has
            no partitions.
    """

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        unopened: Mapping[str, KafkaStorage],
        metadata: LogDirectory | None = None,
    ) -> None:
        self.all = tuple(directories)
        self.unopened = dict(unopened)
        self.metadata = metadata or directories[0]
        self._places: dict[TopicPartition, LogDirectory] = {}
        self._counts = dict.fromkeys(self.all, 0)
        self._counting = threading.Lock()
        self._to_set_aside: list[tuple[TopicPartition, LogDirectory, str]] = []

    @classmethod
    def open(
        cls,
        files: Files,
        paths: Sequence[str],
        *,
        crc32c: Checksum,
        random: Random,
        now: Callable[[], float],
        node_id: int | None = None,
        metadata_path: str | None = None,
    ) -> LogDirectories:
        """Open and lock log directories; create missing directories. See ``LogDirectory.open``.

        Args:
            now, node_id: as in ``LogDirectory.open``.
            metadata_path: the directory of the metadata log; by default the first log directory.

        Raises:
            ConfigError: the directories belong to different nodes or clusters, or not to
                ``node_id``; a ``meta.properties`` is invalid; a directory is named twice, is
                inside another, or is a copy of another.
            KafkaStorage: a directory is in use by another broker; no log directory can be opened;
                or the directory of the metadata log cannot be opened, or is new although another
                directory is not. The message says what to do.
        """
        opening = DirectoriesOpening(
            files,
            paths,
            crc32c=crc32c,
            random=random,
            now=now,
            node_id=node_id,
            metadata_path=metadata_path,
        )
        try:
            return opening.finish()
        except BaseException:
            opening.give_up()
            raise

    @property
    def properties(self) -> MetaProperties:
        """The ids of the metadata directory; all directories have its node id and cluster id."""
        return self.metadata.properties

    @property
    def with_metadata(self) -> Sequence[LogDirectory]:
        """The metadata directory, and the log directories."""
        return tuple(dict.fromkeys((self.metadata, *self.all)))

    def write_ids(self) -> None:
        """Store the ids of new directories; a directory that fails goes offline.

        Raises:
            OSError: the metadata directory failed.
        """
        for directory in self.with_metadata:
            self._prepare(directory, directory.write_ids, "directory.id not written")

    def begin(self) -> None:
        """Prepare the directories for changes; a directory that fails goes offline.

        Called after ``find``, when the start cannot be refused any more, and before the first log
        is loaded. See ``LogDirectory.begin``.

        Raises:
            OSError: the metadata directory failed.
        """
        for directory in self.with_metadata:
            self._prepare(directory, directory.begin, "clean shutdown marker not removed")
        for partition, directory, reason in self._to_set_aside:
            if directory.disk.failure is None:
                try:
                    kept = directory.strays.set_aside(partition)
                except OSError as error:
                    directory.disk.fail(None, "directory not set aside", error)
                else:
                    logger.warning("%s: its directory was renamed to %s", reason, kept)
        self._to_set_aside.clear()

    def _prepare(self, directory: LogDirectory, step: Callable[[], None], what: str) -> None:
        if directory.disk.failure is not None:
            return
        try:
            step()
        except OSError as error:
            if directory is self.metadata:
                raise
            # Every error takes the directory offline, even a lack of file descriptors. Otherwise
            # this start could change the directory, and the next start could find the old clean
            # shutdown marker in it.
            directory.disk.fail(None, what, error)

    def close_unused(self) -> None:
        """Unlock all directories after a start that failed; see ``LogDirectory.close_unused``."""
        for directory in self.with_metadata:
            directory.close_unused()

    @property
    def ids(self) -> frozenset[uuid.UUID]:
        """The directory.id of each directory in ``all``."""
        return frozenset(one.directory_id for one in self.all)

    @property
    def online_ids(self) -> frozenset[uuid.UUID]:
        """The directory.id of each directory that can be used."""
        return frozenset(one.directory_id for one in self.online)

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that can be used."""
        return [directory for directory in self.all if directory.disk.failure is None]

    @property
    def offline(self) -> dict[str, KafkaStorage]:
        """The error of each log directory that cannot be used, by path."""
        failed = {
            directory.path: directory.disk.failure
            for directory in self.all
            if directory.disk.failure is not None
        }
        return self.unopened | failed

    def logs(self) -> Iterator[PartitionLog]:
        """Yield the open logs of the directories that can be used."""
        for directory in self.online:
            yield from list(directory.logs.values())

    def attach(self, flushers: Mapping[LogDirectory, Flusher]) -> None:
        """Set the flusher of each directory, for logs that are opened afterwards."""
        for directory, flusher in flushers.items():
            directory.attach(flusher)

    def list_partitions(self) -> Listed:
        """List the partitions in each directory, for ``find``; nothing is changed."""
        listed: Listed = {}
        for directory in self.online:
            try:
                listed[directory] = directory.on_disk.partitions()
            except OSError as error:
                listed[directory] = error
        return listed

    def find(
        self,
        belongs: Callable[[TopicPartition, uuid.UUID | None], bool],
        listed: Listed | None = None,
    ) -> None:
        """Find out which directory holds which partition.

        If a partition belongs to no topic and its directory contains a log, ``begin`` sets the
        directory aside: it is renamed, as in Kafka, and never deleted. Such a directory remains if
        a kill interrupts a deletion, or if the log directory is offline during the deletion. A user
        may also have copied the directory.

        If a partition is in two log directories, and one of its two logs never had records, the
        empty log is set aside too. An empty log remains if a creation failed, and the partition was
        then created on the other disk.

        Args:
            belongs: returns whether a partition belongs to a topic, given its stored topic id.
            listed: the result of ``list_partitions`` if no partition was moved since.

        Raises:
            KafkaStorage: a partition has records in two directories: Apache Kafka was killed while
                it moved the partition, or the directory was copied. The operator has to choose one
                of the two logs.
        """
        for directory, found in (self.list_partitions() if listed is None else listed).items():
            try:
                if isinstance(found, OSError):
                    raise found
                for partition, topic_id in found.items():
                    if belongs(partition, topic_id):
                        self._found(partition, directory)
                        continue
                    if not directory.on_disk.has_segments(partition):
                        continue  # named like a partition, but without a log
                    reason = f"partition belongs to no topic {partition=!s} {topic_id=!s}"
                    self._to_set_aside.append((partition, directory, reason))
            except OSError as error:
                if len(self.all) == 1:  # there is no other directory for its partitions
                    directory.disk.refused(None, "directory not read", error, directory.path)
                    continue
                # Fail the directory even for a lack of descriptors: otherwise its partitions would
                # be created empty in another directory.
                directory.disk.fail(None, "directory not read", error)

    def _found(self, partition: TopicPartition, directory: LogDirectory) -> None:
        other = self._places.get(partition)
        if other is None:
            self._place(partition, directory)
        elif not directory.on_disk.was_written(partition):
            self._set_unwritten_aside(partition, directory)
        elif not other.on_disk.was_written(partition):
            self._set_unwritten_aside(partition, other)
            self._counts[other] -= 1
            self._place(partition, directory)
        else:
            name = partition_directory(partition)
            raise KafkaStorage(
                f"partition {partition} is in two log directories, {other.path}/{name} and "
                f"{directory.path}/{name}: move the outdated one away, usually the smaller one, "
                "and start the broker again",
                topic_partition=partition,
            )

    def _set_unwritten_aside(self, partition: TopicPartition, directory: LogDirectory) -> None:
        reason = f"{partition=!s} is in two log directories, and has no records in {directory.path}"
        self._to_set_aside.append((partition, directory, reason))

    def take_back(self, partition: TopicPartition, directory: LogDirectory, path: str) -> None:
        """Rename a stray directory to the name of its partition, durably.

        Called after ``find``, before the metadata names the partition.

        Raises:
            OSError: the disk failed.
        """
        directory.strays.take_back(partition, path)
        self._place(partition, directory)

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory that is known to hold a partition; None if there is none."""
        return self._places.get(partition)

    def leave_unclean(self, partition: TopicPartition) -> None:
        """Let the directory of an unrecovered partition close without a clean shutdown marker."""
        directory = self._places.get(partition)
        if directory is not None:
            directory.leave_unclean()

    def bytes_to_check(self, partition: TopicPartition) -> int:
        """Return the number of bytes that a recovery of a partition reads; 0 if unknown."""
        directory = self._places.get(partition)
        return 0 if directory is None else directory.bytes_to_check(partition)

    def was_clean(self, partition: TopicPartition) -> bool:
        """Whether the last shutdown of the partition's log directory was clean.

        For a partition in no directory: whether the last shutdown of all directories was clean.
        """
        directory = self._places.get(partition)
        if directory is None:  # a power cut may have removed the name of the partition's directory
            return all(one.clean for one in self.all)
        return directory.clean

    def open_partition(
        self,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        *,
        now_ms: int,
        is_new: bool,
    ) -> PartitionLog:
        """Load a partition's log and add it to its directory; see ``load_partition``."""
        log = self.load_partition(partition, topic_id, config, now_ms=now_ms, is_new=is_new)
        self.add(log)
        return log

    def add(self, log: PartitionLog) -> None:
        """See ``LogDirectory.add``."""
        self._places[log.topic_partition].add(log)

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

        A new log is created in the directory with the fewest partitions, or in another directory if
        that directory fails or is full.

        Args:
            is_new: whether the partition is being created, so that no offline directory can hold
                it.
            topic_id, is_kafkas, progress: as in ``LogDirectory.load_partition``.

        Raises:
            KafkaStorage: the disk failed or is full, no file descriptor is left, or the log
                directory that has or may have the partition is offline.
        """
        directory = self._places.get(partition)
        if directory is not None:
            if directory.disk.failure is not None:
                raise KafkaStorage(directory.disk.failure.message, topic_partition=partition)
            return directory.load_partition(
                partition, topic_id, config, now_ms=now_ms, is_kafkas=is_kafkas, progress=progress
            )
        offline = self.offline
        if offline and not is_new:
            raise KafkaStorage(
                f"{partition} is in no online log directory, and may be in an offline one: "
                f"{next(iter(offline.values())).message}",
                topic_partition=partition,
            )
        candidates = sorted(self.online, key=self._counts.__getitem__)
        for directory in candidates:
            try:
                log = directory.load_partition(
                    partition, topic_id, config, now_ms=now_ms, is_new=is_new, progress=progress
                )
            except KafkaStorage as error:
                may_fit_elsewhere = directory.disk.failure is not None or (
                    isinstance(error.__cause__, OSError) and is_full(error.__cause__)
                )
                if may_fit_elsewhere and directory is not candidates[-1]:
                    continue
                if self.online:
                    raise
            else:
                self._place(partition, directory)
                return log
        raise KafkaStorage(
            f"every log directory is offline: {next(iter(self.offline.values())).message}",
            topic_partition=partition,
        )

    def _place(self, partition: TopicPartition, directory: LogDirectory) -> None:
        self._places[partition] = directory
        with self._counting:
            self._counts[directory] += 1

    def delete_partition(self, partition: TopicPartition) -> None:
        """Delete a partition's log; see ``LogDirectory.delete_partition``.

        A partition in an offline directory is set aside when the directory is opened again.

        Raises:
            KafkaStorage: the disk failed.
        """
        directory = self._places.pop(partition, None)
        if directory is None:
            return
        with self._counting:
            self._counts[directory] -= 1
        directory.delete_partition(partition)

    def removals(self, delay_ms: int) -> list[tuple[int, Callable[[], None]]]:
        """Return the removals of all online directories; see ``LogDirectory.removals``."""
        return [removal for directory in self.online for removal in directory.removals(delay_ms)]


class DirectoriesOpening:
    """Opens and locks the log directories of a node, in two steps.

    The constructor opens the metadata directory. Another thread can then read the metadata log
    while ``finish`` opens the other directories. If ``finish`` raises an error, the caller calls
    ``give_up``. Arguments and errors are those of ``LogDirectories.open``.

    Attributes:
        metadata: the directory of the metadata log, open and locked.
    """

    def __init__(
        self,
        files: Files,
        paths: Sequence[str],
        *,
        crc32c: Checksum,
        random: Random,
        now: Callable[[], float],
        node_id: int | None = None,
        metadata_path: str | None = None,
    ) -> None:
        if metadata_path is None:
            metadata_path = paths[0]
        place = files.real_path(metadata_path)
        at_place = [path for path in paths if files.real_path(path) == place]
        every = paths if at_place else (*paths, metadata_path)
        _check_disjoint(files, every)
        _check_metadata_directory(files, every, metadata_path)
        self._files = files
        self._paths = paths
        self._open = functools.partial(
            LogDirectory.open, files, crc32c=crc32c, random=random, now=now
        )
        self.metadata = self._open((*at_place, metadata_path)[0], node_id=node_id)
        self._opened = [self.metadata]

    def finish(self) -> LogDirectories:
        """Open the other directories; new directories get the node id and cluster id in use."""
        ids = self.metadata.properties
        unopened: dict[str, KafkaStorage] = {}
        others = [path for path in self._paths if path != self.metadata.path]
        # Directories that have ids are opened first, so that a refused start creates no directory.
        for path in sorted(others, key=lambda path: not _has_ids(self._files, path)):
            try:
                directory = self._open(path, node_id=ids.node_id, cluster_id=ids.cluster_id)
            except KafkaStorage as error:
                if isinstance(error.__cause__, BlockingIOError):
                    raise  # in use by another broker, so not an error of the disk
                unopened[path] = error
                logger.error("log directory offline path=%s error=%s", path, error.message)
            else:
                self._opened.append(directory)
        _check_ids(self._opened)
        opened = {directory.path: directory for directory in self._opened}
        found = [opened[path] for path in self._paths if path in opened]
        if not found:
            raise next(iter(unopened.values()))
        if self.metadata not in found:
            self.metadata.disk.kind = METADATA_DIRECTORY
        return LogDirectories(found, unopened, self.metadata)

    def give_up(self) -> None:
        """Unlock the directories after a start that failed; see ``LogDirectory.close_unused``."""
        for directory in self._opened:
            directory.close_unused()


def _check_metadata_directory(files: Files, paths: Sequence[str], metadata_path: str) -> None:
    """Check that the metadata directory is not new if another directory was in use.

    The directory also looks new if its disk is not mounted. A new metadata log would have no topics
    and settings, and the node would issue producer ids a second time, so that records of a new
    producer would be treated as duplicates.

    Raises:
        KafkaStorage: the metadata directory is new, and another directory is not.
    """
    if _has_ids(files, metadata_path):
        return
    other = next((path for path in paths if _has_ids(files, path)), None)
    if other is not None:
        raise KafkaStorage(
            f"the metadata directory {metadata_path} is new, but {other} is not: mount the disk "
            "with the metadata log, or name its directory first or in metadata.log.dir; if it is "
            "lost for good, aiokq storage format --ignore-formatted makes a new one, and topics "
            "are served as they are found"
        )


def _check_ids(directories: Iterable[LogDirectory]) -> None:
    paths: dict[str | None, str] = {}
    for directory in directories:
        other = paths.setdefault(directory.properties.directory_id, directory.path)
        if other != directory.path:
            raise ConfigError(
                f"log directories {other} and {directory.path} have the same directory.id: one is "
                "a copy of the other; remove the copy from the log directories"
            )


def _check_disjoint(files: Files, paths: Sequence[str]) -> None:
    """Check that the paths are different directories, and that none contains another.

    A directory inside another may be named like a partition, and would be deleted with its topic.

    Raises:
        ConfigError: two of the paths are the same directory, or one is inside the other.
    """
    real: dict[str, str] = {}
    for path in paths:
        place = files.real_path(path)
        for other_place, other in real.items():
            if place == other_place:
                raise ConfigError(f"a log directory is named twice: {other}, {path}")
            inner, outer = sorted((other_place, place), key=len, reverse=True)
            if inner.startswith(os.path.join(outer, "")):
                inner, outer = (path, other) if inner == place else (other, path)
                raise ConfigError(
                    f"log directory {inner} is inside log directory {outer}: choose directories "
                    "that do not contain each other"
                )
        real[place] = path


def _has_ids(files: Files, path: str) -> bool:
    return files.exists(f"{path}/{META_PROPERTIES}")
