"""CommitQueue: a FIFO queue of commits, so that no commit overtakes an earlier commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokq.consumer.time_limit import TimeLimit
from aiokq.core.errors import KafkaError

__all__ = ["CommitTurn", "CommitQueue"]


class CommitQueue:
    """A FIFO queue of turns, in the order of the calls to `join`."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    def join(self) -> CommitTurn:
        """Add a turn at the end of the queue and return it; the caller must call its `end`."""
        last = self._last
        turn = CommitTurn(None if last is None or last.done() else last)
        self._last = turn.ended
        return turn


class CommitTurn:
    """The turn of one commit.

    Attributes:
        ended: a future that is done when this turn and all earlier turns have ended.
    """

    __slots__ = ("_before", "ended")

    def __init__(self, before: asyncio.Future[None] | None) -> None:
        self._before = before
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float, overdue: Callable[[float], KafkaError]) -> float:
        """Wait until all earlier turns have ended; return the rest of `seconds`.

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
        """End this turn. The next turn begins when all earlier turns have ended. Idempotent."""
        if self._before is None or self._before.done():
            self._end()
        else:
            self._before.add_done_callback(self._end)

    def _end(self, _: object = None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
