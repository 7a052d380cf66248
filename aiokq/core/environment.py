"""Owns the bundle of what is handed in instead of reached for, and the network's interface.

The real one is made by aiokq.connection.network.system_environment(), the simulated one by
tests/sim/harness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from aiokq.core.descriptor_reserve import DescriptorHolder
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    import random
    import ssl

    from aiokq.core.clock import Clock
    from aiokq.core.files import Files
    from aiokq.core.offload import Offload
    from aiokq.core.watchdog import Watchdog

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Address(NamedTuple):
    """One numeric address a name resolved to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Acceptor(DescriptorHolder, Protocol):
    """Decides about the connections of a listener. Called on the loop; must not block."""

    def accept(
        self, peer: Address, *, make_room: Callable[[], bool] | None
    ) -> asyncio.BaseProtocol | None:
        """The protocol for a new connection; None to close it at once.

        `connection_lost` of that protocol is called in any case, also if no transport can be made
        and `connection_made` was never called.

        Args:
            make_room: None if there are descriptors enough. Else the acceptor calls it once it
                would take the connection, and refuses it where that says False: an idle connection
                has to go for it, of any acceptor of the process.
        """
        ...


@frozen
class SocketOptions:
    """Options of a listening socket, which accepted connections inherit.

    Attributes:
        backlog: connections that the system keeps until they are accepted.
        send_buffer: `SO_SNDBUF` in bytes; None leaves the size to the system.
        receive_buffer: `SO_RCVBUF` in bytes; None leaves the size to the system.
    """

    backlog: int = 1024
    send_buffer: int | None = None
    receive_buffer: int | None = None


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port it listens on, also where 0 was asked for."""
        ...

    def close(self) -> None:
        """Accepts no more; accepted connections stay."""
        ...

    async def wait_closed(self) -> None:
        """Until the socket is given back."""
        ...


class Network(Protocol):
    """Name resolution and byte streams, with asyncio's transports and protocols."""

    async def resolve(self, host: str, port: int) -> list[Address]:
        """All addresses of a name, in the order to try them. Raises OSError."""
        ...

    async def connect(
        self,
        factory: Callable[[], P],
        address: Address,
        *,
        ssl: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connects to one address. Raises OSError (ssl.SSLError is one); has no timeout."""
        ...

    async def listen(
        self,
        acceptor: Acceptor,
        host: str | None,
        port: int,
        *,
        ssl: ssl.SSLContext | None = None,
        sockets: SocketOptions | None = None,
    ) -> Listener:
        """Listens on `host` (None: all interfaces) and `port` (0: a free one). Raises OSError."""
        ...


@frozen
class Environment:
    """Everything the outside world is, to client and broker.

    asyncio's own timers (`call_later`, `sleep`, `timeout`) follow the loop; in a simulation
    that loop and `clock` tell the same time.

    Attributes:
        watchdog: what notices a loop that stands still; None in a simulation, where time does too.
    """

    clock: Clock
    random: random.Random
    network: Network
    files: Files
    offload: Offload
    watchdog: type[Watchdog] | None = None
