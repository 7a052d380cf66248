"""Gives out producer ids, from blocks that the controller reserves before they are used.

Owns the block in use. Whatever happens to the process, an id is issued at most once per cluster:
what is left of a block at the end is lost, never issued again.

Source: Kafka ``RPCProducerIdManager.java``.
Tests: ``tests/unit/broker/metadata/test_producer_ids.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiokq.core.supervisor import shielded

__all__ = ["ProducerIds"]


class ProducerIds:
    """Issues producer ids, one at a time.

    Args:
        allocate: reserves a block of ids.
    """

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """An id that was never issued before.

        Raises:
            KafkaStorage: no block can be reserved.
        """
        while self._next == self._end:
            await shielded(self._reserve(), name="reserve producer ids")
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _reserve(self) -> None:
        async with self._lock:
            if self._next < self._end:
                return  # somebody else waited for it too
            block = await self._allocate()
            self._next, self._end = block.start, block.stop
