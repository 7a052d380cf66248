"""CommitQueue: a FIFO queue of commits, so that no commit overtakes an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokq.consumer.time_limit import TimeLimit
from aiokq.core.errors import KafkaError

__all__ = ["CommitTurn", "CommitQueue"]


class CommitQueue:
    """A FIFO queue whose places are assigned in the order of the calls to `join`."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    def join(self) -> CommitTurn:
        """Add a place at the end of the queue and return it; the caller must end the place."""
        last = self._last
        turn = CommitTurn(None if last is None or last.done() else last)
        self._last = turn.ended
        return turn


class CommitTurn:
    """One place in the queue.

    Attributes:
        ended: a future that is done when this place and all places before it have ended.
    """

    __slots__ = ("_before", "ended")

    def __init__(self, before: asyncio.Future[None] | None) -> None:
        self._before = before
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float, overdue: Callable[[float], KafkaError]) -> float:
        """Wait until all earlier places have ended; return the remaining seconds.

        Args:
            overdue: returns the error to raise after `seconds`.
        """
        if self._before is None or self._before.done():
            return seconds
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        async with TimeLimit(seconds, overdue):
            await asyncio.wait([self._before])  # cancelling this wait does not cancel the future
        return max(0.0, deadline - now())

    def end(self) -> None:
        """End this place; the next place follows when all earlier places have ended. Idempotent."""
        if self._before is None or self._before.done():
            self._end()
        else:
            self._before.add_done_callback(self._end)

    def _end(self, _: object = None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
