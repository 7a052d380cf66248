"""TcpNetwork: the `Network` interface on asyncio's sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

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
        """Connect to one address, and complete the TLS handshake if `ssl` is given.

        With `ssl`, the protocol must be a `SecuredProtocol`.

        Raises:
            OSError: refused, unreachable or reset; `ssl.SSLError` is a subclass.
        """
        loop = asyncio.get_running_loop()
        if ssl is None:
            return await loop.create_connection(factory, address.host, address.port)
        # Imported here, because most clients use no TLS, and each module delays their start.
        from aiokq.connection.tls.tls_connection import SecuredProtocol, TlsConnection

        context = ssl
        protocol = factory()
        secured = cast(SecuredProtocol, protocol)
        connection = TlsConnection(secured, lambda: context, server_hostname=server_hostname)
        await loop.create_connection(lambda: connection, address.host, address.port)
        assert connection.opened is not None
        try:
            await connection.opened
        except BaseException:
            if not connection.is_closing():  # if it is closing, a TLS alert may be unsent
                connection.abort()
            raise
        return connection, protocol

    async def listen(
        self,
        acceptor: Acceptor,
        host: str | None,
        port: int,
        *,
        tls: Callable[[], ssl_module.SSLContext] | None = None,
        sockets: SocketOptions | None = None,
        start_serving: bool = True,
    ) -> Listener:
        """Listen on `host` (`None`: all interfaces) and `port` (0: a free port).

        Args:
            tls: returns the TLS context of the next connection; None without TLS.
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
            tls=tls,
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
