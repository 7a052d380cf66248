"""Owns the real network: asyncio's sockets behind the `Network` interface; no frames, no policy."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from aiokq.core import forks
from aiokq.core.clock import SystemClock
from aiokq.core.environment import Address, Environment, Listener
from aiokq.core.files import OsFiles
from aiokq.core.offload import ThreadOffload
from aiokq.core.watchdog import Watchdog

if TYPE_CHECKING:
    import ssl as ssl_module

__all__ = ["TcpListener", "TcpNetwork", "system_environment"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

_BACKLOG = 1024


class TcpListener:
    """A listening TCP socket; forked children close their copies of it."""

    def __init__(self, server: asyncio.Server, sock: socket.socket | None = None) -> None:
        self._server = server
        self._descriptors = [forks.Descriptor(each.fileno()) for each in server.sockets]
        if sock is not None:
            # For one whose loop was closed before it: the port is free when nobody has this.
            weakref.finalize(self, _close_in, os.getpid(), sock).atexit = False
        self.port: int = server.sockets[0].getsockname()[1]
        """The port, also where 0 was asked for."""

    def close(self) -> None:
        """Accept no more."""
        self._server.close()

    async def wait_closed(self) -> None:
        """Until the socket is given back.

        Not asyncio's `wait_closed`, which from Python 3.12 on waits for the connections too.
        """
        await asyncio.sleep(0)


def _close_in(pid: int, sock: socket.socket) -> None:
    if os.getpid() == pid:
        sock.close()


class TcpNetwork:
    """TCP on the running loop, asyncio's or uvloop's, with TLS where a context is given."""

    async def resolve(self, host: str, port: int) -> list[Address]:
        """All addresses of a name, in the resolver's order (RFC 6724: mostly IPv6 first).

        Raises:
            OSError: no such host.
        """
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        except UnicodeError as error:  # a label that is empty or too long
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
            OSError: refused, unreachable or reset; `ssl.SSLError` is one.
        """
        return await asyncio.get_running_loop().create_connection(
            factory, address.host, address.port, ssl=ssl, server_hostname=server_hostname
        )

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
    ) -> Listener:
        """Listen on `host` (`None`: all interfaces) and `port` (0: a free one).

        Raises:
            OSError: the port is taken, or the address not ours.
        """
        loop = asyncio.get_running_loop()
        sock = None if host is None else _bound(host, port)
        if sock is None:
            server = await loop.create_server(factory, host, port, ssl=ssl, backlog=_BACKLOG)
        else:
            server = await loop.create_server(factory, sock=sock, ssl=ssl, backlog=_BACKLOG)
        return TcpListener(server, sock)


def _bound(host: str, port: int) -> socket.socket | None:
    """A socket bound as `create_server` would; None where `host` is no IPv4 address.

    To look such an address up as a name takes milliseconds of a broker's start.

    Raises:
        OSError: the port is taken, or the address not ours.
    """
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return None
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def system_environment() -> Environment:
    """The machine we run on: clock, chance, network, files, threads and a watchdog."""
    return Environment(
        clock=SystemClock(),
        random=random.Random(),
        network=TcpNetwork(),
        files=OsFiles(),
        offload=ThreadOffload(),
        watchdog=Watchdog,
    )
