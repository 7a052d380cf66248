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
  The remaining steps wait, and new connections wait in the system's queue.
- When no client has sent a request for `QUIET_SECONDS`, strangers may use all of the loop's time.
- Of the steps that wait, one of each client address (of IPv6, each /64 network) is done in turn, so
  that many connections of one address delay those of other addresses little. A new connection
  begins when no step of its address waits, or after `STEPS_PER_BEGINNING` steps of its address, so
  that connections whose steps always wait do not keep others out. A login has fewer steps, so no
  more connections begin than can complete their logins.
- The accepts of all listeners together have a turn, as an address has. An accept takes little time,
  so a connection does not wait long in the system's queue behind many connections of one address.

Time is read from the monotonic clock, because reading the CPU time of a thread is slow compared
with a step. A step during which another process uses the CPU counts as at most `LONGEST_STEP`.

Only the messages with a client's certificates can take longer (`do_long`), because OpenSSL parses
each certificate before it verifies any. Their CPU time is measured. What exceeds `LONGEST_STEP` is
owed: until clients have had their part, other such messages wait, and all other steps go on. Then
those of addresses come first of which none has taken long, or none for the longest time, and of
these the shortest one.

Tests: ``tests/unit/connection/test_strangers.py``; with real sockets:
``tests/fault/test_hostile_connections.py``.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.connection.turn import Turn

__all__ = ["SECONDS_PER_TURN", "SHARE", "Strangers", "network_of"]

SHARE: Final = 0.06
"""The largest part of the loop's time that steps use while clients send requests."""

IDLE_SHARE: Final = 0.25
"""The largest part of the loop's idle time, between the requests of clients, that steps use."""

QUIET_SECONDS: Final = 0.001
"""Seconds without requests of clients after which strangers may use all of the loop's time.

A shorter pause does not count: requests of several clients often arrive shortly after each other.
"""

SECONDS_PER_TURN: Final = 0.0002
"""Time after which no more steps begin in an iteration of the loop, if no client has requests."""

MOST_SECONDS_PER_TURN: Final = 0.001
"""Time after which no more steps begin in an iteration that has served many requests."""

LONGEST_STEP: Final = 0.002
"""Maximum seconds counted for one step; a TLS handshake with an RSA key takes about as long."""

READ_SECONDS: Final = 0.00002
"""Seconds counted for each read that completes no message, in place of a measured time."""

STEPS_PER_BEGINNING: Final = 16
"""After this number of steps of an address, its next connection begins, even if more steps wait.

A login has fewer steps. Connections therefore begin no faster than logins can be completed.
"""

MOST_BEGINNINGS: Final = 2048
"""Maximum number of accepted connections that wait to begin.

Each has a descriptor, but neither buffers nor a protocol. When the number is reached, the address
with the most of these connections loses one.
"""

MANY_BEGINNINGS: Final = 64
"""Many connections are accepted at once if at least this number of them wait to begin.

While clients send requests, many are accepted at once even if fewer wait.
"""

UNSEEN_SECONDS: Final = 0.0002
"""Seconds that are counted for each new connection in addition to its steps.

They stand for the system's work for the connection and for its end, which are in no step. They are
not counted while clients are quiet.
"""

SUSPECT_STEP: Final = 0.010
"""CPU seconds of a long step after which its address comes behind others.

A step of an ordinary certificate takes some 0.5 ms. Python's garbage collection may add to it.
"""

MOST_SUSPECTS: Final = 1024
"""Number of addresses, the last ones, that are remembered because a step of theirs took long."""

LEAST_PAUSE: Final = 0.001
"""Seconds after which it is looked at the soonest whether the time of long steps is still owed."""


class _Waiting:
    """What waits for the turn of an address.

    Attributes:
        network: the address, or the /64 network of an IPv6 address; None for accepts,
            which share one turn.
        steps: steps of connections that have begun.
        beginnings: for each accepted connection that waits to begin, the function that begins it
            and the function that refuses it.
        since_beginning: number of steps since the last beginning.
    """

    __slots__ = ("beginnings", "network", "since_beginning", "steps")

    def __init__(self, network: str | bytes | None) -> None:
        self.network = network
        self.steps: deque[Callable[[], None]] = deque()
        self.beginnings: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self.since_beginning = 0


class Strangers:
    """Decides when the next step of an unauthenticated connection may begin, for all servers.

    Implements `core.environment.StrangerSteps`.

    Args:
        turn: counts the requests of clients.
        now: returns seconds on a monotonic clock.
        worked: returns the CPU seconds of the thread.
    """

    __slots__ = ("_began_at", "_beginnings", "_begun", "_by_beginnings", "_left", "_now",
                 "_numbers", "_owed", "_postponed", "_quiet", "_renewed_at", "_requested_at",
                 "_scheduled", "_spent", "_suspects", "_tasks", "_turn", "_turns", "_waiting",
                 "_worked")  # fmt: skip

    def __init__(
        self,
        turn: Turn,
        now: Callable[[], float],
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self._turn = turn
        self._now = now
        self._worked = worked
        # What waits, by client address (see `network_of`; None for accepts).
        self._waiting: dict[str | bytes | None, _Waiting] = {}
        # The same in the order of their turns; may contain entries that `refuse_one` has emptied.
        self._turns: deque[_Waiting] = deque()
        self._beginnings = 0  # number of connections that wait to begin
        # Item n has the addresses of which n connections wait to begin.
        self._by_beginnings: list[dict[_Waiting, None]] = [{}]
        self._scheduled = False
        self._tasks = 0  # requests of strangers that `turn` counts, because tasks handle them
        self._begun = turn.begun  # number of requests of clients at the last renewal
        self._requested_at = -QUIET_SECONDS  # time of the last renewal with new requests
        self._renewed_at = 0.0
        self._began_at = 0.0
        self._quiet = True  # whether clients have sent no request for QUIET_SECONDS
        self._spent = 0.0  # time of steps since the last renewal
        self._left = 0.0  # time left for steps in this iteration; may be negative
        self._owed = 0.0  # CPU time of long steps that clients have not had back
        # A heap of the long steps that wait because time is owed: the time at which a step of the
        # address took long, the size of the message, a number, the step and the host.
        self._postponed: list[tuple[float, int, int, Callable[[], None], str]] = []
        self._numbers = itertools.count()  # of postponed steps
        self._suspects: dict[str | bytes, float] = {}  # when a step of an address took long

    def do(self, step: Callable[[], None], host: str | None) -> bool:
        """Do a step now or in a later iteration of the loop; return whether it was done now.

        Args:
            host: the address of the client; None for the accept of a connection.
        """
        if not self._may_begin():
            self._of(host).steps.append(step)
            return False
        began = self._now()
        try:
            step()
        finally:
            self._count(self._now() - began)
        return True

    def do_long(self, step: Callable[[], None], host: str, nbytes: int) -> bool:
        """Do a step whose CPU time the client decides; see `do`.

        It waits while the time of earlier ones is owed.

        Args:
            nbytes: size of what the client has sent for it.
        """
        if self._owed > 0 or self._postponed:
            self._postpone(step, host, nbytes)
            return False
        return self.do(functools.partial(self._do_long, step, host, nbytes), host)

    def do_later(self, step: Callable[[], None], host: str | None) -> None:
        """Do a step in a later iteration of the loop, after those of the host that already wait."""
        self._of(host).steps.append(step)

    def admit(
        self,
        begin: Callable[[], None],
        refuse: Callable[[], None],
        host: str,
        *,
        has_waited: bool,
    ) -> bool:
        """Let an accepted connection begin now or later; called in the step that accepted it.

        Args:
            refuse: closes the connection; called instead of `begin` if too many wait.
            has_waited: whether the accept had to wait. If so, connections of other addresses may
                be behind this one in the system's queue. Therefore this one waits here, and more
                are accepted.

        Returns:
            whether it has begun.
        """
        if has_waited or self._waiting or self._left <= 0:
            if self._beginnings >= MOST_BEGINNINGS:
                self.refuse_one()
            waiting = self._of(host)
            waiting.beginnings.append((begin, refuse))
            self._count_beginning(waiting, 1)
            return False
        begin()
        return True

    @property
    def accepts_many(self) -> bool:
        """Whether many connections may be accepted at once, to empty the system's queue.

        This is not needed if clients have sent no request for `QUIET_SECONDS` and few connections
        wait to begin, because all connections then begin soon.
        """
        return not self._quiet or self._beginnings >= MANY_BEGINNINGS

    def is_full(self, host: str) -> bool:
        """Return whether no more connections of a client address may wait to begin.

        This is so if too many wait already, and no other address has more of them.
        """
        if self._beginnings < MOST_BEGINNINGS:
            return False
        waiting = self._waiting.get(network_of(host))
        return waiting is not None and len(waiting.beginnings) >= len(self._by_beginnings) - 1

    def refuse_one(self) -> bool:
        """Refuse one of the connections that wait to begin.

        The address with the most of these connections loses its newest one.

        Returns:
            False if no connection waits to begin.
        """
        if not self._beginnings:
            return False
        waiting = next(iter(self._by_beginnings[-1]))
        _, refuse = waiting.beginnings.pop()
        self._count_beginning(waiting, -1)
        if not waiting.steps and not waiting.beginnings:
            del self._waiting[waiting.network]
        refuse()
        return True

    def _count_beginning(self, waiting: _Waiting, more: int) -> None:
        """Count a beginning that was added to those of an address (1) or removed (-1)."""
        self._beginnings += more
        count, by_beginnings = len(waiting.beginnings), self._by_beginnings
        if count != more:
            del by_beginnings[count - more][waiting]
        if count:
            if count == len(by_beginnings):
                by_beginnings.append({})
            by_beginnings[count][waiting] = None
        while len(by_beginnings) > 1 and not by_beginnings[-1]:
            by_beginnings.pop()

    def _of(self, host: str | None) -> _Waiting:
        network = None if host is None else network_of(host)
        waiting = self._waiting.get(network)
        if waiting is None:
            waiting = self._waiting[network] = _Waiting(network)
            self._turns.append(waiting)
        if not self._scheduled:
            self._schedule()
        return waiting

    async def next(self, host: str) -> None:
        """Wait until a task may handle one request of a stranger.

        The caller counts the time of the request by `begin` and `end`. The dispatcher
        also counts the request in the `Turn`, as if the client had logged in.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        self.do_later(wake, host)
        await waiter
        self._tasks += 1

    def read(self, resume: Callable[[], None], host: str) -> bool:
        """Count a read that has completed no message.

        Returns:
            False if the caller must stop reading until `resume` is called.
        """
        may_go_on = self._may_begin()
        self._spent += READ_SECONDS
        self._left -= READ_SECONDS
        if not may_go_on:
            self.do_later(resume, host)
        return may_go_on

    def begun(self) -> None:
        """Count a fixed time for the work that a new connection causes outside of its steps."""
        if not self._quiet:
            self._spent += UNSEEN_SECONDS
            self._left -= UNSEEN_SECONDS

    def begin(self) -> None:
        """Begin to count the time of a task's step; `Timed` calls this method and `end`."""
        self._began_at = self._now()

    def end(self) -> None:
        """Count the time since `begin`."""
        self._count(self._now() - self._began_at)

    def end_turn(self) -> None:
        """Begin no more steps in this iteration, because the step in progress takes long."""
        self._left = min(self._left, 0.0)

    def _do_long(self, step: Callable[[], None], host: str, nbytes: int) -> None:
        """Do a long step in the turn of its address, or postpone it."""
        if self._owed > 0 or self._postponed:
            self._postpone(step, host, nbytes)
        else:
            self._measure(step, host)

    def _measure(self, step: Callable[[], None], host: str) -> None:
        """Do a long step, and note how much longer than `LONGEST_STEP` it took."""
        began = self._worked()
        try:
            step()
        finally:
            seconds = self._worked() - began
            self._owed += max(seconds - LONGEST_STEP, 0.0)
            if seconds > SUSPECT_STEP:
                self._suspect(network_of(host))

    def _suspect(self, network: str | bytes) -> None:
        self._suspects.pop(network, None)
        self._suspects[network] = self._now()
        if len(self._suspects) > MOST_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]

    def _postpone(self, step: Callable[[], None], host: str, nbytes: int) -> None:
        if not self._postponed:
            self._look_later()
        took_long = self._suspects.get(network_of(host), 0.0)
        number = next(self._numbers)
        heapq.heappush(self._postponed, (took_long, nbytes, number, step, host))

    def _look_later(self) -> None:
        """Look at the postponed steps when the owed time is paid back at the earliest."""
        seconds = max(self._owed * (1 - IDLE_SHARE) / IDLE_SHARE, LEAST_PAUSE)
        asyncio.get_running_loop().call_later(seconds, self._do_postponed)

    def _do_postponed(self) -> None:
        """Do postponed steps while no time is owed and some is left."""
        if not self._scheduled:
            self._renew()
            self._schedule()
        try:
            while self._postponed and self._owed <= 0 and self._left > 0:
                took_long, nbytes, number, step, host = heapq.heappop(self._postponed)
                since = self._suspects.get(network_of(host), 0.0)
                if since > took_long:  # a step of the address has taken long meanwhile
                    heapq.heappush(self._postponed, (since, nbytes, number, step, host))
                    continue
                began = self._now()
                try:
                    self._measure(step, host)
                finally:
                    self._count(self._now() - began)
        finally:
            if self._postponed:
                self._look_later()

    def _may_begin(self) -> bool:
        if self._waiting:
            return False
        if not self._scheduled:
            self._renew()
            self._schedule()
        return self._left > 0

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return  # the next step renews the time
        began = self._renew()
        self._schedule()
        turns, now = self._turns, self._now
        while self._left > 0 and turns:
            waiting = turns.popleft()
            steps, beginnings = waiting.steps, waiting.beginnings
            if beginnings and (not steps or waiting.since_beginning >= STEPS_PER_BEGINNING):
                waiting.since_beginning = 0
                step, _ = beginnings.popleft()
                self._count_beginning(waiting, -1)
            elif steps:
                waiting.since_beginning += 1
                step = steps.popleft()
            else:
                continue  # `refuse_one` has emptied this entry
            if steps or beginnings:
                turns.append(waiting)
            else:
                del self._waiting[waiting.network]
            try:
                step()
            finally:  # the next step begins when this one ends
                ended = now()
                self._count(ended - began)
                began = ended

    def _count(self, seconds: float) -> None:
        self._spent += seconds
        self._left -= min(seconds, LONGEST_STEP)

    def _renew(self) -> float:
        """Give time to steps: all time if clients are quiet, else `SHARE` or `IDLE_SHARE`.

        Returns:
            the current time.
        """
        now, begun = self._now(), self._turn.begun - self._tasks
        self._quiet = False
        others = now - self._renewed_at - self._spent
        self._renewed_at, self._spent = now, 0.0
        before, self._begun = self._begun, begun
        if begun > before:
            self._requested_at = now
            share = SHARE
        else:
            share = IDLE_SHARE
            self._quiet = now - self._requested_at >= QUIET_SECONDS
        given = others * share / (1 - share)
        if self._owed > 0:
            self._owed = max(self._owed - given, 0.0)
        if self._quiet:
            self._left = SECONDS_PER_TURN
        else:
            self._left = min(self._left + given, MOST_SECONDS_PER_TURN)
        return now


def network_of(host: str) -> str | bytes:
    """Return the /64 network of an IPv6 address, which counts as one client address.

    Any other host is returned as it is.
    """
    if ":" not in host:
        return host
    try:
        return socket.inet_pton(socket.AF_INET6, host.strip("[]").partition("%")[0])[:8]
    except OSError:
        return host
