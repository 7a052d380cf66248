"""ServerLimits and FrameBudget: limits of clients, and the memory for their requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field

from aiokq.connection.framing import DEFAULT_MAX_FRAME_BYTES
from aiokq.core.frozen import frozen

__all__ = ["FrameBudget", "ServerLimits"]


@frozen
class ServerLimits:
    """Limits of one client and of all clients of a server. Durations are seconds.

    Attributes:
        max_frame_bytes: `socket.request.max.bytes`.
        queued_max_request_bytes: `queued.max.request.bytes`: memory for requests until they are
            answered, over all connections. Kafka's default is no limit.
        max_connections: `max.connections`, over all listeners.
        max_connections_per_ip: `max.connections.per.ip`, over all listeners.
        max_connections_of_host: `max.connections.per.ip.overrides` by client address, IPv6 in
            brackets.
        max_connections_of_listener: `listener.name.<name>.max.connections` by name in capitals.
        max_idle: `connections.max.idle.ms`; 0 for no limit.
        read_stall: time after which a client that has sent part of a request and then nothing is
            disconnected. (Kafka waits for `max_idle`.)
        write_stall: time after which a client that receives nothing of a response is disconnected.
            (Kafka waits for `max_idle`.)
        drain: time that `Server.close` waits for requests in work.
    """

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    queued_max_request_bytes: int = 512 * 1024 * 1024
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_connections_of_host: Mapping[str, int] = field(default_factory=dict)
    max_connections_of_listener: Mapping[str, int] = field(default_factory=dict)
    max_idle: float = 600.0
    read_stall: float = 60.0
    write_stall: float = 60.0
    drain: float = 5.0


class FrameBudget:
    """Memory for requests, shared by the connections of a server.

    When it is used up, connections that have received part of a request stop reading, except one.
    That one may exceed the limit by at most one frame, so that some request is always completed and
    frees its memory.

    Attributes:
        limit: size in bytes.
        used: bytes in use.
        ample: whether more than half is free, so that readers may read ahead without asking.
    """

    __slots__ = ("_overdrawn", "_waiting", "ample", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.ample = limit > 0
        self._overdrawn: object | None = None
        self._waiting: deque[tuple[object, int, Callable[[], None]]] = deque()

    def charge(self, nbytes: int) -> None:
        """Count allocated memory, or with a negative number freed memory."""
        self.used += nbytes
        self.ample = self.used * 2 < self.limit
        if nbytes < 0 and self._waiting:
            self._wake()

    def may_take(self, owner: object, nbytes: int, resume: Callable[[], None]) -> bool:
        """Return whether `owner` may take `nbytes` more; if not, call `resume` once when it may."""
        if self.used + nbytes <= self.limit or self._overdrawn is owner:
            return True
        if self._overdrawn is None:
            self._overdrawn = owner
            return True
        self._waiting.append((owner, nbytes, resume))
        return False

    def answered(self, owner: object, nbytes: int) -> None:
        """Free the memory of a request that `owner` finished: `settle` and `charge` in one call."""
        # hot: once per request, mostly without waiters
        if self._overdrawn is owner:
            self.settle(owner)
        self.used -= nbytes
        self.ample = self.used * 2 < self.limit
        if self._waiting:
            self._wake()

    def settle(self, owner: object) -> None:
        """Let another connection exceed the limit, if `owner` did and has finished its request."""
        if self._overdrawn is owner:
            self._overdrawn = None
            self._wake()

    def forget(self, owner: object) -> None:
        """Remove `owner`, whose connection has ended."""
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
