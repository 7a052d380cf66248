"""Failures of log directories: their partitions go offline, and the node may fail.

Tests: ``tests/unit/broker/log/test_directories.py``, ``tests/fault/test_disk_faults.py``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.core.errors import KafkaStorage

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.storage import Storage

__all__ = ["DirectoryFailures"]


class DirectoryFailures:
    """Reacts to failures of the log directories of a node.

    Args:
        storage: returns the open storage of the node, or None while the node is not open. While the
            result is None, failures are ignored.
        fail: called with the error if the node cannot continue, because the failed directory has
            the metadata log or no directory is online.
    """

    def __init__(
        self, storage: Callable[[], Storage | None], fail: Callable[[KafkaStorage], None]
    ) -> None:
        self._storage = storage
        self._fail = fail

    def watch(self, directories: LogDirectories) -> None:
        """Listen for failures of directories, which any thread may report. Called on the loop."""
        loop = asyncio.get_running_loop()

        def listen(directory: LogDirectory) -> Callable[[KafkaStorage], None]:
            failed = functools.partial(self._failed, directory)

            def report(error: KafkaStorage) -> None:
                loop.call_soon_threadsafe(failed, error)

            return report

        for directory in directories.with_metadata:
            directory.disk.listener = listen(directory)
            if directory.disk.failure is not None:  # failed while it was opened
                self._failed(directory, directory.disk.failure)

    def _failed(self, directory: LogDirectory, error: KafkaStorage) -> None:
        """Take the directory's partitions offline; fail the node if it cannot continue."""
        storage = self._storage()
        if storage is None:
            return
        directories = storage.directories
        if directory in directories.all:
            storage.publisher.directory_failed(directory, error)
        if directory is directories.metadata:
            self._fail(
                error
                if directories.all == (directory,)
                else KafkaStorage(
                    f"the metadata log has failed: {error.message}; no other directory has a copy "
                    "of the metadata"
                )
            )
        elif not directories.online:
            self._fail(KafkaStorage(f"every log directory is offline: {error.message}"))
