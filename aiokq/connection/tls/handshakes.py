"""`Handshakes`: limits the loop time and the memory of the TLS handshakes of one listener."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.connection.tls.verified_chains import VerifiedChains
from aiokq.core.errors import ConnectionLost

if TYPE_CHECKING:
    from aiokq.connection.tls.tls_connection import TlsConnection

__all__ = ["MAX_HELLO_TOTAL_BYTES", "MAX_UNDER_WAY", "Handshakes"]

MAX_UNDER_WAY: Final = 1024
"""Maximum number of handshakes between the client's first message and the last one.

A handshake takes a round trip, and the event loop does some hundred handshakes a second. If this
number is under way, the oldest is one whose client does not answer, and is closed.
"""

MAX_HELLO_TOTAL_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of first messages that are incomplete, or wait for an answer.

A connection that would exceed the maximum is closed.

A connection whose part of a message has at most `_SMALL_HELLO_BYTES` is never closed for that.
"""

_SMALL_HELLO_BYTES: Final = 4 * 1024


class Handshakes:
    """The TLS handshakes of one listener.

    The answer to a client's first message takes up to a millisecond of CPU. Each iteration of the
    event loop computes at most one answer, so that many new connections delay the requests of other
    clients by at most that time per iteration.

    Attributes:
        chains: the validity of the clients' certificates, if the listener asks for them.
        held: bytes of first messages that are incomplete, or wait for an answer.
    """

    __slots__ = ("_connections", "_loop", "_ran", "_under_way", "_waiting", "chains", "held")

    def __init__(self) -> None:
        self.chains = VerifiedChains()
        self._loop = asyncio.get_running_loop()
        # For each connection, the bytes of a first message that has no answer yet.
        self._connections: dict[TlsConnection, int] = {}
        self.held = 0
        self._under_way: dict[TlsConnection, None] = {}
        self._waiting: deque[tuple[TlsConnection, Callable[[], None]]] = deque()
        self._ran = False  # whether an answer was computed in this iteration

    def __len__(self) -> int:
        return len(self._connections)

    def begin(self, connection: TlsConnection) -> None:
        """Add a connection that has no TLS yet."""
        self._connections[connection] = 0

    def hold(self, connection: TlsConnection, nbytes: int) -> bool:
        """Count the bytes of the client's first message that a connection holds.

        Returns:
            False if the bytes of all connections together are more than the limit.
        """
        self.held += nbytes - self._connections[connection]
        self._connections[connection] = nbytes
        return nbytes <= _SMALL_HELLO_BYTES or self.held <= MAX_HELLO_TOTAL_BYTES

    def answer(self, connection: TlsConnection, compute: Callable[[], None]) -> bool:
        """Call `compute` now or in a later iteration of the loop.

        Returns:
            whether `compute` was called.
        """
        if self._ran or self._waiting:
            self._waiting.append((connection, compute))
            return False
        self._ran = True
        self._loop.call_soon(self._next)
        self._compute(connection, compute)
        return True

    def end(self, connection: TlsConnection) -> None:
        """Remove a connection that is lost or whose handshake is complete."""
        self.held -= self._connections.pop(connection, 0)
        self._under_way.pop(connection, None)

    def close(self) -> None:
        """Abort all connections whose handshake is not complete."""
        for connection in list(self._connections):
            connection.abort()

    def _next(self) -> None:
        while self._waiting:
            connection, compute = self._waiting.popleft()
            if connection in self._connections:
                self._loop.call_soon(self._next)
                self._compute(connection, compute)
                return
        self._ran = False

    def _compute(self, connection: TlsConnection, compute: Callable[[], None]) -> None:
        self.hold(connection, 0)
        self._under_way[connection] = None
        if len(self._under_way) > MAX_UNDER_WAY:
            oldest = next(iter(self._under_way))
            oldest.fail(ConnectionLost("the TLS handshake was not completed, and many others wait"))
            self._under_way.pop(oldest, None)
        compute()
