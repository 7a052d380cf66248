"""CommitQueue: who asked first goes first, one at a time; for commits, which must not overtake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokq.consumer.time_limit import TimeLimit
from aiokq.core.errors import KafkaError

__all__ = ["CommitTurn", "CommitQueue"]


class CommitQueue:
    """Gives a place in the line at once, before anything is waited for."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    def join(self) -> CommitTurn:
        """A place behind all that were given so far; it must be ended."""
        last = self._last
        turn = CommitTurn(None if last is None or last.done() else last)
        self._last = turn.ended
        return turn


class CommitTurn:
    """One place in the line.

    Attributes:
        ended: done when this one and all before it have ended.
    """

    __slots__ = ("_before", "ended")

    def __init__(self, before: asyncio.Future[None] | None) -> None:
        self._before = before
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float, overdue: Callable[[float], KafkaError]) -> float:
        """Wait for it; the seconds that are left then.

        Args:
            overdue: gives the error to raise when it does not come in time.
        """
        if self._before is None or self._before.done():
            return seconds
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        async with TimeLimit(seconds, overdue):
            await asyncio.wait([self._before])  # not the future itself: a cancelled wait ends it
        return max(0.0, deadline - now())

    def end(self) -> None:
        """The next may go, if it is not waiting for an earlier one too. Harmless twice."""
        if self._before is None or self._before.done():
            self._end()
        else:
            self._before.add_done_callback(self._end)

    def _end(self, _: object = None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
