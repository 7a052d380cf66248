"""Cold reads of a node: reads of logs that need data from the disk.

A read raises ``ColdRead`` with the items, such as indexes and batch headers, that have to be
loaded. An executor loads the items, and the read is repeated. The number of concurrent disk reads
is limited.

Tests: ``tests/unit/broker/log/test_cold_reads.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.broker.log.file_names import LOG
from aiokq.core.errors import CorruptRecord
from aiokq.core.offload import THREADS
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.core.files import FileRange
    from aiokq.core.offload import Offload

__all__ = ["AT_ONCE", "MOST_TRIES", "ColdReads"]

logger = logging.getLogger("aiokq.broker")

MOST_TRIES: Final = 3
"""The maximum number of times that one read loads the same item.

An item may be evicted from memory before it is used. After the last try the read fails with an
error that clients retry.
"""

AT_ONCE: Final = THREADS // 3
"""The maximum number of concurrent disk reads.

Without the limit, reads of old records from a slow disk would occupy all threads of the executor,
and delay flushes, compression and the creation of topics.
"""

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class ColdReads:
    """Loads data from the disk for the reads of one node that raise ``ColdRead``."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._loading: dict[Hashable, asyncio.Event] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        # The number of reads that use each item. An item is kept until these reads end, because
        # they may still wait for other items.
        self._asked: Counter[Hashable] = Counter()

    async def read(self, look: Callable[[], R]) -> R:
        """Return the result of ``look``. On ``ColdRead``, load the items and call ``look`` again.

        Raises:
            ColdRead: an item was loaded ``MOST_TRIES`` times, and evicted each time before it could
                be used.
            BrokerError: raised by ``look``.
        """

        async def looked() -> R:
            return look()

        return await self.read_by(looked)

    async def read_by(self, look: Callable[[], Awaitable[R]]) -> R:
        """Like ``read``, but with a coroutine function ``look``, which lets other tasks run.

        Raises:
            ColdRead, BrokerError: see ``read``.
        """
        tries: Counter[Hashable] = Counter()
        asked: list[DiskLoad] = []
        try:
            while True:
                try:
                    return await look()
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
        """Return the bytes of all ranges.

        Raises:
            OSError, EOFError: a range cannot be read.
        """
        return await self.run(_content, ranges)

    async def run(self, read: Callable[[*Ts], R], *args: *Ts) -> R:
        """Run ``read`` in the executor, within the limit of concurrent disk reads."""
        async with self._turns:
            return await self._offload.run(read, *args)

    async def load(self, loads: Sequence[DiskLoad]) -> None:
        """Load the items that are not being loaded already, and wait until all items are loaded.

        A load that has begun continues if the caller is cancelled, because other reads may wait for
        it.
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
        """Drop the items of a read that has ended, except those that another read uses."""
        for load in asked:
            self._asked[load.key] -= 1
            if not self._asked[load.key]:
                del self._asked[load.key]
                load.segment.forget(load.what)

    async def _read(self, loads: Sequence[DiskLoad]) -> None:
        outcomes = await self.run(_outcomes, loads)
        for load, outcome in zip(loads, outcomes, strict=True):
            if isinstance(outcome, CorruptRecord):
                path = load.segment.path(LOG)
                logger.error("damaged segment file=%s error=%s", path, outcome.message)
            load.segment.loaded(load.what, outcome)


def _content(ranges: Sequence[FileRange]) -> bytes:
    return b"".join([part.read() for part in ranges])


def _outcomes(loads: Sequence[DiskLoad]) -> list[object]:
    return [load.outcome() for load in loads]
