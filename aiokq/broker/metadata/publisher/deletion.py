"""Deletes the logs of partitions, and retries the deletions that fail.

A deletion renames the directory of the partition; the files are removed later. The publisher calls
`LogDeletion` on the node's loop.

Tests: ``tests/unit/broker/metadata/publisher/test_publisher.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from aiokq.core.errors import Closed, KafkaStorage

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment
    from aiokq.core.supervisor import Supervisor
    from aiokq.core.types import TopicPartition

__all__ = ["LogDeletion"]

K = TypeVar("K")
V = TypeVar("V")


class LogDeletion:
    """Deletes logs of a node. Failed deletions are retried while their log directory is online.

    Args:
        supervisor: runs the retries.
        background: counts failures, and returns the delays between retries.
        deleted: called when a log may have been deleted, so that the files of deleted logs are
            removed later.
    """

    def __init__(
        self,
        environment: Environment,
        directories: LogDirectories,
        *,
        supervisor: Supervisor,
        background: BackgroundWork,
        deleted: Callable[[], None],
    ) -> None:
        self._environment = environment
        self._directories = directories
        self._supervisor = supervisor
        self._background = background
        self._deleted = deleted
        self._undeleted: dict[TopicPartition, LogDirectory] = {}
        self._unsynced: dict[LogDirectory, None] = {}
        """Directories in which deletions are not durable yet, because a sync failed."""
        self._is_retrying = False

    @property
    def is_retrying(self) -> bool:
        return self._is_retrying

    def delete(self, name: TopicPartition) -> KafkaStorage | None:
        """Delete a partition's log; if that fails, return the error and retry later."""
        directory = self._directories.directory_of(name)
        failure = None
        try:
            self._directories.delete_partition(name)
        except KafkaStorage as error:
            assert directory is not None
            self._retry_later(self._undeleted, name, directory, error)
            failure = error
        self._deleted()
        return failure

    def delete_earlier(self, name: TopicPartition) -> None:
        """Retry the failed deletion of an earlier log, because a log of this name will be created.

        If the deletion fails again, it is not retried: `LogDirectories.open_partition` sets the
        earlier log aside.
        """
        directory = self._undeleted.pop(name, None)
        if directory is not None:
            with contextlib.suppress(KafkaStorage):
                directory.delete_partition(name)
            self._deleted()

    async def sync(self, changed: Iterable[LogDirectory | None]) -> KafkaStorage | None:
        """Make the deletions in some directories durable; return the last error.

        Each directory is synced once, in an executor: a sync per partition would take milliseconds
        for each. Ephemeral nodes do not sync.
        """
        if self._environment.is_ephemeral:
            return None
        failure: KafkaStorage | None = None
        for directory in self._directories.online:
            if directory in changed:
                failure = await self._sync_names(directory) or failure
        return failure

    async def _sync_names(self, directory: LogDirectory) -> KafkaStorage | None:
        """Make deletions durable; if that fails, return the error and retry later."""
        try:
            await self._environment.offload.run(directory.sync_names)
        except KafkaStorage as error:
            self._retry_later(self._unsynced, directory, None, error)
            return error
        self._unsynced.pop(directory, None)
        return None

    def _retry_later(self, failed: dict[K, V], key: K, value: V, error: KafkaStorage) -> None:
        failed[key] = value
        if not self._is_retrying:
            with contextlib.suppress(Closed):  # the node closes; its next start sets the logs aside
                self._supervisor.spawn(self._retry(error), name="delete logs again")
                self._is_retrying = True

    async def _retry(self, error: KafkaStorage) -> None:
        """Retry failed deletions until all have succeeded; drop deletions in failed directories."""
        task = self._background.task("delete logs")
        while self._undeleted or self._unsynced:
            await asyncio.sleep(task.failed(error))
            for name, directory in list(self._undeleted.items()):
                try:
                    directory.delete_partition(name)  # does nothing in a failed directory
                except KafkaStorage as refused:
                    error = refused
                    continue
                del self._undeleted[name]
                self._unsynced[directory] = None
                self._deleted()
            for directory in list(self._unsynced):
                failed = directory.disk.failure is not None
                failure = None if failed else await self._sync_names(directory)
                error = failure or error
                if failed:
                    self._unsynced.pop(directory, None)
        self._is_retrying = False
