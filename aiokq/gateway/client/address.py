"""Address: opens sockets to the address of a gateway."""

from __future__ import annotations

import os
import socket
from typing import Final

from aiokq.gateway.client.errors import PathTooLong

__all__ = ["Address", "datagram_limit"]

MAX_PATH_BYTES: Final = 107
"""sun_path has 108 bytes, and the last is NUL."""


MAX_BUFFER_BYTES: Final = 2**31 - 1


class Address:
    """The address on which a gateway listens.

    Attributes:
        datagram: whether each message is a datagram.
        tcp: whether the address is a port.

    Raises:
        ValueError: not exactly one address is given, or a part of it is out of range.
        TypeError: the port is not an int.
        PathTooLong: a path has more than 107 bytes.
    """

    __slots__ = ("_family", "_send_buffer_bytes", "_target", "datagram", "tcp", "text")

    def __init__(
        self,
        *,
        unix_datagram: str | os.PathLike[str] | None,
        unix_stream: str | os.PathLike[str] | None,
        tcp: int | None,
        host: str,
        send_buffer_bytes: int | None,
    ) -> None:
        given = [one for one in (unix_datagram, unix_stream, tcp) if one is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of unix_datagram, unix_stream and tcp")
        if send_buffer_bytes is not None and not 1 <= send_buffer_bytes <= MAX_BUFFER_BYTES:
            raise ValueError(
                f"send_buffer_bytes is {send_buffer_bytes}, and must be from 1 to "
                f"{MAX_BUFFER_BYTES}"
            )
        self.datagram = unix_datagram is not None
        self.tcp = tcp is not None
        self._send_buffer_bytes = send_buffer_bytes
        self._target: bytes | tuple[str, int]
        if tcp is not None:
            self._family, self._target = _internet(host, tcp)
            self.text = f"{host}:{tcp}" if ":" not in host else f"[{host}]:{tcp}"
            return
        path = os.fsencode(unix_datagram if unix_datagram is not None else unix_stream or "")
        if not path or b"\0" in path:
            raise ValueError("the path of a socket is empty or has a NUL byte")
        if len(path) > MAX_PATH_BYTES:
            raise PathTooLong(
                f"the path has {len(path)} bytes; an address of a UNIX socket holds "
                f"{MAX_PATH_BYTES}: {os.fsdecode(path)}"
            )
        self._family, self._target = socket.AF_UNIX, path
        self.text = os.fsdecode(path)

    def open(self) -> tuple[socket.socket, int]:
        """Return a non-blocking socket, and the error number of `connect`: 0 if it is connected.

        Raises:
            OSError: the socket cannot be opened.
        """
        kind = socket.SOCK_DGRAM if self.datagram else socket.SOCK_STREAM
        opened = socket.socket(self._family, kind)
        try:
            opened.setblocking(False)
            if self._send_buffer_bytes is not None:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if self.tcp:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened, opened.connect_ex(self._target)
        except BaseException:
            opened.close()
            raise


def datagram_limit(opened: socket.socket) -> int:
    """Return the size of the largest datagram that a socket sends.

    Source:
        Linux, net/unix/af_unix.c, unix_dgram_sendmsg: `len > sk->sk_sndbuf - 32` is EMSGSIZE.
    """
    return opened.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) - 32


def _internet(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if not isinstance(port, int) or isinstance(port, bool):
        raise TypeError(f"the port is {port!r}, and must be an int")
    if not 1 <= port <= 65535:
        raise ValueError(f"the port is {port}, and must be from 1 to 65535")
    host = "127.0.0.1" if host == "localhost" else host
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family, (host, port)
    # A name would have to be resolved, which may block.
    raise ValueError(f"host is {host!r}, and must be an IP address")
