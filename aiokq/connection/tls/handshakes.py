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
"""Maximum number of stalled handshakes.

A handshake is stalled if this end has answered, and nothing of the client's next messages has
arrived, or if only a part of them has. It stays stalled while a further part waits for its turn.
"""

MAX_STALLED_WITH_CERTIFICATES: Final = 250
"""The same on a listener that asks for certificates.

OpenSSL keeps the certificates that a client has sent, valid or not, until the handshake ends. Those
of one message need up to 250 KB. As soon as a client announces a message, OpenSSL allocates memory
for it, up to 130 KiB. 250 such clients need less memory than 1,000 with 64 KiB each.
"""

STALLED_SECONDS: Final = 2.0
"""Age at which a stalled handshake is given up first, if there are too many.

A client needs a round trip for its answer. If all stalled handshakes are younger, one of the
address with the most is given up.
"""

MAX_UNDER_WAY: Final = 4096
"""Maximum number of unfinished handshakes in which the client's first message was answered.

Those are included whose client has answered and whose message waits for `Strangers`, as most do if
thousands of clients connect at the same time. Each needs about 43 KiB, and a message that waits up
to 16 KiB more.
"""

MAX_HELLO_TOTAL_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of first messages that are incomplete, or wait for an answer.

A connection that would exceed the maximum is closed, unless its part of a message has at most
`_SMALL_HELLO_BYTES`.
"""

_SMALL_HELLO_BYTES: Final = 4 * 1024


class _Handshake:
    """The state of one handshake.

    Attributes:
        network: the client's address, or the /64 network of an IPv6 address.
        held: bytes of a ClientHello that is incomplete, or waits for its answer.
        is_partial: whether OpenSSL has a part of the messages that follow this end's answer.
        waits: whether received bytes wait for their turn.
    """

    __slots__ = ("held", "is_partial", "network", "waits")

    def __init__(self, network: str | bytes) -> None:
        self.network = network
        self.held = 0
        self.is_partial = False
        self.waits = False


class _Group:
    """Connections by their client address, and in the order in which they were added."""

    __slots__ = ("_added", "_by_count", "_by_network")

    def __init__(self) -> None:
        self._added: dict[TlsConnection, float] = {}
        self._by_network: dict[str | bytes, dict[TlsConnection, None]] = {}
        # Item n has the addresses with n connections.
        self._by_count: list[dict[str | bytes, None]] = [{}]

    def __len__(self) -> int:
        return len(self._added)

    def __contains__(self, connection: TlsConnection) -> bool:
        return connection in self._added

    def add(self, connection: TlsConnection, network: str | bytes, now: float) -> None:
        """Add a connection that is not in the group."""
        self._added[connection] = now
        of_network = self._by_network.setdefault(network, {})
        of_network[connection] = None
        self._counted(network, len(of_network) - 1, len(of_network))

    def discard(self, connection: TlsConnection, network: str | bytes) -> None:
        """Remove a connection if it is in the group."""
        if self._added.pop(connection, None) is None:
            return
        of_network = self._by_network[network]
        del of_network[connection]
        self._counted(network, len(of_network) + 1, len(of_network))
        if not of_network:
            del self._by_network[network]

    def _counted(self, network: str | bytes, before: int, after: int) -> None:
        by_count = self._by_count
        if before:
            del by_count[before][network]
        if after == len(by_count):
            by_count.append({})
        if after:
            by_count[after][network] = None
        while len(by_count) > 1 and not by_count[-1]:
            by_count.pop()

    def oldest_of_most(self) -> TlsConnection:
        """Return the oldest connection of an address with the most."""
        return next(iter(self._by_network[next(iter(self._by_count[-1]))]))

    def oldest(self, added_before: float) -> TlsConnection | None:
        """Return the connection that was added first, if this was before the given time."""
        connection = next(iter(self._added))
        return connection if self._added[connection] < added_before else None


class Handshakes:
    """The TLS handshakes of one listener.

    The answer to a client's first message takes up to a millisecond of CPU. Each iteration of the
    event loop computes at most one answer, so that many new connections delay the requests of other
    clients by at most that time per iteration. `Strangers`, which limits the loop time of
    connections before their login, decides when an answer is computed and when a later message is
    processed.

    Args:
        steps: the node's `Strangers`; None for one that limits this listener alone.
        now: returns seconds on a monotonic clock.

    Attributes:
        chains: the validity of the clients' certificates, if the listener asks for them.
        held: bytes of ClientHello messages that are incomplete, or wait for an answer.
    """

    __slots__ = ("_now", "_stalled", "_states", "_steps", "_under_way", "chains", "held")

    def __init__(
        self, steps: StrangerSteps | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.chains = VerifiedChains()
        self._steps = steps or Strangers(Turn(), now)
        self._now = now
        self._states: dict[TlsConnection, _Handshake] = {}
        self.held = 0
        self._under_way = _Group()  # the first message of the client was answered
        self._stalled = _Group()  # a part of the former; see `MAX_STALLED`

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, connection: TlsConnection) -> None:
        """Add a connection whose TLS handshake has not begun."""
        self._states[connection] = _Handshake(network_of(connection.peer_host))

    def hold(self, connection: TlsConnection, nbytes: int) -> bool:
        """Count the bytes of a ClientHello that a connection holds.

        Returns:
            False if the connection must be closed: it holds more than `_SMALL_HELLO_BYTES`, and all
            connections together hold more than `MAX_HELLO_TOTAL_BYTES`.
        """
        state = self._states[connection]
        self.held += nbytes - state.held
        state.held = nbytes
        return nbytes <= _SMALL_HELLO_BYTES or self.held <= MAX_HELLO_TOTAL_BYTES

    def answer(self, connection: TlsConnection, compute: Callable[[], bool]) -> bool:
        """Call `compute`, which handles a ClientHello, now or in a later iteration of the loop.

        Returns:
            whether `compute` was called.
        """
        whole = functools.partial(self._compute, connection, compute)
        return self._steps.do(whole, connection.peer_host) or self._waits(connection)

    def go_on(self, connection: TlsConnection, step: Callable[[], bool], nbytes: int) -> bool:
        """Call `step`, which handles a later message, now or in a later iteration of the loop.

        The number of certificates that the client sends decides how long the step takes.

        Args:
            step: returns whether this end has answered; if not, the message is incomplete.
            nbytes: size of all that the client has sent after this end's answer.

        Returns:
            whether `step` was called.
        """
        whole = functools.partial(self._step, connection, step)
        return self._steps.do_long(whole, connection.peer_host, nbytes) or self._waits(connection)

    def read(self, connection: TlsConnection, resume: Callable[[], None]) -> bool:
        """Before the login, count a read that has completed no message.

        Returns:
            False if the connection must stop reading until `resume` is called.
        """
        return self._steps.read(resume, connection.peer_host)

    def end(self, connection: TlsConnection) -> None:
        """Remove a connection that is lost or whose handshake is complete."""
        state = self._states.pop(connection, None)
        if state is None:
            return
        self.held -= state.held
        self._under_way.discard(connection, state.network)
        self._stalled.discard(connection, state.network)

    def close(self) -> None:
        """Abort all connections whose handshake is not complete."""
        for connection in list(self._states):
            connection.abort()

    def _waits(self, connection: TlsConnection) -> bool:
        """Note that received bytes wait for their turn; return False."""
        state = self._states[connection]
        state.waits = True
        if not state.is_partial:
            self._stalled.discard(connection, state.network)
        return False

    def _compute(self, connection: TlsConnection, compute: Callable[[], bool]) -> None:
        state = self._states.get(connection)
        if state is None:
            return  # the connection was closed while it waited
        self._steps.end_turn()
        self.hold(connection, 0)
        if connection not in self._under_way:
            self._under_way.add(connection, state.network, self._now())
        self._step(connection, compute)

    def _step(self, connection: TlsConnection, step: Callable[[], bool]) -> None:
        state = self._states.get(connection)
        if state is None:
            return
        state.waits = False
        answered = False
        try:
            answered = step()
        finally:
            if connection in self._states:
                self._note(connection, state, answered)
            self._give_up_some(connection.asks_for_certificate)

    def _note(self, connection: TlsConnection, state: _Handshake, answered: bool) -> None:
        """Note what a step has changed."""
        state.is_partial = not answered
        if answered:
            self._stalled.discard(connection, state.network)
        if connection not in self._stalled and not (answered and state.waits):
            self._stalled.add(connection, state.network, self._now())

    def _give_up_some(self, with_certificates: bool) -> None:
        """Close connections while there are more than the limits allow."""
        limit = MAX_STALLED_WITH_CERTIFICATES if with_certificates else MAX_STALLED
        while len(self._stalled) > limit:
            oldest = self._stalled.oldest(self._now() - STALLED_SECONDS)
            self._give_up(oldest or self._stalled.oldest_of_most())
        while len(self._under_way) > MAX_UNDER_WAY:
            self._give_up(self._under_way.oldest_of_most())

    def _give_up(self, connection: TlsConnection) -> None:
        connection.fail(ConnectionLost("the TLS handshake was not completed, and many others wait"))
        self.end(connection)
