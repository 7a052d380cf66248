"""Fairness between tasks of one event loop: how much work a node does before other tasks run.

asyncio does not preempt: a client that pipelines requests, a request of many batches and a peer
that reads as fast as the server sends would each keep the loop to themselves. All of them ask the
node's ``Turn``.

Tests: ``tests/unit/connection/test_turn.py``; starvation: ``tests/unit/broker/test_dispatch.py``,
``tests/unit/connection/test_server.py``, ``tests/unit/broker/handlers/test_produce.py``.
"""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = [
    "APPENDED_BYTES_PER_TURN",
    "RECEIVED_BYTES_PER_TURN",
    "REQUESTS_PER_TURN",
    "SENT_BYTES_PER_TURN",
    "Share",
    "Turn",
]

REQUESTS_PER_TURN: Final = 64
"""Requests that a node begins in one iteration of the event loop."""

RECEIVED_BYTES_PER_TURN: Final = 512 * 1024
"""Bytes of one connection's requests that are handled before other tasks run.

The request that passes the limit is handled whole.
"""

APPENDED_BYTES_PER_TURN: Final = 4 * 1024 * 1024
"""Bytes of one request that are appended before other tasks run."""

SENT_BYTES_PER_TURN: Final = 4 * 1024 * 1024
"""Bytes of one response that are sent from files before other tasks run."""


class Turn:
    """The requests that one node may still begin in this iteration of the event loop."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = REQUESTS_PER_TURN

    def spend(self, requests: int, nbytes: int = 0) -> bool:
        """Count requests; return whether to await ``next`` before they are begun.

        Args:
            nbytes: ignored, because a ``Share`` limits the bytes of one activity.
        """
        # hot: benchmarks/micro/produce.py
        if self._left == REQUESTS_PER_TURN:
            asyncio.get_running_loop().call_soon(self._begin)
        left = self._left = self._left - requests
        return left < 0

    async def next(self) -> None:
        """Let other tasks run."""
        await asyncio.sleep(0)

    def share(self, nbytes: int) -> Share:
        """Return a limit of `nbytes` per turn for one activity of this node."""
        return Share(self, nbytes)

    def _begin(self) -> None:
        self._left = REQUESTS_PER_TURN


class Share:
    """The bytes that one activity may still handle before other tasks run.

    The activity is a connection's requests, the appends of one request or one response.
    """

    __slots__ = ("_left", "_limit", "_turn")

    def __init__(self, turn: Turn, limit: int) -> None:
        self._turn = turn
        self._limit = limit
        self._left = limit

    def spend(self, requests: int, nbytes: int) -> bool:
        """Count work that is done; return whether to await ``next`` before any more."""
        # hot: benchmarks/micro/produce.py
        if requests:
            self._turn.spend(requests)
        self._left -= nbytes
        return self._left <= 0

    def renew(self) -> None:
        """Start again with the whole limit, because other tasks have run meanwhile."""
        self._left = self._limit

    async def next(self) -> None:
        """Let other tasks run, and start again with the whole limit."""
        self._left = self._limit
        await self._turn.next()
