"""The background task that writes snapshots of the metadata log when it has grown enough.

The task calls `ClusterMetadataLog.snapshot` in an executor. Appends continue while a snapshot is
written.

Tests: ``tests/unit/broker/metadata/test_snapshots.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiokq.core.errors import Closed, KafkaError

if TYPE_CHECKING:
    from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog
    from aiokq.core.background import BackgroundWork
    from aiokq.core.offload import Offload
    from aiokq.core.supervisor import Supervisor

__all__ = ["MetadataSnapshots"]


class MetadataSnapshots:
    """Writes one snapshot at a time. Used from the node's loop only.

    Args:
        supervisor: runs the task. It must be closed before ``log``, which waits for the thread that
            writes an abandoned snapshot.
        background: counts and logs failures, and returns the delays between retries.
    """

    def __init__(
        self,
        log: ClusterMetadataLog,
        offload: Offload,
        supervisor: Supervisor,
        background: BackgroundWork,
    ) -> None:
        self._log = log
        self._offload = offload
        self._supervisor = supervisor
        self._background = background
        self._running = False

    def begin(self) -> None:
        """Begin a snapshot if one is due and none is being written."""
        if self._running or not self._log.is_snapshot_due:
            return
        with contextlib.suppress(Closed):  # the node is stopping, and closes the log
            self._supervisor.spawn(self._write(), name="metadata snapshot")
            self._running = True

    async def _write(self) -> None:
        task = self._background.task("metadata snapshot")
        try:
            while self._log.is_snapshot_due:
                try:
                    await self._offload.run(self._log.snapshot)
                except Closed:
                    return
                except (OSError, KafkaError) as error:
                    await asyncio.sleep(task.failed(error))
                else:
                    task.succeeded()
        except asyncio.CancelledError:
            self._log.abandon_snapshot()
            raise
        finally:
            self._running = False
