"""ServerLimits, FrameBudget and LoginBudget: limits of clients, and memory for their requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from aiokq.connection.framing import DEFAULT_MAX_FRAME_BYTES
from aiokq.connection.quota_windows import DEFAULT_WINDOW, QuotaWindow
from aiokq.core.frozen import frozen
from aiokq.core.named_tuple import NamedTuple

__all__ = ["FrameBudget", "LoginBudget", "RequestBudgets", "ServerLimits"]

LOGIN_PART: Final = 8
"""The part of `queued.max.request.bytes` that connections before their login may use: an eighth."""

LEAST_LOGIN_BYTES: Final = 1024 * 1024
MOST_LOGIN_BYTES: Final = 32 * 1024 * 1024
"""The smallest and the largest memory for the requests of connections before their login."""


@frozen
class ServerLimits:
    """Limits of one client and of all clients of a server. Durations are seconds.

    Attributes:
        max_frame_bytes: largest request in bytes (`socket.request.max.bytes`).
        max_login_frame_bytes: largest frame in bytes before the client has logged in by SASL
            (`sasl.server.max.receive.size`).
        failed_login_delay: time before a failed login is answered and the connection is closed
            (`connection.failed.authentication.delay.ms`).
        queued_max_request_bytes: memory in bytes for the unanswered requests of all connections
            (`queued.max.request.bytes`). Kafka's default is no limit. See `RequestBudgets`.
        max_connections: largest number of connections on all listeners (`max.connections`).
        max_connections_per_ip: largest number of connections of one client address on all listeners
            (`max.connections.per.ip`).
        max_connections_of_host: overrides of `max_connections_per_ip` by client address, IPv6 in
            brackets (`max.connections.per.ip.overrides`).
        max_connections_of_listener: for each listener name in capitals, the largest number of
            connections (`listener.name.<name>.max.connections`).
        max_connection_creation_rate: largest number of new connections per second on all listeners
            (`max.connection.creation.rate`).
        max_connection_creation_rate_of_listener: for each listener name in capitals, the largest
            number of new connections per second
            (`listener.name.<name>.max.connection.creation.rate`).
        rate_window: the window over which new connections are counted (`quota.window.*`).
        max_idle: time after which an idle client is disconnected (`connections.max.idle.ms`), and
            longest time that a request may take to arrive; 0 for no limit.
        read_stall: time without data after which a client is disconnected in the middle of a
            request. Kafka waits for `max_idle`.
        write_stall: time without progress after which a client is disconnected in the middle of a
            response. Kafka waits for `max_idle`.
        drain: time that `Server.close` waits for requests that are being handled.
    """

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_login_frame_bytes: int = 512 * 1024
    failed_login_delay: float = 0.1
    queued_max_request_bytes: int = 512 * 1024 * 1024
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_connections_of_host: Mapping[str, int] = field(default_factory=dict)
    max_connections_of_listener: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = 2**31 - 1
    max_connection_creation_rate_of_listener: Mapping[str, int] = field(default_factory=dict)
    rate_window: QuotaWindow = DEFAULT_WINDOW
    max_idle: float = 600.0
    read_stall: float = 60.0
    write_stall: float = 60.0
    drain: float = 5.0


class FrameBudget:
    """Memory for requests, shared by the connections of one or several servers.

    When the memory is used up, connections that have received part of a request stop reading,
    except one connection. This connection may exceed the limit by at most one frame, so that one
    request is always completed and frees its memory.

    Attributes:
        limit: size of the memory in bytes.
        used: bytes in use.
        ample: whether more than half of the memory is free; if so, readers may read ahead without
            calling `may_take`.
    """

    __slots__ = ("_overdrawn", "_waiting", "ample", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.ample = limit > 0
        self._overdrawn: object | None = None
        self._waiting: deque[tuple[object, int, Callable[[], None]]] = deque()

    def charge(self, nbytes: int) -> None:
        """Count `nbytes` of allocated memory; a negative number counts freed memory."""
        self.used += nbytes
        self.ample = self.used * 2 < self.limit
        if nbytes < 0 and self._waiting:
            self._wake()

    def may_take(self, owner: object, nbytes: int, resume: Callable[[], None]) -> bool:
        """Return whether `owner` may allocate `nbytes` more bytes.

        If the result is False, `resume` is called once, when `owner` may allocate the bytes.
        """
        if self.used + nbytes <= self.limit or self._overdrawn is owner:
            return True
        if self._overdrawn is None:
            self._overdrawn = owner
            return True
        self._waiting.append((owner, nbytes, resume))
        return False

    def answered(self, owner: object, nbytes: int) -> None:
        """Free the memory of an answered request: call `settle`, and count `nbytes` as free."""
        # Hot path, once per request; there are usually no waiters.
        if self._overdrawn is owner:
            self.settle(owner)
        self.used -= nbytes
        self.ample = self.used * 2 < self.limit
        if self._waiting:
            self._wake()

    def settle(self, owner: object) -> None:
        """If `owner` was allowed to exceed the limit, let another connection exceed the limit."""
        if self._overdrawn is owner:
            self._overdrawn = None
            self._wake()

    def forget(self, owner: object) -> None:
        """Remove `owner`, whose connection has ended."""
        if self._waiting:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not owner)
        self.settle(owner)

    def _wake(self) -> None:
        """Resume waiters, in order, while memory is free or no connection exceeds the limit."""
        room = self.limit - self.used
        while self._waiting:
            owner, nbytes, resume = self._waiting[0]
            if nbytes > room:
                if self._overdrawn is not None:
                    return
                self._overdrawn = owner
            room -= nbytes
            self._waiting.popleft()
            resume()


class LoginBudget(FrameBudget):
    """Memory for requests of connections whose clients have not logged in yet.

    No connection waits for this memory. A connection that needs more than is left is closed, so
    that clients that have not logged in delay no other client.
    """

    __slots__ = ()

    def may_take(self, owner: object, nbytes: int, resume: Callable[[], None]) -> bool:
        """Return whether `owner` may allocate `nbytes` more bytes; `resume` is never called."""
        return self.used + nbytes <= self.limit


class RequestBudgets(NamedTuple):
    """The memory for the requests of a node.

    Attributes:
        frames: memory for clients that have logged in, or that need no login.
        logins: memory for clients that have not logged in yet.
    """

    frames: FrameBudget
    logins: LoginBudget

    @classmethod
    def divided(cls, limit: int, *, has_logins: bool) -> RequestBudgets:
        """Divide a limit between both budgets.

        An eighth, but at least 1 MiB and at most 32 MiB, is for connections before their login.

        Args:
            limit: bytes of both budgets together.
            has_logins: whether a listener requires a login; if none does, `frames` has all memory.
        """
        logins = min(max(limit // LOGIN_PART, LEAST_LOGIN_BYTES), MOST_LOGIN_BYTES)
        frames = max(limit - logins, 0) if has_logins else limit
        return cls(FrameBudget(frames), LoginBudget(logins))
