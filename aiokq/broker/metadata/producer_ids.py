"""Producer ids, issued from blocks that the controller reserves before they are used.

No id is issued twice in a cluster. When the node stops, the unused ids of its block are lost.

Source: Kafka ``RPCProducerIdManager.java``.
Tests: ``tests/unit/broker/metadata/test_producer_ids.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiokq.core.errors import Closed, KafkaStorage
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
        """Return an id that was never issued before.

        Raises:
            KafkaStorage: no block can be reserved.
            Closed: the node is stopping.
        """
        while self._next == self._end:
            await shielded(
                self._reserve(), name="reserve producer ids", expected=(KafkaStorage, Closed)
            )
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _reserve(self) -> None:
        async with self._lock:
            if self._next < self._end:
                return  # another caller has reserved a block
            block = await self._allocate()
            self._next, self._end = block.start, block.stop
