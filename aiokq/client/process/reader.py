"""Reader: reads records from the consumer into the backlog; other modules handle them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from aiokq.core.errors import RequestTimeout
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiokq.client.process.backlog import Backlog
    from aiokq.client.process.options import ProcessOptions
    from aiokq.consumer.batch import RecordBatch
    from aiokq.consumer.consumer import Consumer
    from aiokq.fastpath.consume import Record

__all__ = ["Reader"]

FIRST_CHUNK: Final = 256
"""Initial number of records to read at a time; `handled` adapts it to the handler's speed."""


class Reader:
    """Reads records, or batches with ``batch=True``."""

    def __init__(self, consumer: Consumer, backlog: Backlog, options: ProcessOptions) -> None:
        self._consumer = consumer
        self._backlog = backlog
        self._options = options
        self._chunk = min(FIRST_CHUNK, options.max_records)
        self._paused: frozenset[TopicPartition] = frozenset()
        self._reading: asyncio.Timeout | None = None
        self._rebalance_was_late = False

    async def read(self, timeout: float) -> bool:
        """Add the next records to the backlog, waiting at most `timeout` seconds for them.

        Returns:
            Whether any records were added.

        Raises:
            Exception: see `Consumer.getmany`.
        """
        if self._backlog.suspects or self._paused:
            self._pause_blocked()
        if self._options.batch:
            return await self._read_batches(timeout)
        most = max(self._chunk - self._backlog.count(), 1)
        found: Mapping[TopicPartition, list[Any]] = {}
        with self._waking(asyncio.timeout(None)) as limit:
            async with limit:
                found = await self._consumer.getmany(timeout=timeout, max_records=most)
        for tp, records in found.items():
            self._backlog.extend(tp, records)
        return bool(found)

    def wake(self) -> None:
        """End a wait for records."""
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())

    def expect_late_rebalance(self) -> None:
        """Ignore the next `RequestTimeout`, which reports the timeout of an on_revoked handler.

        `Processor.revoked`, which is that handler, has already reacted to the timeout: the handled
        records are aborted.
        """
        self._rebalance_was_late = True

    @contextlib.contextmanager
    def _waking(self, limit: asyncio.Timeout) -> Iterator[asyncio.Timeout]:
        """Allow `wake` to end the wait in the block; `limit` is the timeout of the wait."""
        self._reading = limit
        try:
            yield limit
        except TimeoutError as error:
            if self._rebalance_was_late and isinstance(error, RequestTimeout):
                self._rebalance_was_late = False
            elif not limit.expired():
                raise
        finally:
            self._reading = None

    def handled(self, count: int) -> None:
        """Adapt the number of records to read at a time, after `count` records were handled.

        If the backlog has records left, the number becomes `count`, unless a record has failed. If
        the backlog is empty, the number is doubled, up to `max_records`.
        """
        if self._backlog.queues and not self._backlog.suspects:
            self._chunk = max(count, 1)
        elif not self._backlog.queues:
            self._chunk = min(self._chunk * 2, self._options.max_records)

    def _pause_blocked(self) -> None:
        """Pause partitions whose first record must be handled alone; resume other partitions."""
        owned = self._consumer.assignment()
        blocked = frozenset(self._backlog.blocked()) & owned
        self._consumer.resume(*(self._paused & owned - blocked))
        self._consumer.pause(*blocked)
        self._paused = blocked

    async def _read_batches(self, timeout: float) -> bool:
        """Add batches until the backlog has a batch for each handler, or no batch is available.

        Wait at most `timeout` seconds for the first batch; return whether any was added.
        """
        read = False
        batches = self._consumer.batches()
        while self._backlog.count() < self._options.concurrency or not read:
            batch: RecordBatch[Record] | None = None
            with self._waking(asyncio.timeout(timeout)) as limit:
                async with limit:
                    batch = await anext(batches)
            if batch is None:
                break
            self._backlog.extend(TopicPartition(batch.topic, batch.partition), (batch,))
            read, timeout = True, 0.0
        return read
