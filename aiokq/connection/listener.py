"""TcpListener: accepts connections, and creates a transport for each admitted connection.

The acceptor decides which connections are admitted. The accept loops of asyncio and uvloop are not
used: when the process has no free descriptor, asyncio's loop tries to accept a thousand times in
each iteration and logs each failure, and uvloop's loop leaves clients waiting.

Tests: tests/fault/test_listener.py, tests/fault/test_descriptors.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import socket
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from aiokq.core import forks
from aiokq.core.environment import Acceptor, Address, SocketOptions

if TYPE_CHECKING:
    import ssl

    from aiokq.connection.tls.handshakes import Handshakes
    from aiokq.core.descriptor_reserve import DescriptorReserve

__all__ = ["TcpListener", "bind"]

logger = logging.getLogger("aiokq.connection")

_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

_CLIENT_GONE: Final = frozenset(
    getattr(errno, name, errno.ECONNABORTED)
    for name in (
        *("ECONNABORTED", "EPROTO", "ENETDOWN", "ENOPROTOOPT", "EHOSTDOWN", "ENONET"),
        *("EHOSTUNREACH", "EOPNOTSUPP", "ENETUNREACH", "ETIMEDOUT", "EPERM"),
    )
)
"""Errors of accept() that concern one connection and not the listening socket.

Linux reports errors that the connection had before it was accepted, and EPERM if a firewall forbids
the connection.
"""

_INHERITS_OPTIONS: Final = sys.platform == "linux"
"""Whether accepted sockets are known to have the options of the listening socket."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""The longest pause after a failure to accept connections, in seconds.

The first pause is ``_FIRST_PAUSE``; each consecutive failure doubles the pause.
"""

_WATCH_SECONDS: Final = 1.0
"""Seconds between two checks of the reserve of descriptors."""

_ACCEPTS_PER_STEP: Final = 32
"""Maximum number of connections that one call of `TcpListener._accept` accepts."""

_LOG_AGAIN: Final = 60.0
"""Minimum seconds between two log lines about a listener's failures to accept connections."""


class TcpListener:
    """Listening TCP sockets on the running loop, all with one port.

    Forked children close their copies of the sockets.

    Args:
        sockets: bound sockets that are not listening yet; `close` closes them.
        acceptor: decides which connections are accepted.
        reserve: reports when descriptors are scarce.
        tls: returns the TLS context of the next connection; None without TLS. With TLS, the
            acceptor's protocols must be `SecuredProtocol`.
        backlog: number of connections that the system queues until they are accepted.

    Attributes:
        port: the actual port number, even if port 0 was requested.
        hosts: the numeric addresses of the sockets.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        acceptor: Acceptor,
        *,
        reserve: DescriptorReserve,
        tls: Callable[[], ssl.SSLContext] | None = None,
        backlog: int,
    ) -> None:
        self.port: int = sockets[0].getsockname()[1]
        self.hosts = tuple(str(sock.getsockname()[0]) for sock in sockets)
        self._sockets = sockets
        self._inherited = [forks.Descriptor(sock.fileno()) for sock in sockets]
        # Frees the port when the object is collected, if the loop was closed before the listener.
        weakref.finalize(self, _close_in, os.getpid(), sockets).atexit = False
        self._acceptor = acceptor
        self._reserve = reserve
        self._tls = tls
        self._handshakes: Handshakes | None = None
        if tls is not None:
            from aiokq.connection.tls.handshakes import Handshakes

            self._handshakes = Handshakes(acceptor.strangers)
        self._backlog = backlog
        self._loop = asyncio.get_running_loop()
        self._arrived = _Arrived()
        self._connecting: dict[_Connecting, None] = {}
        # When the process has no free descriptor, the spare descriptor is closed to accept a
        # connection, which is refused if no idle connection can be closed. Without the spare
        # descriptor, the client would stay in the system's queue: it would not learn of the
        # refusal, and the socket would stay readable.
        self._spare = _Spare()
        self._resumption: asyncio.TimerHandle | None = None
        self._waiting: set[socket.socket] = set()  # sockets whose next accept has to wait
        self._watch: asyncio.TimerHandle | None = None
        self._pause_seconds = _FIRST_PAUSE
        self._logged_at: float | None = None
        self._closed = False

    async def start_serving(self) -> None:
        """Listen and accept connections.

        Raises:
            OSError: another socket listens on the address.
        """
        for sock in self._sockets:
            sock.setblocking(False)
            _tune(sock)
            sock.listen(self._backlog)
        self._spare.take()
        self._resume()
        self._watch = self._loop.call_later(_WATCH_SECONDS, self._look_at_reserve)
        self._reserve.add(self._acceptor)

    def close(self) -> None:
        """Stop accepting, and close connections that have no transport yet. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._reserve.remove(self._acceptor)
        self._stop_accepting()
        for timer in (self._resumption, self._watch):
            if timer is not None:
                timer.cancel()
        for sock in self._sockets:
            sock.close()
        self._spare.give_up()
        self._arrived.close()
        for connecting in self._connecting:
            connecting.cancel()
        if self._handshakes is not None:
            self._handshakes.close()

    async def wait_closed(self) -> None:
        """Wait until all accepted connections have transports, or are closed."""
        while self._connecting:  # noqa: ASYNC110 - usually one iteration of the loop
            await asyncio.sleep(0)

    def _ready(self, sock: socket.socket) -> None:
        """Accept queued connections, when `Strangers` allows it.

        The loop calls this method in every iteration in which the socket is readable, so also while
        an accept waits for its turn; these calls do nothing. The socket is watched all the same:
        `Strangers` makes the loop iterate during the wait anyway, and to stop watching the socket
        and begin again would need eight system calls per connection.
        """
        if self._closed or sock in self._waiting:
            return  # the listener was closed, or the accept waits
        if not self._acceptor.strangers.do(functools.partial(self._accept, sock), None):
            self._waiting.add(sock)

    def _accept(self, sock: socket.socket) -> None:
        """Accept one connection, and more while `_accept_one` says that more may be accepted."""
        has_waited = sock in self._waiting
        if has_waited:
            self._waiting.discard(sock)
            if self._closed or self._resumption is not None:
                return  # the listener was closed, or accepting has failed meanwhile
        for _ in range(_ACCEPTS_PER_STEP):
            if self._closed or not self._accept_one(sock, has_waited):
                return

    def _accept_one(self, sock: socket.socket, has_waited: bool) -> bool:
        """Accept one queued connection; return whether more may be accepted now."""
        if not self._spare.take():
            self._pause("no free file descriptor")
            return False
        scarce = False
        try:
            connection, address = sock.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _CLIENT_GONE:
                return False
            if error.errno not in _NO_DESCRIPTOR:
                self._pause(str(error))
                return False
            self._spare.give_up()
            try:
                connection, address = sock.accept()
            except OSError as again:  # the client is gone, or a thread took the descriptor
                if not isinstance(again, BlockingIOError):
                    self._pause(str(again))
                return False
            scarce = True
        self._reserve.descriptors.opened()
        self._pause_seconds = _FIRST_PAUSE
        peer, strangers = Address(address[0], address[1]), self._acceptor.strangers
        if scarce or self._reserve.missing():
            self._hand_over(connection, peer, scarce=True)
            return False
        refuse = functools.partial(self._refuse, connection, peer)
        if strangers.is_full(peer.host):
            refuse()
            return True
        begin = functools.partial(self._begin, connection, peer)
        if strangers.admit(begin, refuse, peer.host, has_waited=has_waited):
            return False
        self._arrived.sockets.add(connection)
        return strangers.accepts_many

    def _begin(self, connection: socket.socket, peer: Address) -> None:
        self._arrived.sockets.discard(connection)
        if not self._closed and connection.fileno() >= 0:
            self._hand_over(connection, peer, scarce=self._reserve.missing() > 0)

    def _refuse(self, connection: socket.socket, peer: Address) -> None:
        self._arrived.sockets.discard(connection)
        connection.close()
        if not self._closed:
            self._acceptor.refused(peer)

    def _hand_over(self, connection: socket.socket, peer: Address, *, scarce: bool) -> None:
        self._acceptor.strangers.begun()
        protocol: asyncio.BaseProtocol | None = None
        try:
            if not _INHERITS_OPTIONS:
                _tune(connection)
            make_room = self._make_room if scarce else None
            protocol = self._acceptor.accept(peer, make_room=make_room)
        finally:
            if protocol is None:
                connection.close()
        if protocol is None:
            return
        if self._tls is not None:
            from aiokq.connection.tls.tls_connection import SecuredProtocol, TlsConnection

            protocol = TlsConnection(
                cast(SecuredProtocol, protocol),
                self._tls,
                handshakes=self._handshakes,
                peer_host=peer.host,
            )
        connecting = _Connecting(self, connection, protocol)
        self._connecting[connecting] = None
        connecting.begin()

    def _make_room(self) -> bool:
        """Close a connection that waits to begin, or else a file or an idle connection."""
        return self._acceptor.strangers.refuse_one() or self._reserve.make_room()

    def forget(self, connecting: _Connecting) -> None:
        """Wait no longer for the transport of a connection: it has one, or will not get one."""
        self._connecting.pop(connecting, None)

    def _look_at_reserve(self) -> None:
        """Check the reserve periodically, to notice descriptors that other code has opened."""
        self._watch = self._loop.call_later(_WATCH_SECONDS, self._look_at_reserve)
        self._reserve.restore()

    def _pause(self, reason: str) -> None:
        """Stop accepting for some time; otherwise, every iteration of the loop would retry."""
        now = self._loop.time()
        if self._logged_at is None or now - self._logged_at >= _LOG_AGAIN:
            self._logged_at = now
            logger.warning("cannot accept connections: port=%d error=%s", self.port, reason)
        self._stop_accepting()
        self._resumption = self._loop.call_later(self._pause_seconds, self._resume)
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE)

    def _stop_accepting(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock)

    def _resume(self) -> None:
        self._resumption = None
        for sock in self._sockets:
            self._loop.add_reader(sock, self._ready, sock)


class _Arrived:
    """Accepted connections that wait to begin. A forked child closes its copies of the sockets.

    `forks` watches one object for all of them, because most wait for only one iteration of the
    loop.
    """

    __slots__ = ("__weakref__", "sockets")

    def __init__(self) -> None:
        self.sockets: set[socket.socket] = set()
        forks.watch(self)

    def close(self) -> None:
        """Close all these connections."""
        for connection in self.sockets:
            connection.close()
        self.sockets.clear()

    forget = close


class _Connecting:
    """An accepted connection that has no transport yet.

    The loop's coroutine `connect_accepted_socket` awaits only one future. Therefore `begin` runs it
    without a task, which would cost more than the rest of the accept.
    """

    __slots__ = ("_connection", "_is_cancelled", "_listener", "_protocol", "_steps")

    def __init__(
        self, listener: TcpListener, connection: socket.socket, protocol: asyncio.BaseProtocol
    ) -> None:
        self._listener = listener
        self._connection = connection
        self._protocol = protocol
        self._is_cancelled = False
        self._steps = asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, connection
        )

    def begin(self, waited: asyncio.Future[object] | None = None) -> None:
        """Let the loop create the transport; continue when the awaited future is done."""
        try:
            future = self._steps.send(None)
        except StopIteration as made:
            self._listener.forget(self)
            if self._is_cancelled:
                made.value[0].abort()
        except Exception as error:  # noqa: BLE001 - it ends only this connection
            logger.debug("connection failed before it was established: %r", error)
            self._listener.forget(self)
            self._connection.close()
            self._protocol.connection_lost(error)
        else:
            future.add_done_callback(self.begin)

    def cancel(self) -> None:
        """Close the connection as soon as it has a transport, because the listener is closed."""
        self._is_cancelled = True


class _Spare:
    """A descriptor that is kept open, and closed when the process has no free descriptor."""

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        self._fd: int | None = None

    def take(self) -> bool:
        """Open the descriptor if it is not open; return False if it cannot be opened."""
        if self._fd is None:
            try:
                self._fd = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return False
        return True

    def give_up(self) -> None:
        """Close the descriptor. May be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    __del__ = give_up


class _Socket(socket.socket):
    """A listening or accepted socket, whose `family` and `type` are numbers.

    `socket.socket` makes enums of them, and the loop reads them five times per connection. The
    enums would take longer than the accept.
    """

    __slots__ = ()

    family = socket.SocketType.family  # type: ignore[assignment]
    type = socket.SocketType.type  # type: ignore[assignment]

    def accept(self) -> tuple[_Socket, Any]:
        """Do what `socket.accept` does, for a socket that does not block."""
        fd, address = self._accept()  # type: ignore[attr-defined]
        return _Socket(self.family, self.type, self.proto, fd), address


def _tune(sock: socket.socket) -> None:
    """Send small responses at once, and detect a peer whose machine is gone."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):  # the connection was reset, and will be reported lost
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _close_in(pid: int, sockets: Sequence[socket.socket]) -> None:
    if os.getpid() == pid:
        for sock in sockets:
            sock.close()


async def bind(host: str | None, port: int, options: SocketOptions) -> list[socket.socket]:
    """Create bound sockets with one port for all addresses of a host.

    Args:
        host: name or address; None or "" for all interfaces.
        port: port number; 0 for a free port.

    Raises:
        OSError: the port is in use, the address is not local, or the host is unknown
            (`socket.gaierror`).
    """
    if host and _is_ipv4(host):  # the resolver would delay the broker's start by milliseconds
        return [_bound(socket.AF_INET, (host, port), options)]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except ValueError as error:  # a label is empty or too long, or a character is invalid
        raise socket.gaierror(socket.EAI_NONAME, f"not a host name: {error}") from error
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    try:
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            if sockets:
                port = sockets[0].getsockname()[1]
            try:
                sockets.append(_bound(family, (address[0], port, *address[2:]), options))
            except OSError as error:
                # IPv6 may be disabled although the resolver returns IPv6 addresses.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                refused = refused or error
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    if refused is not None and not sockets:
        raise refused
    return sockets


def _bound(family: int, address: tuple[object, ...], options: SocketOptions) -> socket.socket:
    sock = _Socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
        # Set before listen(), because the advertised window scale depends on the receive buffer.
        for option, size in (
            (socket.SO_SNDBUF, options.send_buffer),
            (socket.SO_RCVBUF, options.receive_buffer),
        ):
            if size is not None:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_ipv4(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True
