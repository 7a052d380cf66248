"""Reads for looks at logs what only the disk has: the way off the node's loop and back.

Owns that nobody waits for the disk on the loop, that nothing is read twice at a time, and how many
read at once. What has to be read a look says itself, by ``ColdRead``; what comes of it is its
segment's.

Tests: ``tests/unit/broker/log/test_cold_reads.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.core.errors import CorruptRecord
from aiokq.core.offload import THREADS
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.core.files import FileRange
    from aiokq.core.offload import Offload

__all__ = ["AT_ONCE", "MOST_TRIES", "ColdReads"]

logger = logging.getLogger("aiokq.broker")

MOST_TRIES: Final = 3
"""How often one look waits for the same: what is pushed out of memory as fast as it comes in is no
reason to read for ever. Its answer is then an error that clients retry."""

AT_ONCE: Final = THREADS // 3
"""The most reads at a time. On a slow disk, those who read old records would else have all threads:
nothing would be flushed, compressed or created but between two of their reads."""

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class ColdReads:
    """The cold reads of one node."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._loading: dict[Hashable, asyncio.Event] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        # How many looks use what was read, until they are done: they may have to wait for more.
        self._asked: Counter[Hashable] = Counter()

    async def read(self, look: Callable[[], R]) -> R:
        """What ``look`` gives, which is asked again whenever something it needs was read.

        Raises:
            ColdRead: it is never there when it is asked for.
            BrokerError: as ``look``.
        """
        tries: Counter[Hashable] = Counter()
        asked: list[DiskLoad] = []
        try:
            while True:
                try:
                    return look()
                except ColdRead as cold:
                    loads = cold.loads
                    for load in loads:
                        if not tries[load.key]:
                            asked.append(load)
                            self._asked[load.key] += 1
                        tries[load.key] += 1
                    if max(tries.values()) > MOST_TRIES:
                        raise
                await self.load(loads)
        finally:
            self._forget(asked)

    async def content(self, ranges: Sequence[FileRange]) -> bytes:
        """The bytes of all of these.

        Raises:
            OSError, EOFError: they cannot be read.
        """
        return await self.run(_content, ranges)

    async def run(self, read: Callable[[*Ts], R], *args: *Ts) -> R:
        """What ``read`` gives, which waits for the disk: off the loop, when it is its turn."""
        async with self._turns:
            return await self._offload.run(read, *args)

    async def load(self, loads: Sequence[DiskLoad]) -> None:
        """Have it read, unless somebody does already; then a look may know more.

        What is begun is finished, for others may wait for it.
        """
        loading = self._loading
        others = [loading[load.key] for load in loads if load.key in loading]
        mine = {load.key: load for load in loads if load.key not in loading}
        if mine:
            done = asyncio.Event()
            loading.update(dict.fromkeys(mine, done))
            try:
                await shielded(self._read(list(mine.values())), name="read from the disk")
            finally:
                for key in mine:
                    del loading[key]
                done.set()
        for other in others:
            await other.wait()

    def _forget(self, asked: Sequence[DiskLoad]) -> None:
        """A look is done: what nobody else asked for needs not be kept."""
        for load in asked:
            self._asked[load.key] -= 1
            if not self._asked[load.key]:
                del self._asked[load.key]
                load.segment.forget(load.what)

    async def _read(self, loads: Sequence[DiskLoad]) -> None:
        outcomes = await self.run(_outcomes, loads)
        for load, outcome in zip(loads, outcomes, strict=True):
            if isinstance(outcome, CorruptRecord):
                logger.error("segment not sound file=%s error=%s", load.segment, outcome.message)
            load.segment.loaded(load.what, outcome)


def _content(ranges: Sequence[FileRange]) -> bytes:
    return b"".join([part.read() for part in ranges])


def _outcomes(loads: Sequence[DiskLoad]) -> list[object]:
    return [load.outcome() for load in loads]
