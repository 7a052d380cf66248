"""A node's data on disk: log directories, metadata log and topics, opened and closed together."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.kraft.takeover import take_over
from aiokq.broker.log.directories import LogDirectories
from aiokq.broker.log.flusher import Flusher
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.metadata.changes import MetadataChanges
from aiokq.broker.metadata.controller import Controller
from aiokq.broker.metadata.metadata_log import METADATA_LOG, MetadataLog
from aiokq.broker.metadata.missing_directories import look_for_missing
from aiokq.broker.metadata.producer_ids import ProducerIds
from aiokq.broker.metadata.publisher import MetadataPublisher
from aiokq.core.supervisor import Supervisor, shielded
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.log.checkpoints import Checkpoint
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.metadata.group_configs import GroupConfigs
    from aiokq.broker.metadata.image import MetadataImage
    from aiokq.broker.metadata.topics import TopicRegistry
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment
    from aiokq.core.types import TopicPartition

__all__ = ["Storage"]

CLOSERS: Final = 4
"""Number of logs that are closed concurrently.

Four concurrent syncs are ten times as fast as successive syncs; more than four gain little.
"""


class Storage:
    """The open log directories of a node.

    Attributes:
        directories: the log directories, with their logs.
        publisher: applies metadata changes to topics and logs.
        changes: decides, records and publishes metadata changes.
        producer_ids: the source of producer ids.
    """

    def __init__(
        self,
        environment: Environment,
        directories: LogDirectories,
        metadata: MetadataLog,
        publisher: MetadataPublisher,
        changes: MetadataChanges,
    ) -> None:
        self.directories = directories
        self.publisher = publisher
        self.changes = changes
        self.producer_ids = ProducerIds(changes.allocate_producer_ids)
        self._environment = environment
        self._metadata = metadata

    @classmethod
    async def open(
        cls,
        environment: Environment,
        settings: BrokerSettings,
        paths: Sequence[str],
        *,
        node_id: int | None,
        supervisor: Supervisor,
        background: BackgroundWork,
        elected: Callable[[Partition], None],
        resigned: Callable[[Partition], None],
        visible: Callable[[TopicPartition, int], None],
        deleted: Callable[[], None],
    ) -> Storage:
        """Open the log directories in an executor, then their logs.

        Args:
            supervisor: runs the flushers, and the tasks that retry opening or deleting logs. The
                caller must close the supervisor before it calls ``close``.
            background: counts and logs the failures of the supervisor's tasks.
            elected, resigned, visible, deleted: see `MetadataPublisher`.

        Raises:
            KafkaStorage: no directory can be used, or one is in use; the message says what to do.
            ConfigError: a directory belongs to another node.
        """
        found: list[tuple[LogDirectories, MetadataLog]] = []

        def open_directories() -> None:
            directories = LogDirectories.open(
                environment.files,
                paths,
                crc32c=crc32c,
                random=environment.random,
                now=environment.clock.monotonic,
                node_id=node_id,
            )
            metadata: MetadataLog | None = None
            try:
                metadata = _open_metadata(environment, directories)
                take_over(environment.files, directories, metadata, random=environment.random)
                directories.find(_owned(metadata))
                look_for_missing(directories, metadata)
            except BaseException:
                if metadata is not None:
                    metadata.close()
                for directory in directories.all:
                    directory.close_unused()
                raise
            found.append((directories, metadata))

        try:
            await shielded(
                environment.offload.run(open_directories), name="open the log directories"
            )
        except asyncio.CancelledError:
            for directories, metadata in found:  # otherwise the directories stay locked
                metadata.close()
                for directory in directories.all:
                    directory.close_unused()
            raise
        [(directories, metadata)] = found
        publisher = MetadataPublisher(
            settings=settings,
            environment=environment,
            directories=directories,
            supervisor=supervisor,
            background=background,
            elected=elected,
            resigned=resigned,
            visible=visible,
            deleted=deleted,
        )
        controller = Controller(
            settings, directories.properties.node_id, lambda: random_id(environment.random)
        )
        changes = MetadataChanges(controller, metadata, publisher, environment.offload)
        storage = cls(environment, directories, metadata, publisher, changes)
        try:
            storage._start_flushers(supervisor, background)
            await storage._load()
        except BaseException:
            await storage.close(clean=False)
            raise
        return storage

    async def _load(self) -> None:
        """Load the metadata, count an unclean start, and open the logs that need no recovery."""
        self.publisher.load(self._metadata.image)
        if self.publisher.was_unclean:
            await self.changes.count_unclean_start()
        await self.publisher.open_logs(self._metadata.image.unclean_starts)

    @property
    def topics(self) -> TopicRegistry:
        """All topics of the node."""
        return self.publisher.topics

    @property
    def group_configs(self) -> GroupConfigs:
        """The settings of individual groups."""
        return self.publisher.group_configs

    def _start_flushers(self, supervisor: Supervisor, background: BackgroundWork) -> None:
        files, offload = self._environment.files, self._environment.offload
        flushers = {
            directory: Flusher(files, offload, directory.disk, background)
            for directory in self.directories.all
        }
        for flusher in flushers.values():
            flusher.start(supervisor)
        self.directories.attach(flushers)

    async def close(self, clean: bool = True) -> None:
        """Close the logs; a clean close syncs them, so that the next start recovers nothing.

        A metadata change in progress completes first, even if its caller was cancelled. Nothing is
        written to a directory that is offline.

        Raises:
            KafkaStorage: a write failed; the next start recovers the logs.
        """
        await shielded(self._close(clean), name="close the logs")

    async def _close(self, clean: bool) -> None:
        await self.changes.close()
        await self._environment.offload.run(
            self._metadata.close
        )  # in the executor, because it waits for an append in progress
        failure: Exception | None = None
        for directory in self.directories.all:
            try:
                await self._close_directory(directory, clean)
            except Exception as error:  # noqa: BLE001 - raised when all directories are closed
                failure = failure or error
        if failure is not None:
            raise failure

    async def _close_directory(self, directory: LogDirectory, clean: bool) -> None:
        """Close the logs of a directory, several at a time, then the directory.

        Each log waits for its sync, and the file system commits concurrent syncs together.
        """
        offload = self._environment.offload
        logs = list(directory.logs.values())
        async with Supervisor("close the logs") as supervisor:
            shares = [
                supervisor.spawn(offload.run(directory.close_logs, share, clean), name="close logs")
                for share in (logs[first::CLOSERS] for first in range(CLOSERS))
                if share
            ]
            for share in shares:
                await share
        await offload.run(directory.close, clean)
        for log in logs:
            log.notify_replica()  # the last flush may advance the high watermark

    def metadata_image(self) -> MetadataImage:
        """Return a copy of the metadata image.

        Call it in an executor: it waits for an append in progress.
        """
        return self._metadata.copy_image()

    # checkpoints

    async def save_log_starts(self) -> None:
        """Write the log start offset of each log to the checkpoint file, in an executor.

        Raises:
            KafkaStorage: an I/O error.
        """
        for directory in self.directories.online:
            directory.note_log_starts()
            await self._save(directory, directory.checkpoints.log_starts)

    async def save_recovery_points(self) -> None:
        """Write the recovery point of each log to the checkpoint file, in an executor.

        Raises:
            KafkaStorage: an I/O error.
        """
        for directory in self.directories.online:
            directory.note_recovery_points()
            await self._save(directory, directory.checkpoints.recovery_points)

    async def save_high_watermarks(self) -> None:
        """Write the high watermark of each log to the checkpoint file, in an executor.

        Raises:
            KafkaStorage: an I/O error.
        """
        for directory in self.directories.online:
            directory.note_high_watermarks()
            await self._save(directory, directory.checkpoints.high_watermarks)

    async def _save(self, directory: LogDirectory, checkpoint: Checkpoint) -> None:
        await self._environment.offload.run(directory.save, checkpoint)


def _open_metadata(environment: Environment, directories: LogDirectories) -> MetadataLog:
    """Open the metadata log, of which each directory has a copy.

    Raises:
        KafkaStorage: a directory cannot be opened, and no other directory has metadata.
    """
    by_path = {f"{directory.path}/{METADATA_LOG}": directory for directory in directories.all}

    def refused(path: str, error: OSError) -> None:
        by_path[path].disk.refused(None, "metadata log failed", error, path)

    metadata = MetadataLog.open(
        environment.files, *by_path, node_id=directories.properties.node_id, refused=refused
    )
    if directories.unopened and not metadata.image.appends:
        # The directories that were opened are new: a start with them alone would have no topics.
        metadata.close()
        raise next(iter(directories.unopened.values()))
    return metadata


def _owned(metadata: MetadataLog) -> Callable[[TopicPartition, uuid.UUID | None], bool]:
    """Return a predicate that tells whether a topic owns a partition found on disk."""

    def owned(partition: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        topic = metadata.image.topics.get(partition.topic)
        return (
            topic is not None
            and partition.partition < len(topic.partitions)
            and topic_id in (None, topic.topic_id)
        )

    return owned
