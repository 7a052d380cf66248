"""Fairness between tasks of one event loop: limits a node's work before other tasks run.

asyncio does not preempt: a client that pipelines requests, a request of many batches and a peer
that reads as fast as the server sends would each keep the loop to themselves. The code that serves
them therefore asks the node's ``Turn`` when to let other tasks run.

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

The request that exceeds the limit is handled completely.
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
        """Count requests; return whether the caller must await ``next`` before it begins them.

        Args:
            requests: number of requests that the caller is about to begin.
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
        """Return a new Share, which limits one activity of this node to `nbytes` per turn."""
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
        """Count finished work; return whether the caller must await ``next`` to continue."""
        # hot: benchmarks/micro/produce.py
        if requests:
            self._turn.spend(requests)
        self._left -= nbytes
        return self._left <= 0

    def renew(self) -> None:
        """Reset the share to its limit, because other tasks have run."""
        self._left = self._limit

    async def next(self) -> None:
        """Let other tasks run, and reset the share to its limit."""
        self._left = self._limit
        await self._turn.next()
