"""Makes the indexes of old segments again while a node runs, for reads that find them damaged.

Owns the way off the loop and back; what is made is the segment's. At its start a node makes those
again whose files are missing or have the wrong size: what is left is damage inside of them.

Tests: ``tests/unit/broker/test_index_repair.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from aiokq.broker.log.index import IndexesToRebuild
from aiokq.core.errors import CorruptRecord

if TYPE_CHECKING:
    from aiokq.broker.log.segment import Segment
    from aiokq.core.offload import Offload

__all__ = ["IndexRepair"]

logger = logging.getLogger("aiokq.broker")

R = TypeVar("R")


class IndexRepair:
    """Repairs indexes of one node, one segment after the other."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._lock = asyncio.Lock()

    async def read(self, look: Callable[[], R]) -> R:
        """What ``look`` gives, which is asked again after each repair that it needs.

        Raises:
            BrokerError: as ``look``.
        """
        while True:
            try:
                return look()
            except IndexesToRebuild as wanted:
                await self.repair(wanted.segment)

    async def read_from(self, look: Callable[[], Awaitable[R]]) -> R:
        """As ``read``, where ``look`` awaits something itself."""
        while True:
            try:
                return await look()
            except IndexesToRebuild as wanted:
                await self.repair(wanted.segment)

    async def repair(self, segment: Segment) -> None:
        """Make a segment's indexes again, unless somebody has; what fails is logged."""
        async with self._lock:
            if not segment.on_loop:
                return  # somebody else's read has waited for the same
            try:
                copy = await self._offload.run(segment.rebuilt)
            except (OSError, CorruptRecord) as error:
                # The next read tries on the loop, and says of whose log it is what is wrong.
                logger.error("indexes not made again segment=%s error=%s", segment, error)
            else:
                segment.adopt(copy)
            segment.on_loop = False
