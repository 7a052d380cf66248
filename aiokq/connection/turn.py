"""`Turn`: limits the work of a node in one iteration of its event loop, so that other tasks run.

asyncio does not preempt. A client that pipelines requests, a request of many batches, a peer that
reads as fast as the server sends, or a thousand clients that send one request each would occupy the
loop. The code that serves clients therefore asks the node's ``Turn`` when to let other tasks run.

Tests: ``tests/unit/connection/test_turn.py``; starvation: ``tests/unit/broker/test_dispatch.py``,
``tests/unit/broker/test_long_requests.py``, ``tests/unit/connection/test_server.py``,
``tests/unit/broker/handlers/test_produce.py``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

__all__ = [
    "APPENDED_BYTES_PER_TURN",
    "BATCHES_PER_REQUEST",
    "COPIED_BYTES_PER_TURN",
    "RECEIVED_BYTES_PER_TURN",
    "REQUESTS_PER_TURN",
    "SENT_BYTES_PER_TURN",
    "STEPS_PER_LOOK",
    "Pace",
    "Share",
    "Steps",
    "Turn",
    "at_once",
]

R = TypeVar("R")

Steps: TypeAlias = Generator[None, None, R]
"""Work that yields after each `STEPS_PER_LOOK` steps; see `Pace.run`."""

REQUESTS_PER_TURN: Final = 64
"""Maximum number of requests that a node begins in one iteration of the event loop."""

BATCHES_PER_REQUEST: Final = 16
"""Number of appended batches that count as one more request.

A Produce request of 4 MB may contain 50,000 small batches.
"""

RECEIVED_BYTES_PER_TURN: Final = 512 * 1024
"""Bytes of one connection's requests that are handled before other tasks run.

The request that exceeds the limit is handled completely.
"""

APPENDED_BYTES_PER_TURN: Final = 4 * 1024 * 1024
"""Bytes of one request that are appended before other tasks run."""

SENT_BYTES_PER_TURN: Final = 4 * 1024 * 1024
"""Bytes of one response that are sent from files before other tasks run."""

COPIED_BYTES_PER_TURN: Final = 1024 * 1024
"""Bytes of one response that are read from files, encrypted and sent before other tasks run."""

SECONDS_PER_TURN: Final = 0.002
"""Time that a long request works in one iteration of the event loop.

A request of 2 MB may name 50,000 topics, which take a second of work.
"""

REQUESTS_PER_LONG_TURN: Final = 16
"""Number of requests that each turn of a long request counts as."""

STEPS_PER_LOOK: Final = 32
"""Number of steps after which a request reads the clock."""


class Turn:
    """The requests that one node may still begin in this iteration of the event loop.

    Work beyond the limit waits in order of arrival, and is counted in the iteration in which it
    continues.

    Attributes:
        begun: number of requests that were counted so far. For a client that has logged in, each
            read that leaves a request incomplete counts as one more, and short ApiVersions requests
            do not count.
    """

    __slots__ = ("_left", "_long", "_reserved", "_waiting", "begun")

    def __init__(self) -> None:
        self.begun = 0
        self._left = REQUESTS_PER_TURN  # this number also means that no `_begin` is scheduled
        self._reserved = 0
        """Number of requests that are already granted for the next iteration."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._long: deque[asyncio.Future[None]] = deque()
        """The long requests that wait for an iteration; the first one gets the next iteration."""

    def spend(self, requests: int) -> bool:
        """Count requests, or finished work that counts like requests, in this iteration.

        Returns:
            Whether the limit is exceeded, so that the caller must await ``next`` before it begins
            a request or continues.
        """
        # Hot path, measured by benchmarks/micro/produce.py.
        if self._left == REQUESTS_PER_TURN:
            asyncio.get_running_loop().call_soon(self._begin)
        self.begun += requests
        left = self._left = self._left - requests
        return left < 0

    async def next(self) -> None:
        """Let other tasks run, and wait for an iteration in which one more request may begin."""
        loop = asyncio.get_running_loop()
        if self._left == REQUESTS_PER_TURN:
            loop.call_soon(self._begin)
            self._left -= 1  # the caller has worked in this iteration
        if self._reserved < REQUESTS_PER_TURN:
            self._reserved += 1
            await asyncio.sleep(0)
        else:
            waiter = loop.create_future()
            self._waiting.append(waiter)
            await waiter

    async def next_of_long(self) -> None:
        """Wait for an iteration of the loop in which no other long request runs."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._long.append(waiter)
        if len(self._long) == 1:
            loop.call_soon(self._grant_long)
        await waiter

    def _grant_long(self) -> None:
        """Let one waiting long request run in the next iteration."""
        waiting = self._long
        while waiting and waiting[0].done():
            waiting.popleft()  # the request has run, or its task was cancelled
        if waiting:
            waiting[0].set_result(None)
            asyncio.get_running_loop().call_soon(self._grant_long)

    def share(self, nbytes: int) -> Share:
        """Return a new Share, which limits one activity of this node to `nbytes` per turn."""
        return Share(self, nbytes)

    def _begin(self) -> None:
        """Begin an iteration with the granted requests; grant requests of the next iteration."""
        if self._reserved:
            # This iteration has granted requests, so `_begin` must run in the next iteration, too.
            # It is scheduled before the tasks of this iteration run, so it runs before their next
            # steps.
            asyncio.get_running_loop().call_soon(self._begin)
        self._left = REQUESTS_PER_TURN - self._reserved
        self._reserved = 0
        waiting = self._waiting
        while waiting and self._reserved < REQUESTS_PER_TURN:
            waiter = waiting.popleft()
            if not waiter.done():  # a cancelled task needs no grant
                waiter.set_result(None)
                self._reserved += 1


class Share:
    """The bytes that one activity may still handle before other tasks run.

    An activity is the requests of one connection, the appends of one request, or one response. If
    the activity continues in a later turn, it counts as a request of that turn.
    """

    __slots__ = ("_left", "_limit", "_turn")

    def __init__(self, turn: Turn, limit: int) -> None:
        self._turn = turn
        self._limit = limit
        self._left = limit

    def spend(self, requests: int, nbytes: int) -> bool:
        """Count finished work; return whether the caller must await ``next`` to continue.

        Args:
            requests: number of requests that the work counts as in the node's turn.
            nbytes: bytes that the activity has handled.
        """
        # Hot path, measured by benchmarks/micro/produce.py.
        left = self._left = self._left - nbytes
        if requests and self._turn.spend(requests):
            return True
        return left <= 0

    def renew(self) -> None:
        """Reset the share to its limit, because other tasks have run."""
        self._left = self._limit

    async def next(self) -> None:
        """Wait for a later turn (`Turn.next`), and reset the share to its limit."""
        self._left = self._limit
        await self._turn.next()


class Pace:
    """The time that one request may run before other tasks do.

    Work is counted in steps of about equal length, such as the names in the request. The clock is
    read only once per `STEPS_PER_LOOK` steps. If several requests need more than one turn, only
    one of them runs in each iteration of the event loop.

    Attributes:
        steps: number of steps of the request so far.
    """

    __slots__ = ("_look", "_turn", "_until", "steps")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._look = STEPS_PER_LOOK
        self._until = 0.0
        self.steps = 0

    def spend(self, steps: int = 1) -> bool:
        """Count steps; return whether the caller must await `next` before it continues."""
        done = self.steps = self.steps + steps
        if done < self._look:
            return False
        self._look = done + STEPS_PER_LOOK
        now = asyncio.get_running_loop().time()
        if not self._until:
            self._until = now + SECONDS_PER_TURN
        return now >= self._until

    async def next(self) -> None:
        """Wait for the next turn of this request."""
        self._turn.spend(REQUESTS_PER_LONG_TURN)
        await self._turn.next_of_long()
        self._until = asyncio.get_running_loop().time() + SECONDS_PER_TURN

    async def run(self, steps: Steps[R]) -> R:
        """Run work that yields after each `STEPS_PER_LOOK` steps; return its result."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if self.spend(STEPS_PER_LOOK):
                await self.next()


def at_once(steps: Steps[R]) -> R:
    """Run short work to its end without letting other tasks run in between; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
