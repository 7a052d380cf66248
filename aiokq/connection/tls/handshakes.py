"""`Handshakes`: limits the loop time and the memory of the TLS handshakes of one listener."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.connection.strangers import Strangers, network_of
from aiokq.connection.tls.verified_chains import VerifiedChains
from aiokq.connection.turn import Turn
from aiokq.core.errors import ConnectionLost

if TYPE_CHECKING:
    from aiokq.connection.tls.tls_connection import TlsConnection
    from aiokq.core.environment import StrangerSteps

__all__ = [
    "MAX_HELLO_TOTAL_BYTES",
    "MAX_STALLED",
    "MAX_STALLED_WITH_CERTIFICATES",
    "MAX_UNDER_WAY",
    "Handshakes",
]

MAX_STALLED: Final = 1024
"""Maximum number of handshakes in which this end has answered, and the client's turn is next.

A handshake takes a round trip, and the event loop does some hundred handshakes a second. If there
are more, the client of the oldest handshake has therefore not answered in time, and its connection
is closed. Among addresses, one of that with the most such handshakes is closed.
"""

MAX_STALLED_WITH_CERTIFICATES: Final = 350
"""The same on a listener that asks for certificates.

As soon as a client announces a Certificate message, OpenSSL allocates memory for it, up to 130 KiB.
Python cannot lower this limit. 350 such clients need less memory than 1,000 with 64 KiB each.
"""

MAX_UNDER_WAY: Final = 4096
"""Maximum number of unfinished handshakes in which the client's first message was answered.

Those are included in which the client has answered and its message waits for `Strangers`, as most
do if thousands of clients connect at the same time. Each needs up to 16 KiB.
"""

MAX_HELLO_TOTAL_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of first messages that are incomplete, or wait for an answer.

A connection that would exceed the maximum is closed, unless its part of a message has at most
`_SMALL_HELLO_BYTES`.
"""

_SMALL_HELLO_BYTES: Final = 4 * 1024


class _Network:
    """The handshakes of one client address in which the first message was answered.

    Attributes:
        waits: the connections in the order of the answers, and whether a message of the client
            waits for its turn.
        waiting: number of connections with such a message.
    """

    __slots__ = ("waiting", "waits")

    def __init__(self) -> None:
        self.waits: dict[TlsConnection, bool] = {}
        self.waiting = 0

    def stalled(self) -> int:
        """Return the number of connections whose client has not answered yet."""
        return len(self.waits) - self.waiting

    def under_way(self) -> int:
        """Return the number of connections."""
        return len(self.waits)


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

    __slots__ = ("_connections", "_networks", "_stalled", "_steps", "_under_way", "chains", "held")

    def __init__(self, steps: StrangerSteps | None = None) -> None:
        self.chains = VerifiedChains()
        self._steps = steps or Strangers(Turn(), time.monotonic)
        # For each connection, the bytes of a first message that has no answer yet.
        self._connections: dict[TlsConnection, int] = {}
        self.held = 0
        self._networks: dict[str | bytes, _Network] = {}
        self._under_way = 0
        self._stalled = 0

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
        return self._do(connection, functools.partial(self._compute, connection, compute))

    def go_on(self, connection: TlsConnection, step: Callable[[], None]) -> bool:
        """Call `step`, which handles a later message, now or in a later iteration of the loop.

        Returns:
            whether `step` was called.
        """
        return self._do(connection, functools.partial(self._step, connection, step))

    def read(self, connection: TlsConnection, resume: Callable[[], None]) -> bool:
        """Before the login, count a read that has completed no message.

        Returns:
            False if the connection must stop reading until `resume` is called.
        """
        return self._steps.read(resume, connection.peer_host)

    def end(self, connection: TlsConnection) -> None:
        """Remove a connection that is lost or whose handshake is complete."""
        self.held -= self._connections.pop(connection, 0)
        self._remove(connection)

    def close(self) -> None:
        """Abort all connections whose handshake is not complete."""
        for connection in list(self._connections):
            connection.abort()

    def _do(self, connection: TlsConnection, step: Callable[[], None]) -> bool:
        is_done = self._steps.do(step, connection.peer_host)
        if not is_done:
            self._mark(connection, waits=True)
        return is_done

    def _compute(self, connection: TlsConnection, compute: Callable[[], None]) -> None:
        if connection not in self._connections:
            return  # the connection was closed while it waited
        self._steps.end_turn()
        self.hold(connection, 0)
        self._add(connection)
        self._step(connection, compute)

    def _step(self, connection: TlsConnection, step: Callable[[], None]) -> None:
        self._mark(connection, waits=False)
        step()
        limit = MAX_STALLED_WITH_CERTIFICATES if connection.asks_for_certificate else MAX_STALLED
        if self._stalled > limit:
            network = max(self._networks.values(), key=_Network.stalled)
            self._give_up(next(one for one, waits in network.waits.items() if not waits))
        elif self._under_way > MAX_UNDER_WAY:
            network = max(self._networks.values(), key=_Network.under_way)
            self._give_up(next(iter(network.waits)))

    def _give_up(self, connection: TlsConnection) -> None:
        connection.fail(ConnectionLost("the TLS handshake was not completed, and many others wait"))
        self._remove(connection)

    def _add(self, connection: TlsConnection) -> None:
        """Count an answered first message; a second one of the client changes nothing."""
        key = _network(connection)
        network = self._networks.get(key)
        if network is None:
            network = self._networks[key] = _Network()
        if connection not in network.waits:
            network.waits[connection] = False
            self._under_way += 1
            self._stalled += 1

    def _mark(self, connection: TlsConnection, *, waits: bool) -> None:
        """Note whether a message of the client waits for its turn."""
        network = self._networks.get(_network(connection))
        if network is None or network.waits.get(connection, waits) is waits:
            return
        network.waits[connection] = waits
        change = 1 if waits else -1
        network.waiting += change
        self._stalled -= change

    def _remove(self, connection: TlsConnection) -> None:
        key = _network(connection)
        network = self._networks.get(key)
        if network is None or connection not in network.waits:
            return
        self._mark(connection, waits=False)
        del network.waits[connection]
        self._under_way -= 1
        self._stalled -= 1
        if not network.waits:
            del self._networks[key]


def _network(connection: TlsConnection) -> str | bytes:
    host = connection.peer_host
    return network_of(host) if ":" in host else host
