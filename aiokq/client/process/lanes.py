"""Lanes: handles items concurrently, but in order within each partition, or each key."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import TransactionAborted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiokq.client.process.backlog import Backlog, Item
    from aiokq.core.supervisor import Supervisor
    from aiokq.core.types import TopicPartition

__all__ = ["Lanes"]

PARKED: Final = 4
"""Maximum number of parked items per concurrent handler.

A parked item was taken from the backlog, and waits for an earlier item with the same key. All
parked items must be handled before the transaction ends, because later items of their partitions
may already be handled.
"""


class Lanes:
    """Handles the items of a backlog, at most `concurrency` at a time.

    Items are taken from each partition in offset order. A lane consists of the items of one
    partition, or of the items with one key; they are handled one after another.

    Args:
        work: handles one item.
        ended: returns whether to take no more items.
        lane_of: a function that returns the key of an item's lane. If the argument is None, each
            partition is a lane.
    """

    def __init__(
        self,
        backlog: Backlog,
        work: Callable[[Item], Awaitable[None]],
        ended: Callable[[], bool],
        lane_of: Callable[[Item], Hashable] | None,
        concurrency: int,
        supervisor: Supervisor,
    ) -> None:
        self._backlog = backlog
        self._work = work
        self._ended = ended
        self._lane_of = lane_of
        self._concurrency = concurrency
        self._supervisor = supervisor
        self._turn: deque[TopicPartition] = deque(backlog.open_partitions())
        self._busy: dict[Hashable, deque[Item]] = {}
        """The lanes with an item that is being handled; the values are their parked items."""
        self._parked = 0
        self._progress = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self) -> None:
        """Handle items until none can be taken, or `ended` returns True.

        If `run` is cancelled, or `work` raises an exception, the other calls of `work` are
        cancelled, and have ended when `run` ends.

        Raises:
            Exception: the first exception of `work`.
        """
        lanes = self._backlog.count() if self._lane_of is not None else len(self._turn)
        tasks: set[asyncio.Task[None]] = set()
        try:
            for number in range(min(self._concurrency, lanes)):
                tasks.add(self._supervisor.spawn(self._worker(tasks), name=f"handler {number}"))
            if tasks:
                await asyncio.wait(tasks)
        finally:
            running = {task for task in tasks if not task.done()}
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        if self._failure is not None:
            raise self._failure

    async def _worker(self, tasks: set[asyncio.Task[None]]) -> None:
        try:
            while self._failure is None:
                taken = self._take()
                if taken is None:
                    if self._lane_of is None or not self._is_full() or self._ended():
                        return
                    self._progress.clear()
                    await self._progress.wait()
                    continue
                await self._run_lane(*taken)
        except asyncio.CancelledError:
            worker = asyncio.current_task()
            assert worker is not None
            if worker.cancelling():
                raise
            self._fail(TransactionAborted("the results of a record were cancelled"), tasks)
        except Exception as error:  # noqa: BLE001 - raised by run(), when all workers have ended
            self._fail(error, tasks)

    def _fail(self, error: Exception, tasks: set[asyncio.Task[None]]) -> None:
        self._failure = self._failure or error
        for task in tasks:
            task.cancel()

    async def _run_lane(self, lane: Hashable, item: Item) -> None:
        waiting = self._busy[lane] = deque()
        await self._work(item)
        while waiting:
            self._parked -= 1
            await self._work(waiting.popleft())
            self._progress.set()
        del self._busy[lane]
        self._progress.set()

    def _is_full(self) -> bool:
        return self._parked >= PARKED * self._concurrency

    def _take(self) -> tuple[Hashable, Item] | None:
        """Return the next item whose lane is free, with its lane; None if there is none now.

        With `lane_of`, each item whose lane is busy is parked, and the search goes on.
        """
        if self._lane_of is None:
            return self._take_partition()
        while self._turn and not self._is_full() and not self._ended():
            tp = self._turn.popleft()
            item = self._backlog.take(tp)
            if item is None:
                continue
            self._turn.append(tp)
            lane = self._lane_of(item)
            waiting = self._busy.get(lane)
            if waiting is None:
                return lane, item
            waiting.append(item)
            self._parked += 1
        return None

    def _take_partition(self) -> tuple[Hashable, Item] | None:
        for _ in range(len(self._turn)):
            if self._ended():
                break
            tp = self._turn.popleft()
            if tp in self._busy:
                self._turn.append(tp)
                continue
            item = self._backlog.take(tp)
            if item is not None:
                self._turn.append(tp)
                return tp, item
        return None
