"""TcpNetwork: the `Network` interface on asyncio's sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from aiokq.core.clock import SystemClock
from aiokq.core.environment import Acceptor, Address, Environment, Listener, SocketOptions
from aiokq.core.files import OsFiles
from aiokq.core.offload import ThreadOffload, interpreter_ends
from aiokq.core.watchdog import Watchdog

if TYPE_CHECKING:
    import ssl as ssl_module

__all__ = ["TcpNetwork", "system_environment"]

P = TypeVar("P", bound=asyncio.BaseProtocol)


class TcpNetwork:
    """TCP on the running loop of asyncio or uvloop; connections use TLS if a context is given."""

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Resolve a name; return all addresses in the resolver's order (RFC 6724).

        Raises:
            OSError: the host is unknown.
        """
        try:
            if interpreter_ends():  # asyncio's thread pool has been shut down
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            else:
                found = await asyncio.get_running_loop().getaddrinfo(
                    host, port, type=socket.SOCK_STREAM
                )
        except ValueError as error:  # a label is empty or too long, or a character is invalid
            raise socket.gaierror(socket.EAI_NONAME, f"not a host name: {error}") from error
        return list(dict.fromkeys(Address(str(item[4][0]), int(item[4][1])) for item in found))

    async def connect(
        self,
        factory: Callable[[], P],
        address: Address,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to one address.

        Raises:
            OSError: refused, unreachable or reset; `ssl.SSLError` is a subclass.
        """
        return await asyncio.get_running_loop().create_connection(
            factory, address.host, address.port, ssl=ssl, server_hostname=server_hostname
        )

    async def listen(
        self,
        acceptor: Acceptor,
        host: str | None,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        sockets: SocketOptions | None = None,
        start_serving: bool = True,
    ) -> Listener:
        """Listen on `host` (`None`: all interfaces) and `port` (0: a free port).

        Args:
            start_serving: False to bind the port only; `Listener.start_serving` then listens.

        Raises:
            OSError: the port is in use, the address is not local, or the host is unknown.
        """
        # Imported here, because clients never listen, and each module delays their start.
        from aiokq.connection.listener import TcpListener, bind
        from aiokq.core.descriptor_reserve import PROCESS

        options = sockets or SocketOptions()
        listener = TcpListener(
            await bind(host, port, options),
            acceptor,
            reserve=PROCESS,
            ssl=ssl,
            backlog=options.backlog,
        )
        if start_serving:
            try:
                await listener.start_serving()
            except BaseException:
                listener.close()
                await listener.wait_closed()
                raise
        return listener


def system_environment() -> Environment:
    """Return the real environment: clock, random source, network, files, threads, watchdog."""
    return Environment(
        clock=SystemClock(),
        random=random.Random(),
        network=TcpNetwork(),
        files=OsFiles(),
        offload=ThreadOffload(),
        watchdog=Watchdog,
    )
