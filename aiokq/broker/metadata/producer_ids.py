"""Where producer ids come from: blocks that are reserved in the metadata log before they are used.

Owns the block in use. Whatever happens to the process, an id is issued at most once per data
directory: what is left of a block at the end is lost, never issued again.

Source: Kafka ``RPCProducerIdManager.java``.
Tests: ``tests/unit/broker/metadata/test_producer_ids.py``.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokq.broker.metadata.metadata_log import MetadataLog
from aiokq.broker.metadata.metadata_records import ProducerIdsReserved
from aiokq.core.offload import Offload
from aiokq.core.supervisor import shielded

__all__ = ["BLOCK_SIZE", "ProducerIds"]

BLOCK_SIZE: Final = 1000
"""Ids reserved with one write, as many as Kafka's controller hands out."""


class ProducerIds:
    """Issues producer ids, one at a time."""

    def __init__(self, metadata: MetadataLog, offload: Offload) -> None:
        self._metadata = metadata
        self._offload = offload
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
            first = self._metadata.image.next_producer_id
            end = first + BLOCK_SIZE
            await self._offload.run(self._metadata.append, ProducerIdsReserved(end))
            self._next, self._end = first, end
