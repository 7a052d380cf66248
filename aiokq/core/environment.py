"""Environment: the clock, network, files and threads that components receive as arguments.

aiokq.connection.network.system_environment() creates the real environment. tests/sim/harness
creates the simulated environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from aiokq.core.descriptor_reserve import DescriptorHolder
from aiokq.core.frozen import frozen
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.secure_random import SYSTEM_RANDOM

if TYPE_CHECKING:
    import ssl
    from random import Random

    from aiokq.core.clock import Clock
    from aiokq.core.files import Files
    from aiokq.core.offload import Offload
    from aiokq.core.watchdog import Watchdog

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Address(NamedTuple):
    """A numeric address of a resolved name, or of the peer of an accepted connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StrangerSteps(Protocol):
    """Decides when work for unauthenticated connections may begin."""

    def do(self, step: Callable[[], None], host: str | None) -> bool:
        """Do a step now or in a later iteration of the loop; return whether it was done now.

        Args:
            host: the address of the client; None for the accept of connections.
        """
        ...

    def do_long(self, step: Callable[[], None], host: str, nbytes: int) -> bool:
        """Do a step as `do` does; its CPU time is measured, because the client decides it.

        Args:
            nbytes: size of what the client has sent for it.
        """
        ...

    def read(self, resume: Callable[[], None], host: str) -> bool:
        """Count a read that has completed no message.

        Returns:
            False if the caller must stop reading until `resume` is called.
        """
        ...

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
            refuse: closes the connection; called instead of `begin` if too many connections wait to
                begin, or if a descriptor is needed.
            has_waited: whether the accept had to wait. If so, the connection begins later.

        Returns:
            Whether the connection has begun.
        """
        ...

    @property
    def accepts_many(self) -> bool:
        """Whether many connections may be accepted at once."""
        ...

    def is_full(self, host: str) -> bool:
        """Return whether no more connections of a client address may wait to begin."""
        ...

    def refuse_one(self) -> bool:
        """Refuse a connection that waits to begin; return False if there is none."""
        ...

    def begun(self) -> None:
        """Count a fixed time for the work that a new connection causes outside of its steps."""
        ...

    def end_turn(self) -> None:
        """Begin no more steps in this iteration of the loop: the current step takes long."""
        ...


class Acceptor(DescriptorHolder, Protocol):
    """Decides whether a listener accepts a connection. Called on the loop; must not block."""

    @property
    def strangers(self) -> StrangerSteps:
        """Decides when a connection is accepted, and when its TLS handshake continues."""
        ...

    def accept(
        self, peer: Address, *, make_room: Callable[[], bool] | None
    ) -> asyncio.BaseProtocol | None:
        """Return the protocol for a new connection; None to close the connection immediately.

        `connection_lost` of the protocol is always called, even if no transport can be created and
        `connection_made` is not called.

        Args:
            make_room: closes a connection that waits to begin, a file, or an idle connection, and
                returns False if there is none. The acceptor calls `make_room` just before it
                accepts the connection, and refuses the connection if the result is False. If enough
                descriptors are available, `make_room` is None.
        """
        ...

    def refused(self, peer: Address) -> None:
        """Count an accepted connection that is closed before it begins.

        It is closed because too many connections wait to begin, or because a descriptor is needed.
        No other address has more connections that wait to begin.
        """
        ...


@frozen
class SocketOptions:
    """Options of a listening socket, which accepted connections inherit.

    Attributes:
        backlog: maximum number of connections that wait to be accepted.
        send_buffer: `SO_SNDBUF` in bytes; None leaves the size to the system.
        receive_buffer: `SO_RCVBUF` in bytes; None leaves the size to the system.
    """

    backlog: int = 1024
    send_buffer: int | None = None
    receive_buffer: int | None = None


class Listener(Protocol):
    """Bound sockets with one port; they accept connections after `start_serving`."""

    @property
    def port(self) -> int:
        """The actual port number, even if port 0 was requested."""
        ...

    @property
    def hosts(self) -> Sequence[str]:
        """The numeric addresses of the sockets, `0.0.0.0` or `::` for all interfaces."""
        ...

    async def start_serving(self) -> None:
        """Listen, and accept connections. Raises OSError if another program uses the port."""
        ...

    def close(self) -> None:
        """Stop accepting; accepted connections stay open."""
        ...

    async def wait_closed(self) -> None:
        """Wait until the sockets are closed and the listener's tasks have ended."""
        ...


class Network(Protocol):
    """Name resolution and byte streams, on asyncio's transports and protocols."""

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Return all addresses of a name, in the order in which to try them. Raises OSError."""
        ...

    async def connect(
        self,
        factory: Callable[[], P],
        address: Address,
        *,
        ssl: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to one address. Raises OSError (ssl.SSLError is a subclass); has no timeout."""
        ...

    async def listen(
        self,
        acceptor: Acceptor,
        host: str | None,
        port: int,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        sockets: SocketOptions | None = None,
        start_serving: bool = True,
    ) -> Listener:
        """Listen on `host` (None: all interfaces) and `port` (0: a free port).

        Args:
            tls: returns the TLS context of the next connection; None without TLS.
            start_serving: False to bind the port only; `Listener.start_serving` then listens.

        Raises:
            OSError: the port is in use, or the address is not local.
        """
        ...


@frozen
class Environment:
    """The interfaces through which client and broker reach the operating system.

    asyncio's timers (`call_later`, `sleep`, `timeout`) use the loop's time. In a simulation,
    `clock` shows the loop's time.

    Attributes:
        random: a fast source. Whoever sees some of its values can compute the others.
        watchdog: detects a blocked event loop; None in a simulation, whose clock stops while the
            loop is blocked.
        is_ephemeral: whether `files` are never synced, because nobody needs them after a power
            failure. Code may then do work at once that otherwise waits for a sync.
        secure_random: the source of values that nobody may predict, such as the ids of log
            directories, from which the salts of unknown users are derived.
    """

    clock: Clock
    random: Random
    network: Network
    files: Files
    offload: Offload
    watchdog: type[Watchdog] | None = None
    is_ephemeral: bool = False
    secure_random: Random = SYSTEM_RANDOM
