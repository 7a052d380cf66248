"""GroupProgress: tells a group how far a stream has come, for tools that show a group's lag.

What the query has done is in its checkpoint. So nothing here ends it, and it waits for a commit
only as long as commits succeed: the newest positions are kept, and told when that is possible.
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
"""Seconds for one try."""
PATIENCE: Final = 2.0
"""Seconds that a batch waits for a commit, if the one before has succeeded."""
AGAIN: Final = 5.0
"""Seconds from a try that failed to the next one, of the positions that are newest then."""
END_TIMEOUT: Final = 2.0
"""Seconds for the last try, at the end of the query."""


class GroupProgress:
    """The positions of one query in one group.

    Called in one thread, the one that plans the query; commits on the loop of the client. Spark
    destroys the process of a query that is stopped: that is why a commit is waited for at all.

    Args:
        group_id: the group.
        client: gives the client of this process; may raise as `worker_client` does.
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
        """A batch is done: the group is there. Never raises what the cluster refuses."""
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
        """The query ends: one last try, if positions are left that the group does not know."""
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
        """What is to be committed; whoever finds nothing is not active any more."""
        with self._lock:
            self._active = self._newest is not None
            return self._newest

    def _gives_up(self, positions: PartitionOffsets) -> bool:
        """After a refusal: the next batch asks again, if it did not come meanwhile."""
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
        """Said once, until a commit succeeds, or fails of something else."""
        known = self._failure is type(error)
        self._failure = type(error)
        logger.log(
            logging.DEBUG if known else logging.WARNING,
            "offsets were not committed group_id=%s error=%r",
            self._group_id,
            error,
        )
        self._tried.set()
