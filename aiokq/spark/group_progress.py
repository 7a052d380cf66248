"""GroupProgress: commits the offsets of a stream for a consumer group, so that tools can show lag.

The query resumes from its checkpoint, not from the group's offsets. So a failed commit does not end
the query; the newest positions are committed later. Batches stop waiting for their commits when a
commit fails or takes long, and wait again when a commit has succeeded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from aiokq import Cluster
from aiokq.errors import KafkaError
from aiokq.spark.offsets import PartitionOffsets
from aiokq.spark.worker import WorkerClient

__all__ = ["GroupProgress"]

logger = logging.getLogger("aiokq.spark")

COMMIT_TIMEOUT: Final = 10.0
"""Timeout of one attempt to commit, in seconds."""
PATIENCE: Final = 2.0
"""Maximum number of seconds that a batch waits for its commit."""
AGAIN: Final = 5.0
"""Seconds from a timeout or retriable error to the next attempt to commit the newest positions."""
END_TIMEOUT: Final = 2.0
"""Timeout of the last attempt, at the end of the query, in seconds."""


class GroupProgress:
    """Committer of the positions of one query for one group.

    The methods are called in the thread that plans the query; commits run on the loop of the
    client. A batch waits for its commit because Spark kills the process when the query is stopped,
    and a commit in flight would be lost.

    Args:
        group_id: id of the group; the cluster refuses commits while the group has members.
        client: function that returns the client of this process, or raises an error of
            `worker_client`.
    """

    def __init__(self, group_id: str, client: Callable[[], WorkerClient]) -> None:
        self._group_id = group_id
        self._client = client
        self._lock = threading.Lock()
        self._newest: PartitionOffsets | None = None
        self._running: Future[None] | None = None
        self._active = False
        self._late = False
        self._failure: type[Exception] | None = None
        self._tried = threading.Event()

    def tell(self, positions: PartitionOffsets) -> None:
        """Commit the positions at the end of a batch; errors of the cluster are only logged.

        The call waits up to `PATIENCE` for the commit, unless commits have failed or were late.
        """
        try:
            client = self._client()
        except KafkaError as error:
            self._newest = positions
            self._failed(error)
            return
        self._tried.clear()
        with self._lock:
            self._newest = positions
            if not self._active:
                self._active = True
                self._running = client.submit(self._commit_newest(client.cluster))
        if not self._late and self._failure is None:
            self._late = not self._tried.wait(PATIENCE)

    def close(self) -> None:
        """Stop committing at the end of the query; try to commit remaining positions once more."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
        positions = self._newest
        if running is None or positions is None:
            return
        try:
            client = self._client()
            client.run(self._commit(client.cluster, positions), END_TIMEOUT)
        except (KafkaError, TimeoutError) as error:
            self._failed(error)

    async def _commit_newest(self, cluster: Cluster) -> None:
        try:
            while (positions := self._left()) is not None:
                try:
                    await self._commit(cluster, positions)
                except (KafkaError, TimeoutError) as error:
                    self._failed(error)
                    if not isinstance(error, KafkaError) or error.retriable:
                        await asyncio.sleep(AGAIN)
                    elif self._gives_up(positions):
                        return
                else:
                    self._succeeded(positions)
        except BaseException:
            self._active = False
            raise

    def _left(self) -> PartitionOffsets | None:
        """Return the positions to commit; None, which ends the loop, if all are committed."""
        with self._lock:
            self._active = self._newest is not None
            return self._newest

    def _gives_up(self, positions: PartitionOffsets) -> bool:
        """Return whether to stop after a refused commit: True if there are no newer positions."""
        with self._lock:
            self._active = self._newest is not positions
            return not self._active

    async def _commit(self, cluster: Cluster, positions: PartitionOffsets) -> None:
        async with asyncio.timeout(COMMIT_TIMEOUT), cluster.admin() as admin:
            await admin.alter_group_offsets(self._group_id, positions, raise_errors=True)

    def _succeeded(self, positions: PartitionOffsets) -> None:
        with self._lock:
            if self._newest is positions:
                self._newest = None
        if self._failure is not None:
            logger.info("offsets are committed again group_id=%s", self._group_id)
        self._failure = None
        self._late = False
        self._tried.set()

    def _failed(self, error: Exception) -> None:
        """Log a failure at WARNING level, or at DEBUG if the last failure had the same type."""
        known = self._failure is type(error)
        self._failure = type(error)
        logger.log(
            logging.DEBUG if known else logging.WARNING,
            "offsets were not committed group_id=%s error=%r",
            self._group_id,
            error,
        )
        self._tried.set()
