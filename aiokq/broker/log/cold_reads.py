"""Reads for looks at logs what only the disk has: the way off the node's loop and back.

Owns that nobody waits for the disk on the loop, and that nothing is read twice at a time. What has
to be read a look says itself, by ``ColdRead``; what comes of it is its segment's.

Tests: ``tests/unit/broker/log/test_cold_reads.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.broker.log.cold import ColdRead, Load
from aiokq.core.errors import CorruptRecord
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.core.files import FileRange
    from aiokq.core.offload import Offload

__all__ = ["MOST_TRIES", "ColdReads"]

logger = logging.getLogger("aiokq.broker")

MOST_TRIES: Final = 3
"""How often one look waits for the same: what is pushed out of memory as fast as it comes in is no
reason to read for ever. Its answer is then an error that clients retry."""

R = TypeVar("R")


class ColdReads:
    """The cold reads of one node."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._loading: dict[Hashable, asyncio.Event] = {}

    async def read(self, look: Callable[[], R]) -> R:
        """What ``look`` gives, which is asked again whenever something it needs was read.

        Raises:
            ColdRead: it is never there when it is asked for.
            BrokerError: as ``look``.
        """
        tries: Counter[Hashable] | None = None  # mostly there is nothing to count
        while True:
            try:
                return look()
            except ColdRead as cold:
                if tries is None:
                    tries = Counter()
                tries.update(load.key for load in cold.loads)
                if max(tries.values()) > MOST_TRIES:
                    raise
                loads = cold.loads
            await self.load(loads)

    async def content(self, ranges: Sequence[FileRange]) -> bytes:
        """The bytes of all of these.

        Raises:
            OSError, EOFError: they cannot be read.
        """
        return await self._offload.run(_content, ranges)

    async def load(self, loads: Sequence[Load]) -> None:
        """Have it read, unless somebody does already; then a look may know more.

        What is begun is finished, for others may wait for it.
        """
        loading = self._loading
        mine = [load for load in loads if load.key not in loading]
        others = [loading[load.key] for load in loads if load.key in loading]
        if mine:
            done = asyncio.Event()
            loading.update((load.key, done) for load in mine)
            try:
                await shielded(self._read(mine), name="read from the disk")
            finally:
                for load in mine:
                    del loading[load.key]
                done.set()
        for other in others:
            await other.wait()

    async def _read(self, loads: Sequence[Load]) -> None:
        outcomes = await self._offload.run(_outcomes, loads)
        for load, outcome in zip(loads, outcomes, strict=True):
            if isinstance(outcome, CorruptRecord):
                logger.error("segment not sound file=%s error=%s", load.segment, outcome.message)
            load.segment.loaded(load.what, outcome)


def _content(ranges: Sequence[FileRange]) -> bytes:
    return b"".join([part.read() for part in ranges])


def _outcomes(loads: Sequence[Load]) -> list[object]:
    return [load.outcome() for load in loads]
