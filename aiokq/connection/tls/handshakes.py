"""`Handshakes`: limits the loop time and the memory of the TLS handshakes of one listener."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.connection.strangers import Strangers
from aiokq.connection.tls.verified_chains import VerifiedChains
from aiokq.connection.turn import Turn
from aiokq.core.errors import ConnectionLost

if TYPE_CHECKING:
    from aiokq.connection.tls.tls_connection import TlsConnection
    from aiokq.core.environment import StrangerSteps

__all__ = [
    "MAX_HELLO_TOTAL_BYTES",
    "MAX_UNDER_WAY",
    "MAX_UNDER_WAY_WITH_CERTIFICATES",
    "Handshakes",
]

MAX_UNDER_WAY: Final = 1024
"""Maximum number of unfinished handshakes in which the client's first message was answered.

A handshake takes a round trip, and the event loop does some hundred handshakes a second. If there
are more, the client of the oldest handshake has therefore not answered in time, and its connection
is closed.
"""

MAX_UNDER_WAY_WITH_CERTIFICATES: Final = 350
"""The same on a listener that asks for certificates.

As soon as a client announces a Certificate message, OpenSSL allocates memory for it, up to 130 KiB.
Python cannot lower this limit. 350 such clients need less memory than 1,000 with 64 KiB each.
"""

MAX_HELLO_TOTAL_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of first messages that are incomplete, or wait for an answer.

A connection that would exceed the maximum is closed, unless its part of a message has at most
`_SMALL_HELLO_BYTES`.
"""

_SMALL_HELLO_BYTES: Final = 4 * 1024


class Handshakes:
    """The TLS handshakes of one listener.

    The answer to a client's first message takes up to a millisecond of CPU. Each iteration of the
    event loop computes at most one answer, so that many new connections delay the requests of other
    clients by at most that time per iteration. `Strangers`, which limits the loop time of
    connections before their login, decides when an answer is computed and when the end of a
    handshake is processed.

    Args:
        steps: the node's `Strangers`; None for one that limits this listener alone.

    Attributes:
        chains: the validity of the clients' certificates, if the listener asks for them.
        held: bytes of first messages that are incomplete, or wait for an answer.
    """

    __slots__ = ("_connections", "_steps", "_under_way", "chains", "held")

    def __init__(self, steps: StrangerSteps | None = None) -> None:
        self.chains = VerifiedChains()
        self._steps = steps or Strangers(Turn(), time.monotonic)
        # For each connection, the bytes of a first message that has no answer yet.
        self._connections: dict[TlsConnection, int] = {}
        self.held = 0
        self._under_way: dict[TlsConnection, None] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def begin(self, connection: TlsConnection) -> None:
        """Add a connection whose TLS handshake has not begun."""
        self._connections[connection] = 0

    def hold(self, connection: TlsConnection, nbytes: int) -> bool:
        """Count the bytes of the client's first message that a connection holds.

        Returns:
            False if the connection must be closed: it holds more than `_SMALL_HELLO_BYTES`, and all
            connections together hold more than `MAX_HELLO_TOTAL_BYTES`.
        """
        self.held += nbytes - self._connections[connection]
        self._connections[connection] = nbytes
        return nbytes <= _SMALL_HELLO_BYTES or self.held <= MAX_HELLO_TOTAL_BYTES

    def answer(self, connection: TlsConnection, compute: Callable[[], None]) -> bool:
        """Call `compute` now or in a later iteration of the loop.

        Returns:
            whether `compute` was called.
        """
        return self._steps.do(
            functools.partial(self._compute, connection, compute), connection.peer_host
        )

    def go_on(self, connection: TlsConnection, step: Callable[[], None]) -> bool:
        """Call `step`, which handles a later message, now or in a later iteration of the loop.

        Returns:
            whether `step` was called.
        """
        return self._steps.do(step, connection.peer_host)

    def read(self, connection: TlsConnection, resume: Callable[[], None]) -> bool:
        """Before the login, count a read that has completed no message.

        Returns:
            False if the connection must stop reading until `resume` is called.
        """
        return self._steps.read(resume, connection.peer_host)

    def end(self, connection: TlsConnection) -> None:
        """Remove a connection that is lost or whose handshake is complete."""
        self.held -= self._connections.pop(connection, 0)
        self._under_way.pop(connection, None)

    def close(self) -> None:
        """Abort all connections whose handshake is not complete."""
        for connection in list(self._connections):
            connection.abort()

    def _compute(self, connection: TlsConnection, compute: Callable[[], None]) -> None:
        if connection not in self._connections:
            return  # the connection was closed while it waited
        self._steps.end_turn()
        self.hold(connection, 0)
        self._under_way[connection] = None
        compute()
        limit = (
            MAX_UNDER_WAY_WITH_CERTIFICATES if connection.asks_for_certificate else MAX_UNDER_WAY
        )
        if len(self._under_way) > limit:
            oldest = next(iter(self._under_way))
            oldest.fail(ConnectionLost("the TLS handshake was not completed, and many others wait"))
            self._under_way.pop(oldest, None)
