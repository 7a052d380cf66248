"""QueueTimers: the one timer of a producer; calls a queue when a linger, pause or deadline ends."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from aiokq.producer.queue_owner import NEVER

if TYPE_CHECKING:
    from aiokq.core.clock import Clock
    from aiokq.producer.partition_queue import PartitionQueue

__all__ = ["QueueTimers"]


SPARE = 64
"""The heap is cleaned if it has this many more replaced entries than valid entries."""


class QueueTimers:
    """A heap with at most one valid entry per queue, and a task that waits for the first entry.

    Linger, pauses and deadlines of a queue share one entry: `on_time` handles each of them that is
    due, and schedules the next call. The heap therefore does not grow with the number of batches.
    If an entry is replaced by an entry for an earlier time, the old entry stays in the heap until
    its time, unless the heap is cleaned before.

    Args:
        broke: called with a queue whose `on_time` raised; the other queues are still called.
    """

    def __init__(
        self, clock: Clock, broke: Callable[[PartitionQueue, str, Exception], None]
    ) -> None:
        self._clock = clock
        self._broke = broke
        self._heap: list[tuple[float, int, PartitionQueue]] = []
        self._order = count()
        self._valid = 0
        self._sleeper: asyncio.Future[None] | None = None
        self._until = NEVER

    def schedule(self, queue: PartitionQueue, when: float) -> None:
        """Call `queue.on_time` at `when` (monotonic seconds) or earlier."""
        if when >= queue.scheduled_at:
            return
        if queue.scheduled_at == NEVER:
            self._valid += 1
        queue.scheduled_at = when
        heapq.heappush(self._heap, (when, next(self._order), queue))
        if len(self._heap) > 2 * self._valid + SPARE:
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].scheduled_at]
            heapq.heapify(self._heap)
        if when < self._until and self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def run(self) -> None:
        """Call the queues that are due, forever."""
        loop = asyncio.get_running_loop()
        while True:
            now = self._clock.monotonic()
            self._call_due(now)
            sleeper = self._sleeper = loop.create_future()
            self._until = self._heap[0][0] if self._heap else NEVER
            handle: asyncio.TimerHandle | None = None
            if self._until < NEVER:
                # Rounded up to whole milliseconds, in which uvloop counts: a shorter delay would
                # wake this task repeatedly within the last millisecond.
                delay = math.ceil(max(0.0, self._until - now) * 1000) / 1000
                handle = loop.call_later(delay, _wake, sleeper)
            try:
                await sleeper
            finally:
                if handle is not None:
                    handle.cancel()

    def _call_due(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            when, _, queue = heapq.heappop(self._heap)
            if when == queue.scheduled_at:  # else an entry for an earlier time replaced it
                self._valid -= 1
                queue.scheduled_at = NEVER
                try:
                    queue.on_time(now)
                except Exception as error:  # noqa: BLE001  logged by `broke`
                    self._broke(queue, "on_time", error)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
