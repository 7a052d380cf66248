"""Tells the controller the log directory of each replica on this node.

A node with several log directories chooses a directory when it creates a log. If an operator has
moved a log, the node finds the log in another directory than the metadata says. In both cases the
partition is served at once, before the metadata names the new directory.

Source: Kafka ``AssignmentsManager.java``, KIP-858.
Tests: ``tests/unit/broker/metadata/test_directory_assignment.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING

from aiokq.core.errors import Closed, KafkaStorage

if TYPE_CHECKING:
    from aiokq.broker.metadata.changes import MetadataChanges
    from aiokq.core.background import BackgroundWork
    from aiokq.core.supervisor import Supervisor

__all__ = ["DirectoryAssignment"]


class DirectoryAssignment:
    """The replicas whose directory is not recorded yet. Used from the node's loop only.

    Args:
        changes: records the directories.
        supervisor: runs the task that calls ``changes``; must be closed before ``changes``.
        background: counts failures, and returns the delays between retries.
    """

    def __init__(
        self, changes: MetadataChanges, supervisor: Supervisor, background: BackgroundWork
    ) -> None:
        self._changes = changes
        self._supervisor = supervisor
        self._background = background
        self._pending: dict[tuple[uuid.UUID, int], uuid.UUID] = {}
        self._running = False

    def placed(self, topic_id: uuid.UUID, index: int, directory: uuid.UUID) -> None:
        """Start to record the directory of a replica in the metadata log.

        A task records it. If this method is called several times during one append of the task,
        the next append records the directories of all these calls.

        Args:
            index: number of the partition.
            directory: directory.id of the log directory.
        """
        self._pending[topic_id, index] = directory
        if not self._running:
            with contextlib.suppress(Closed):  # the next start finds the log and reports it again
                self._supervisor.spawn(self._record(), name="assign directories")
                self._running = True

    async def _record(self) -> None:
        task = self._background.task("assign directories")
        try:
            while self._pending:
                places, self._pending = self._pending, {}
                try:
                    await self._changes.assign_directories(places)
                except KafkaStorage as error:
                    self._pending = {**places, **self._pending}
                    await asyncio.sleep(task.failed(error))
                else:
                    task.succeeded()
        except Closed:
            pass  # the node is stopping
        finally:
            self._running = False
