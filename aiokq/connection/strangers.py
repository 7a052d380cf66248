"""`Strangers`: limits the event loop's time that connections use before their login.

Anybody can connect, and a connection costs the broker as much as several requests: the accept, a
TLS handshake, and the messages of a login. Many new connections must not take this time from
clients that have logged in, or that need no login. All work for an unauthenticated connection (a
stranger) is therefore done in steps of about 10 to 500 microseconds, and the node's `Strangers`
decides when a step may begin:

- In one iteration of the event loop, steps use about `SECONDS_PER_TURN`, so that a request waits
  for few of them.
- While clients send requests, the steps of all strangers together use at most `SHARE` of the time
  in which the loop works, and `IDLE_SHARE` of the time in which it would wait for the next request.
  The remaining steps wait in order of arrival, and new connections wait in the system.
- When no client has sent a request for `QUIET_SECONDS`, strangers may use all the time.

Time is read from the monotonic clock, because reading the CPU time of a thread is slow compared
with a step. A step during which another process uses the CPU counts as at most `LONGEST_STEP`.

Tests: ``tests/unit/connection/test_strangers.py``; with real sockets:
``tests/fault/test_hostile_connections.py``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.connection.turn import Turn

__all__ = ["SECONDS_PER_TURN", "SHARE", "Strangers"]

SHARE: Final = 0.06
"""The largest part of the loop's time that steps use while clients send requests."""

IDLE_SHARE: Final = 0.25
"""The largest part of the loop's idle time between the requests of clients that steps use."""

QUIET_SECONDS: Final = 0.001
"""Seconds after the last request of a client from which strangers may use all the time.

Requests of several clients often arrive shortly after each other.
"""

SECONDS_PER_TURN: Final = 0.0002
"""Time after which no more steps begin in an iteration of the loop, if no client has requests."""

MOST_SECONDS_PER_TURN: Final = 0.001
"""Time after which no more steps begin in an iteration that has served many requests."""

LONGEST_STEP: Final = 0.002
"""Maximum seconds counted for one step; a TLS handshake with an RSA key takes about as long."""

UNSEEN_SECONDS: Final = 0.0002
"""Seconds that are added for each new connection.

The work of the system for the connection, and the end of the connection, are in no step.
"""


class Strangers:
    """Decides when the next step of an unauthenticated connection may begin, for all servers.

    Implements `core.environment.StrangerSteps`.

    Args:
        turn: counts the requests of clients.
        now: returns seconds on a monotonic clock.
    """

    __slots__ = ("_began_at", "_begun", "_left", "_now", "_quiet", "_renewed_at", "_requested_at",
                 "_scheduled", "_spent", "_turn", "_waiting")  # fmt: skip

    def __init__(self, turn: Turn, now: Callable[[], float]) -> None:
        self._turn = turn
        self._now = now
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._begun = turn.begun  # number of requests of clients at the last renewal
        self._requested_at = -QUIET_SECONDS  # time of the last renewal with new requests
        self._renewed_at = 0.0
        self._began_at = 0.0
        self._quiet = True  # whether clients have sent no request for QUIET_SECONDS
        self._spent = 0.0  # time of steps since the last renewal
        self._left = 0.0  # time left for steps in this iteration; may be negative

    def begin(self) -> bool:
        """Return whether a step may begin now; if so, the caller calls `end` after the step."""
        if self._waiting:
            return False
        if not self._scheduled:
            self._renew()
            self._schedule()
        if self._left <= 0:
            return False
        self._began_at = self._now()
        return True

    def end(self, *, is_new: bool = False) -> None:
        """Count the time of the step that has begun.

        Args:
            is_new: whether the step has accepted a connection.
        """
        spent = self._now() - self._began_at
        unseen = UNSEEN_SECONDS if is_new and not self._quiet else 0.0
        self._spent += spent + unseen
        self._left -= min(spent, LONGEST_STEP) + unseen

    def end_turn(self) -> None:
        """Begin no more steps in this iteration, because the step in progress takes long."""
        self._left = min(self._left, 0.0)

    def do(self, step: Callable[[], None]) -> bool:
        """Do a step now or in a later iteration of the loop; return whether it was done now."""
        if not self.begin():
            self._waiting.append(step)
            return False
        try:
            step()
        finally:
            self.end()
        return True

    def do_later(self, step: Callable[[], None]) -> None:
        """Do a step in a later iteration of the loop, after the steps that already wait."""
        self._waiting.append(step)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        waiting = self._waiting
        if not waiting:
            return  # the next call of `begin` renews the time
        self._renew()
        self._schedule()
        while waiting and self._left > 0:
            step = waiting.popleft()
            self._began_at = self._now()
            try:
                step()
            finally:
                self.end()

    def _renew(self) -> None:
        """Give time to steps: all time if clients are quiet, else their share."""
        now, begun = self._now(), self._turn.begun
        self._quiet = False
        others = now - self._renewed_at - self._spent
        self._renewed_at, self._spent = now, 0.0
        if begun != self._begun:
            self._begun, self._requested_at = begun, now
            share = SHARE
        elif now - self._requested_at >= QUIET_SECONDS:
            self._left = SECONDS_PER_TURN
            self._quiet = True
            return
        else:
            share = IDLE_SHARE
        self._left = min(self._left + others * share / (1 - share), MOST_SECONDS_PER_TURN)
