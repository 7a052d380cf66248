"""A node's data on disk: log directories, metadata log and topics, opened and closed together."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.broker.log.directories import DirectoriesOpening
from aiokq.broker.log.flusher import Flusher
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.metadata.changes import MetadataChanges
from aiokq.broker.metadata.controller.controller import Controller
from aiokq.broker.metadata.controller.registration import stop_records
from aiokq.broker.metadata.directory_assignment import DirectoryAssignment
from aiokq.broker.metadata.log.cluster_metadata_log import LogLimits
from aiokq.broker.metadata.producer_ids import ProducerIds
from aiokq.broker.metadata.publisher.publisher import MetadataPublisher
from aiokq.broker.metadata.snapshots import MetadataSnapshots
from aiokq.broker.metadata.start.metadata_reading import metadata_bytes, read_metadata
from aiokq.broker.metadata.start.metadata_start import (
    MetadataStart,
    NodeRegistration,
    open_metadata,
)
from aiokq.core.errors import KafkaStorage
from aiokq.core.supervisor import Supervisor, shielded
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.broker.config.dynamic_settings import DynamicSettings
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.log.checkpoints import Checkpoint
    from aiokq.broker.log.directories import Listed, LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.metadata.configs.group_configs import GroupConfigs
    from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.broker.metadata.publisher.topics import TopicRegistry
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment
    from aiokq.core.offload import Offload
    from aiokq.core.types import TopicPartition

__all__ = ["Storage"]

T = TypeVar("T")

CLOSERS: Final = 4
"""Number of logs of a directory that are closed concurrently.

Concurrent syncs are faster than successive syncs, but more than four gain little.
"""

RECORDS_ON_LOOP: Final = 64
"""Number of metadata records below which an ephemeral node appends a change on the loop.

Such an append takes less than 1 ms. A call in an executor would take as long for its two thread
switches alone.
"""

READ_BESIDE_BYTES: Final = 64 * 1024
"""Minimum size of a metadata log that a start reads in a separate thread.

A log of this size is read in 4 ms; the separate thread costs 1 ms.
"""


class Storage:
    """The open log directories of a node.

    Attributes:
        directories: the log directories, with their logs.
        metadata: the metadata log; its methods wait for the disk.
        publisher: applies metadata changes to topics and logs.
        changes: decides, records and publishes metadata changes.
        producer_ids: the source of producer ids.
        by_kafka: whether Apache Kafka may have written to the logs.
    """

    def __init__(
        self,
        environment: Environment,
        directories: LogDirectories,
        metadata: ClusterMetadataLog,
        publisher: MetadataPublisher,
        changes: MetadataChanges,
    ) -> None:
        self.directories = directories
        self.publisher = publisher
        self.changes = changes
        self.producer_ids = ProducerIds(changes.allocate_producer_ids)
        self._environment = environment
        self.metadata = metadata
        self.by_kafka = publisher.by_kafka

    @classmethod
    async def open(
        cls,
        environment: Environment,
        settings: DynamicSettings,
        paths: Sequence[str],
        *,
        node_id: int | None,
        registration: NodeRegistration,
        supervisor: Supervisor,
        background: BackgroundWork,
        elected: Callable[[Partition], None],
        resigned: Callable[[Partition], None],
        visible: Callable[[TopicPartition, int], None],
        deleted: Callable[[], None],
    ) -> Storage:
        """Open the log directories in an executor, then their logs.

        Args:
            registration: the node's registration for the metadata.
            supervisor: runs the flushers and the snapshots of the metadata log. It also runs the
                tasks that open or delete logs again after a failure, that write the assignment of
                log directories to the metadata, and that write ``bootstrap.checkpoint``. The caller
                must close the supervisor before it calls ``close``.
            background: counts and logs the failures of the supervisor's tasks.
            elected, resigned, visible, deleted: see `MetadataPublisher`.

        Raises:
            KafkaStorage: the metadata log or its directory cannot be used, no log directory can be
                used, or another broker uses a log directory; the message says what to do.
            ConfigError: a directory belongs to another node.
        """
        directories, start = await _start_metadata(
            environment, settings.static, paths, node_id, registration
        )
        controller = Controller(
            settings.static, directories.properties.node_id, lambda: random_id(environment.random)
        )
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
            placed=lambda *place: assignment.placed(*place),
            by_kafka=start.by_kafka,
        )
        snapshots = MetadataSnapshots(start.log, environment.offload, supervisor, background)
        changes = MetadataChanges(
            controller,
            start.log,
            publisher,
            environment.offload,
            recorded=snapshots.begin,
            records_on_loop=RECORDS_ON_LOOP if environment.is_ephemeral else 0,
        )
        assignment = DirectoryAssignment(changes, supervisor, background)
        storage = cls(environment, directories, start.log, publisher, changes)
        try:
            storage._start_flushers(supervisor, background)
            publisher.load(start.log.image)
            await publisher.open_logs()
            snapshots.begin()
            supervisor.spawn(_write_later(start, environment.offload), name="bootstrap.checkpoint")
        except BaseException:
            await storage.close(clean=False)
            raise
        return storage

    @property
    def topics(self) -> TopicRegistry:
        return self.publisher.topics

    @property
    def group_configs(self) -> GroupConfigs:
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
        """Close the logs; a clean close syncs them, so that the next start need not recover them.

        A metadata change in progress completes first, even if its caller was cancelled. Nothing is
        written to a directory that is offline.

        Raises:
            KafkaStorage: a write failed; the next start recovers the logs.
        """
        await shielded(self._close(clean), name="close the logs")

    async def _close(self, clean: bool) -> None:
        await self.changes.close()
        failure: Exception | None = None
        try:
            await self._environment.offload.run(self._close_metadata, clean)
        except KafkaStorage as error:
            failure = error
        for directory in self.directories.all:
            try:
                await self._close_directory(directory, clean)
            except Exception as error:  # noqa: BLE001 - raised when all directories are closed
                failure = failure or error
        home = self.directories.metadata
        if home not in self.directories.all:
            home.clean = clean and failure is None
            await self._environment.offload.run(home.close_unused)
        if failure is not None:
            raise failure

    def _close_metadata(self, clean: bool) -> None:
        """Fence the broker in the metadata, and close the metadata log. Called in an executor.

        The broker is fenced only if the stop is clean and this node wrote the metadata as leader.
        """
        home = self.directories.metadata
        clean = clean and home.disk.failure is None
        is_closed_clean = False
        try:
            try:
                if clean and self.metadata.has_led:
                    self.metadata.append(
                        *stop_records(self.metadata.image, self.directories.properties.node_id)
                    )
            finally:
                self.metadata.close(clean)
            is_closed_clean = clean
        finally:
            if not is_closed_clean:
                home.leave_unclean()

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

    async def save_log_starts(self) -> None:
        """Write the log start offset of each log to its directory's checkpoint file.

        The files are written in an executor. Offline directories are skipped.

        Raises:
            KafkaStorage: an I/O error.
        """
        for directory in self.directories.online:
            directory.note_log_starts()
            await self._save(directory, directory.checkpoints.log_starts)

    async def save_recovery_points(self) -> None:
        """Write the recovery point of each log to its directory's checkpoint file.

        The files are written in an executor. Offline directories are skipped.

        Raises:
            KafkaStorage: an I/O error.
        """
        for directory in self.directories.online:
            directory.note_recovery_points()
            await self._save(directory, directory.checkpoints.recovery_points)

    async def save_high_watermarks(self) -> None:
        """Write the high watermark of each log to its directory's checkpoint file.

        The files are written in an executor. Offline directories are skipped.

        Raises:
            KafkaStorage: an I/O error.
        """
        for directory in self.directories.online:
            directory.note_high_watermarks()
            await self._save(directory, directory.checkpoints.high_watermarks)

    async def _save(self, directory: LogDirectory, checkpoint: Checkpoint) -> None:
        await self._environment.offload.run(directory.save, checkpoint)


async def _start_metadata(
    environment: Environment,
    settings: BrokerSettings,
    paths: Sequence[str],
    node_id: int | None,
    registration: NodeRegistration,
) -> tuple[LogDirectories, MetadataStart]:
    """Open the log directories and begin a leader epoch of the metadata log; see `_started`.

    If the caller is cancelled, the metadata log is closed and the directories are unlocked again.
    """
    started: list[tuple[LogDirectories, MetadataStart]] = []

    async def start_metadata() -> None:
        started.append(await _started(environment, settings, paths, node_id, registration))

    try:
        await shielded(start_metadata(), name="open the log directories")
    except asyncio.CancelledError:
        for found in started:  # otherwise the directories stay locked
            await shielded(
                environment.offload.run(_give_up, *found, True), name="unlock directories"
            )
        raise
    return started[0]


async def _started(
    environment: Environment,
    settings: BrokerSettings,
    paths: Sequence[str],
    node_id: int | None,
    registration: NodeRegistration,
) -> tuple[LogDirectories, MetadataStart]:
    """Open the log directories, and begin a leader epoch of the metadata log, in an executor.

    If the metadata log is large, one thread reads the log while another thread opens the
    directories and lists the partitions in them. The logs of partitions are not opened. If a step
    fails before the epoch has begun, the clean shutdown markers are not changed.
    """
    files, run = environment.files, environment.offload.run
    lead = functools.partial(_lead, environment, settings, registration)

    def begin() -> DirectoriesOpening | tuple[LogDirectories, MetadataStart]:
        opening = DirectoriesOpening(
            files,
            paths,
            crc32c=crc32c,
            random=environment.secure_random,
            now=environment.clock.monotonic,
            node_id=node_id,
            metadata_path=settings.metadata_log_dir,
        )
        try:
            if metadata_bytes(files, opening.metadata) >= READ_BESIDE_BYTES:
                return opening
            directories, listed = _open_and_list(opening)
            state = read_metadata(files, opening.metadata)
        except BaseException:
            opening.give_up()
            raise
        return directories, lead(directories, listed, state)

    begun = await run(begin)
    if not isinstance(begun, DirectoriesOpening):
        return begun
    try:
        directories, listed, state = await _open_beside_reading(environment, begun)
    except Exception:
        await run(begun.give_up)
        raise
    return directories, await run(lead, directories, listed, state)


async def _open_beside_reading(
    environment: Environment, opening: DirectoriesOpening
) -> tuple[LogDirectories, Listed, MetadataState | None]:
    """Finish the opening and list the partitions, while a thread reads the metadata log.

    The metadata directory is open already; this function opens the other directories.

    If both steps fail, the error about the directories is raised.
    """
    run = environment.offload.run
    async with Supervisor("open the log directories") as supervisor:
        reading = supervisor.spawn(
            _outcome(run(read_metadata, environment.files, opening.metadata)),
            name="read the metadata log",
        )
        try:
            directories, listed = await run(_open_and_list, opening)
        finally:
            # After an error the caller unlocks the directory, so the read must have ended.
            state = await reading
    if isinstance(state, Exception):
        try:
            raise state
        finally:
            del state, reading  # otherwise frame and exception would form a cycle
    return directories, listed, state


def _open_and_list(opening: DirectoriesOpening) -> tuple[LogDirectories, Listed]:
    directories = opening.finish()
    return directories, directories.list_partitions()


async def _outcome(work: Coroutine[object, None, T]) -> T | Exception:
    """Return the result of a coroutine, or the error that it raises."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return error


def _lead(
    environment: Environment,
    settings: BrokerSettings,
    registration: NodeRegistration,
    directories: LogDirectories,
    listed: Listed,
    state: MetadataState | None,
) -> MetadataStart:
    """Open the metadata log, and begin a leader epoch; if a step fails, unlock the directories."""
    start: MetadataStart | None = None
    try:
        start = open_metadata(
            environment.files,
            directories,
            registration,
            state=state,
            listed=listed,
            clock=environment.clock,
            random=environment.random,
            limits=_limits(settings),
        )
        start.look_for_missing()
        start.lead(registration)
    except BaseException:
        _give_up(directories, start, False)
        raise
    return start


def _give_up(directories: LogDirectories, start: MetadataStart | None, clean: bool) -> None:
    """Close the metadata log, and unlock the directories, in which no other log is open yet.

    Args:
        clean: whether the epoch has begun; the metadata log is then closed cleanly.
    """
    is_closed_clean = False
    try:
        if start is not None:
            with suppress(KafkaStorage):  # the next start checks the log
                start.log.close(clean)
                is_closed_clean = clean
    finally:
        if not is_closed_clean:
            directories.metadata.leave_unclean()
        directories.close_unused()


async def _write_later(start: MetadataStart, offload: Offload) -> None:
    await shielded(
        offload.run(start.write_bootstrap_checkpoints), name="write bootstrap.checkpoint"
    )


def _limits(settings: BrokerSettings) -> LogLimits:
    return LogLimits(
        snapshot_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
        segment_bytes=settings.metadata_log_segment_bytes,
    )
