"""The gateway's inputs in Python, for builds without the compiled core; see intake.h.

Tests: tests/unit/fastpath/test_gateway_intake.py runs both implementations.
"""

# Hot path, measured by benchmarks/micro/gateway.py with the pure core.

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import selectors
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterator
from typing import Final

from aiokq.fastpath.gateway.pure_pool import (
    COUNTED,
    DISCARD,
    FORCE,
    MESSAGE_OVERHEAD,
    WAIT,
    Pool,
    parse,
)
from aiokq.fastpath.gateway.pure_spool import SpoolWriter
from aiokq.fastpath.gateway.values import (
    API_KEY,
    API_VERSION,
    MALFORMED,
    NO_MEMORY,
    NOT_ALLOWED,
    TRANSPORTS,
    UNCLEAN_DISCONNECT,
    IntakeCounts,
    check_intake_options,
)

CHUNK: Final = 1 << 18
SMALL_READ: Final = 1 << 14
LACK_SECONDS: Final = 0.1
"""Seconds for which no connection is accepted after a lack of descriptors."""

CROWDED_SECONDS: Final = 30.0
"""Time limit of an incomplete message while other connections wait for its end."""

LATE_SECONDS: Final = 0.1
"""If a check of the time limits is later than this, the thread did not run."""

HEAD_BYTES: Final = 281
"""The most bytes of a message with a valid topic, beside key and value."""

RESERVE: Final = 64
"""Number of descriptors that connections may not use; at most an eighth of the limit."""

BURST: Final = 64
LAST_ACCEPTS: Final = 16
"""Bursts of connections that an ending input accepts in a round."""

SHAKE_SECONDS: Final = 0.01
"""Time for the handshakes of an ending TCP input, where the system does not list them."""

SYN_RECEIVED: Final = "03"
"""The state of a handshake in /proc/net/tcp."""
_CREDENTIALS: Final = struct.Struct("=iII")


_open: Final[set[socket.socket]] = set()
"""The connections of all inputs of the process, and their copies of listening sockets.

A forked child closes what it has of them. Otherwise the programs would not notice the end of this
process as long as the child lives.
"""

_open_lock: Final = threading.RLock()
"""Held while a socket is opened or closed, and by a thread that forks: so the child has the whole
set. Reentrant, because a signal handler may fork while its thread is about to fork."""


def _after_fork_in_child() -> None:
    for sock in _open:
        sock.close()
    _open.clear()
    _open_lock.release()


os.register_at_fork(
    before=_open_lock.acquire,
    after_in_parent=_open_lock.release,
    after_in_child=_after_fork_in_child,
)


class Connection:
    """A stream connection, with the beginning of its incomplete message."""

    def __init__(self, sock: socket.socket, now: float, sender: int) -> None:
        self.sock = sock
        self.sender = sender
        self.buffer = bytearray()
        self.charged = 0
        self.skip = 0
        self.last = now
        self.since: float | None = None
        self.denied = 0.0
        """Time since which another connection is read in place of this one; 0 if there is none."""
        self.begun = False
        """Whether bytes came."""
        self.displaced = False
        """Whether the rest is read, and the connection is then closed for another connection."""
        self.expired = False
        """Whether the connection was idle, or its message incomplete, for too long.

        The data that was written before is still read; then the connection is closed.
        """


class Intake:
    """Receives messages from a socket into a pool, in a thread of its own.

    Args:
        pool: the pool.
        fd: a bound datagram socket, or a listening stream socket; the caller owns it, and must keep
            it open until `stop()` has returned.
        transport: "unix_datagram", "unix_stream" or "tcp".
        max_message_bytes: largest size of a message; on streams, without the 4-byte size field.
        when_full: the reaction to a message for which the pool has no room: "discard" counts it as
            NO_MEMORY, "block" stops reading.
        allowed_uids: ids of the users that may send, according to the kernel's credentials; None
            for all users.
        max_connections: maximum number of open connections; further connections wait, with their
            data, in the kernel's queue until one is closed.
        idle_ms: milliseconds without data after which a connection is closed; 0 for never.
        idle_when_full_ms: idle time in milliseconds from which a connection may be closed so that
            another connection gets its place or descriptor; of the connections without an
            incomplete or unread message, the one idle longest is closed. 0 for never.
        partial_ms: age of an incomplete message, in milliseconds, at which its connection is
            closed. 0 for never, except if a blocking input waits for the end of the message: then
            the limit is 30 seconds.
        spool: a SpoolWriter, to which well-formed messages go, not to the pool; `when_full` then
            applies to messages that the spool does not accept.

    Raises:
        ValueError: an argument is out of range, or `allowed_uids` is given for TCP.
    """

    def __init__(
        self,
        pool: Pool,
        fd: int,
        transport: str,
        *,
        max_message_bytes: int = 65536,
        when_full: str = "discard",
        allowed_uids: Collection[int] | None = None,
        max_connections: int = 1024,
        idle_ms: int = 0,
        partial_ms: int = 0,
        idle_when_full_ms: int = 0,
        spool: SpoolWriter | None = None,
    ) -> None:
        if transport not in TRANSPORTS[:3]:
            raise ValueError(f"transport {transport!r}: one of {', '.join(TRANSPORTS[:3])}")
        check_intake_options(
            max_message_bytes, when_full, max_connections, idle_ms, partial_ms, idle_when_full_ms
        )
        if transport == "tcp" and allowed_uids is not None:
            raise ValueError("the kernel does not know the user of a TCP connection")
        self._pool = pool
        self._fd = fd
        self._transport = TRANSPORTS.index(transport)
        self._datagram = transport == "unix_datagram"
        self._limit = max_message_bytes
        self._block = when_full == "block"
        self._allowed = None if allowed_uids is None else frozenset(allowed_uids)
        self._max_connections = max_connections
        self._idle, self._partial = idle_ms / 1000, partial_ms / 1000
        self._idle_when_full = idle_when_full_ms / 1000
        self._spool = spool
        self._pending: list[bytes] = []
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._stopping = self._keeping = False
        self._stop_seconds: float | None = None
        """For how long the thread may read on by the first call of `stop`; None before."""
        self._drain_seconds = 0.0
        """For how long the thread reads on once it is to stop; 0 if it does not."""
        self._drain_limit = math.inf
        """Time at which it stops to read in any case."""
        self._drain_began = 0.0
        """When the thread has begun to read on; 0 before."""
        self._ending = threading.Lock()
        self._running = False
        self._stop_fds: tuple[int, int] | None = None
        self._selector: selectors.BaseSelector | None = None
        self._connections: dict[int, Connection] = {}
        self._listening = False
        self._accept_at = self._displace_at = 0.0
        self._displacing = False
        self._displaced = 0
        self._sender = 0
        self._received = self._received_bytes = 0
        self._counted = [0] * COUNTED
        self._accepted = self._refused = self._idle_closed = self._partial_closed = 0
        self._blocked = self._stalled = 0.0
        self._crowded = False
        self._error = 0

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("the input was started before")
        if self._datagram:
            try:
                with _copy(self._fd) as sock:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            except OSError as error:
                # The thread reports a descriptor that is not that of a socket.
                if self._allowed is not None and error.errno not in (errno.ENOTSOCK, errno.EBADF):
                    raise
        self._begin()

    def _begin(self) -> None:
        self._stop_fds = os.pipe()
        self._running = True
        self._thread = threading.Thread(target=self._run, name="aiokq-gateway", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._running, self._thread = False, None
            for fd in self._stop_fds:
                os.close(fd)
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error

    def change(
        self,
        *,
        max_message_bytes: int = 65536,
        when_full: str = "discard",
        max_connections: int = 1024,
        idle_ms: int = 0,
        partial_ms: int = 0,
        idle_when_full_ms: int = 0,
    ) -> None:
        check_intake_options(
            max_message_bytes, when_full, max_connections, idle_ms, partial_ms, idle_when_full_ms
        )
        with self._ending:
            if self._thread is None or self._stopping or os.getpid() != self._pid:
                raise RuntimeError("the input does not run")
            self._end_thread(0.0, keep=True)
            self._limit = max_message_bytes
            self._block = when_full == "block"
            self._max_connections = max_connections
            self._idle, self._partial = idle_ms / 1000, partial_ms / 1000
            self._idle_when_full = idle_when_full_ms / 1000
            self._keeping = self._stopping = False
            self._drain_began = 0.0
            try:
                self._check_socket()
                self._begin()
            except OSError:
                for connection in list(self._connections.values()):
                    self._close(connection)
                raise

    def _check_socket(self) -> None:
        """Raise OSError if the descriptor is not that of a socket any more."""
        try:
            with _copy(self._fd) as sock:
                sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        except OSError as error:
            self._error = error.errno or errno.EIO
            self._running, self._thread = False, None
            raise

    def stop(self, *, drain_ms: int = 0) -> None:
        if self._thread is None or os.getpid() != self._pid:
            return
        seconds = drain_ms / 1000
        with self._pool.lock:
            if self._stop_seconds is None:
                self._stop_seconds = seconds
            elif seconds > 0:
                self._drain_limit = min(self._drain_limit, time.monotonic() + seconds)
            seconds = self._stop_seconds
        with self._ending:
            if self._thread is not None and not self._stopping:
                self._end_thread(seconds, keep=False)

    def _end_thread(self, seconds: float, *, keep: bool) -> None:
        """End the thread, and wait for its end; `keep` leaves the connections open."""
        assert self._thread is not None
        with self._pool.lock:
            self._drain_seconds = seconds
            self._stopping, self._keeping = True, keep
            self._pool.memory.notify_all()
        if self._spool is not None:
            self._spool.interrupt()
        assert self._stop_fds is not None
        os.write(self._stop_fds[1], b"!")
        self._thread.join()
        for fd in self._stop_fds:
            os.close(fd)

    def counts(self) -> IntakeCounts:
        with self._pool.lock if os.getpid() == self._pid else contextlib.nullcontext():
            return IntakeCounts(
                self._received,
                self._received_bytes,
                self._counted[MALFORMED],
                self._counted[API_KEY],
                self._counted[API_VERSION],
                self._counted[UNCLEAN_DISCONNECT],
                self._counted[NOT_ALLOWED],
                self._counted[NO_MEMORY],
                len(self._connections),
                self._accepted,
                self._refused,
                self._idle_closed,
                self._partial_closed,
                self._displaced,
                int(self._blocked * 1000),
                self._running,
                self._error,
            )

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            with _copy(self._fd) as sock:
                sock.setblocking(False)
                if self._datagram:
                    self._receive_datagrams(sock)
                else:
                    self._serve(sock)
        except OSError as error:
            self._error = error.errno or errno.EIO
        finally:
            with self._pool.lock:
                self._running = self._keeping and not self._error
                if not self._stopping:
                    self._pool.wake()

    def _accept(self, data: bytes, mono: int, wall: int) -> None:
        """Store or discard one message, under the lock of the pool."""
        pool = self._pool
        if self._spool is not None and parse(data, wall).row is not None:
            self._pending.append(data)  # `_flush` stores it, without the lock
            return
        when_full = WAIT if self._block and not self._stopping else DISCARD
        if self._block and self._stopping:
            when_full = FORCE
        while not pool.accept(data, mono, wall, self._transport, when_full, sender=self._sender):
            began = time.monotonic()
            pool.memory.wait()
            self._note_blocked(began)
            when_full = FORCE if self._stopping else WAIT
        self._received += 1
        self._received_bytes += len(data)
        if pool.outcome >= 0:
            self._counted[pool.outcome] += 1

    def _note_blocked(self, began: float) -> None:
        """Count time in which the input waited for memory."""
        passed = time.monotonic() - began
        self._blocked += passed
        self._stalled += passed

    def _flush(self) -> None:
        """Append the messages that were read to the spool, without the lock of the pool."""
        if not self._pending:
            return
        assert self._spool is not None
        messages, self._pending = self._pending, []
        began = time.monotonic()
        if not self._append(messages):
            # All messages together do not fit into the spool.
            for message in messages:
                self._append([message], final=True)
        self._stalled += time.monotonic() - began

    def _append(self, messages: list[bytes], *, final: bool = False) -> bool:
        """Append or discard messages; return False if they can never fit and `final` is false."""
        assert self._spool is not None
        _, wall = self._pool.now()
        data = b"".join(messages)
        reason = self._spool.append(data, wall)
        while reason >= 0 and self._block and not self._stopping:
            began = time.monotonic()
            may = self._spool.wait(len(data))
            with self._pool.lock:
                self._blocked += time.monotonic() - began
            if not may:
                break
            reason = self._spool.append(data, wall)
        if reason >= 0 and not final and len(messages) > 1 and not self._spool.fits(len(data)):
            return False
        if reason >= 0 and self._block and self._stopping:
            reason = self._spool.append(data, wall, force=True)
        with self._pool.lock:
            self._received += len(messages)
            self._received_bytes += len(data)
            if reason >= 0:
                for message in messages:
                    self._pool.refuse(message, wall, self._transport, reason)
        return True

    def _lost(self, reason: int, size: int, data: bytes) -> None:
        """Count one message that is not stored, under the lock of the pool."""
        _, wall = self._pool.now()
        self._pool.lost(reason, size, self._transport, data, wall)
        self._received += 1
        self._received_bytes += size
        self._counted[reason] += 1

    def _drain_begin(self) -> bool:
        """Note that the thread, which is to stop, reads on; return False if it does not."""
        if self._drain_seconds <= 0:
            return False
        self._drain_began = time.monotonic()
        return True

    @property
    def _drain_end(self) -> float:
        """Time until which an input that stops reads."""
        return min(self._drain_began + self._drain_seconds, self._drain_limit)

    @property
    def _drain_middle(self) -> float:
        """Time until which it reads all that comes and waits for room.

        The rest of its time is for the last read of each connection.
        """
        return self._drain_began + (self._drain_end - self._drain_began) / 2

    def _may_drain(self) -> bool:
        """Return whether a stopping input may read more; a blocking input first waits for room."""
        while self._block and self._full():
            if time.monotonic() >= self._drain_middle:
                return False
            time.sleep(0.001)
        return time.monotonic() < self._drain_end

    def _full(self) -> bool:
        if self._spool is not None:
            return self._spool.full()
        with self._pool.lock:
            return self._pool.used() >= self._pool.max_bytes

    # ------------------------------------------------------------ datagrams

    def _receive_datagrams(self, sock: socket.socket) -> None:
        assert self._stop_fds is not None
        room = socket.CMSG_SPACE(_CREDENTIALS.size)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            selector.register(self._stop_fds[0], selectors.EVENT_READ)
            while not self._stopping:
                selector.select()
                self._burst(sock, room)
            # The first burst is read even without room: it is small, and if it were not read, its
            # senders would not know that it is lost.
            reads = self._drain_begin()
            while (
                reads
                and self._burst(sock, room)
                and self._may_drain()
                and time.monotonic() < self._drain_middle
            ):
                pass

    def _burst(self, sock: socket.socket, room: int) -> int:
        """Read the queued datagrams, at most BURST; return their number."""
        received: list[tuple[bytes, int, tuple[int, int]]] = []
        while len(received) < BURST:
            try:
                data, ancillary, flags, _ = sock.recvmsg(self._limit, room)
            except BlockingIOError:
                break
            except InterruptedError:
                continue
            received.append((data, flags, _sender(ancillary)))
        with self._pool.lock:
            mono, wall = self._pool.now()
            for data, flags, (self._sender, uid) in received:
                if self._allowed is not None and uid not in self._allowed:
                    self._lost(NOT_ALLOWED, len(data), data)
                elif flags & socket.MSG_TRUNC:
                    self._lost(MALFORMED, len(data), data)
                else:
                    self._accept(data, mono, wall)
        self._flush()
        return len(received)

    # ------------------------------------------------------------ streams

    def _serve(self, listening: socket.socket) -> None:
        assert self._stop_fds is not None
        wait = self._tick()
        checked, stalled = time.monotonic(), self._stalled
        stalled_before = stalled
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            selector.register(self._stop_fds[0], selectors.EVENT_READ, None)
            self._listening = False
            for kept in self._connections.values():  # open since before a change of the options
                selector.register(kept.sock, selectors.EVENT_READ, kept)
            while not self._stopping:
                waits = [one for one in (wait, self._listen(listening)) if one is not None]
                self._crowded = False
                for key, _ in selector.select(min(waits, default=None)):
                    if self._stopping:
                        break
                    if key.data is not None:
                        self._read(key.data)
                    elif key.fileobj is listening:
                        self._accept_connections(listening)
                if self._crowded:
                    time.sleep(0.001)
                if self._stalled != stalled:
                    self._postpone(self._stalled - stalled)
                    stalled = self._stalled
                now = time.monotonic()
                if wait is not None and now - checked >= wait:
                    late = now - checked - wait - LATE_SECONDS - (stalled - stalled_before)
                    if late > 0:
                        self._postpone(late)  # such as after SIGSTOP: nothing was read meanwhile
                    checked, stalled_before = now, stalled
                    self._expire(now)
            if self._drain_begin():
                self._drain_connections(listening)
            if not self._keeping:
                for connection in list(self._connections.values()):
                    self._close(connection)
            self._selector = None

    def _drain_connections(self, listening: socket.socket) -> None:
        """Read what the waiting and the open connections have, in turns.

        Programs that write all the time do not use the time of the others. From `_drain_middle`
        on, connections are read once more.

        The caller lets the system refuse new TCP connections; those that a program has begun to
        open are waited for. A connection that would be fresh after the middle is not accepted: if
        systemd owns the socket, the connection waits for the next process.
        """
        handshakes: bool | None = self._is_tcp
        self._max_connections = 1 << 62  # accept all waiting connections
        some, now = True, 0.0
        while some and now < self._drain_end:
            now = time.monotonic()
            accepts = now < self._drain_middle - self._fresh_seconds
            some = self._drain_round(listening, accepts=accepts, last=now >= self._drain_middle)
            if not some and handshakes and accepts:
                # A handshake that ends now is a connection that the next round accepts.
                some = True
                handshakes = _has_handshakes(listening)
                if handshakes is None:
                    handshakes = now - self._drain_began < SHAKE_SECONDS

    def _drain_round(self, listening: socket.socket, *, accepts: bool, last: bool) -> bool:
        """Accept the connections that wait, if `accepts`, and read each connection once.

        A connection is closed if there is nothing more to read, unless it is fresh. With `last`,
        it is also closed if there may be more.

        Returns:
            Whether there were any connections.
        """
        some = False
        for _ in range(LAST_ACCEPTS if accepts else 0):
            before = self._accepted + self._refused
            self._accept_connections(listening)
            if self._accepted + self._refused == before:
                break
            some = True
        # After this shutdown of the socket, a program's write fails. Otherwise it could still write
        # after the last read of its connection, and its messages would be lost uncounted.
        connections = list(self._connections.values())
        if not self._is_tcp:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RD)
        found = False
        for connection in connections:
            # Looked at before the read: it finds all that came while the connection was fresh.
            fresh = self._is_fresh(connection)
            more = self._may_drain() and self._read(connection)
            if connection.sock.fileno() < 0:
                found = True
                continue
            found = found or more
            # TCP accepts data until the connection is closed, so close it right after the last
            # read.
            if last if more else not fresh:
                self._close(connection)
        if not found:
            time.sleep(0.001)
        return some or bool(connections)

    @property
    def _is_tcp(self) -> bool:
        return TRANSPORTS[self._transport] == "tcp"

    @property
    def _fresh_seconds(self) -> float:
        """Time in which an ending TCP input waits for the first message of a connection."""
        return (self._drain_middle - self._drain_began) * 0.3 if self._is_tcp else 0.0

    def _is_fresh(self, connection: Connection) -> bool:
        """Return whether a program that has just connected may be about to send something."""
        return not connection.begun and time.monotonic() - connection.last < self._fresh_seconds

    def _listen(self, listening: socket.socket) -> float | None:
        """Watch the listening socket, unless no connection may be accepted now.

        It is not watched then, because waiting connections would wake the thread all the time.
        Return the seconds until the socket must be watched again, if they are known.
        """
        assert self._selector is not None
        now = time.monotonic()
        lack = self._accept_at - now if self._accept_at else 0.0
        full = len(self._connections) >= self._max_connections
        rest = max(0.0, self._displace_at - now) if full and self._idle_when_full else 0.0
        may_displace = self._idle_when_full > 0 and not self._displacing and not rest
        wanted = lack <= 0 and (not full or may_displace)
        if wanted and not self._listening:
            self._selector.register(listening, selectors.EVENT_READ, None)
        elif self._listening and not wanted:
            self._selector.unregister(listening)
        self._listening = wanted
        if lack > 0:
            return lack
        self._accept_at = 0.0
        return rest or None

    def _tick(self) -> float | None:
        """Return the seconds between two checks for connections that are too old."""
        limits = [limit for limit in (self._idle, self._partial) if limit > 0]
        if not limits:
            return CROWDED_SECONDS / 4 if self._block else None
        return min(max(min(limits) / 4, 0.005), 0.25)

    def _displaceable(self) -> Connection | None:
        """Return the idle connection to close for a waiting connection; None if there is none.

        Among the connections without an incomplete or unread message, the result is the one that
        has sent nothing for the longest time, if that is at least `_idle_when_full` seconds.
        Otherwise `_displace_at` becomes the earliest time at which there may be such a connection.
        """
        now = time.monotonic()
        self._displace_at = now + LACK_SECONDS
        for one in sorted(self._connections.values(), key=lambda one: one.last):
            if now - one.last < self._idle_when_full:
                self._displace_at = max(self._displace_at, one.last + self._idle_when_full)
                return None
            if one.since is not None or one.skip or one.denied:
                continue
            try:
                unread = one.sock.recv(1, socket.MSG_PEEK)
            except OSError:
                unread = b""
            if not unread:
                self._displace_at = 0.0
                return one
            one.last = now  # the connection has unread data
        return None

    def _displace(self) -> None:
        """End an idle connection, because another connection waits for its place or descriptor.

        From now on, the client's program cannot write to the connection. The input still reads the
        data that was written before, and then closes the connection. (With TCP, one more write
        succeeds before the program gets the error.)
        """
        if not self._idle_when_full or self._displacing or self._drain_began:
            return
        connection = self._displaceable()
        if connection is None:
            return
        connection.displaced = self._displacing = True
        with self._pool.lock:
            self._displaced += 1
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RD)

    def _lacks_descriptors(self) -> bool:
        """Return whether only the reserved descriptors are free.

        The spool needs them for files, and the Kafka client for connections. The system gives the
        lowest free descriptor, so its number tells how many are in use.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return False
        assert self._stop_fds is not None
        lowest = os.dup(self._stop_fds[0])  # raises EMFILE if none is free
        os.close(lowest)
        return lowest + min(RESERVE, limit // 8) >= limit

    def _accept_connections(self, listening: socket.socket) -> None:
        if len(self._connections) >= self._max_connections:
            self._displace()
        for _ in range(BURST):
            if len(self._connections) >= self._max_connections:
                return  # further connections wait, with their data, in the kernel's queue
            try:
                # An ending input without a connection accepts one even if only reserved
                # descriptors are free, so that the waiting connections are read.
                last = self._drain_began and not self._connections
                if not last and self._lacks_descriptors():
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                with _open_lock:
                    sock, _ = listening.accept()
                    _open.add(sock)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._accept_at = time.monotonic() + LACK_SECONDS
                self._displace()
                return
            if not self._allows(sock):
                with self._pool.lock:
                    self._refused += 1
                _close(sock)
                continue
            sock.setblocking(False)
            connection = Connection(sock, time.monotonic(), self._sender_of(sock))
            with self._pool.lock:
                self._accepted += 1
                self._connections[sock.fileno()] = connection
            assert self._selector is not None
            self._selector.register(sock, selectors.EVENT_READ, connection)

    def _sender_of(self, sock: socket.socket) -> int:
        """Return a number that identifies the program that opened a connection."""
        if TRANSPORTS[self._transport] == "unix_stream":
            found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return int(_CREDENTIALS.unpack(found)[0])
        return self._accepted

    def _allows(self, sock: socket.socket) -> bool:
        if self._allowed is None:
            return True
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return _CREDENTIALS.unpack(found)[1] in self._allowed

    def _read(self, connection: Connection) -> bool:
        """Read from a connection; return whether more may follow at once."""
        if connection.expired and _at_end(connection.sock):
            self._close(connection)  # does not wait for room, because it frees memory
            return False
        most = self._wait_for_room(connection)
        if not most:
            connection.denied = connection.denied or time.monotonic()
            return False
        if connection.denied:  # a wait for room does not count as a delay of the sender
            self._postpone_one(connection, time.monotonic() - connection.denied)
            connection.denied = 0.0
        try:
            data = connection.sock.recv(most)
        except (BlockingIOError, InterruptedError):
            with self._pool.lock:
                self._end_turn(connection)
            return False
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return False
        connection.last = time.monotonic()
        connection.begun = True
        with self._pool.lock:
            self._sender = connection.sender
            sound = self._consume(connection, data)
            self._end_turn(connection)
        self._flush()
        if not sound:
            self._close(connection)
        return sound

    def _wait_for_room(self, connection: Connection) -> int:
        """Wait until the pool has room; return how many bytes of a connection may be read.

        The incomplete messages of all inputs together get half of the pool. Beyond this half, only
        one incomplete message may grow, so that it can be completed. If all could grow, each would
        wait for memory that the others hold. The result is 0 if another connection must be read
        first.
        """
        if not self._block:
            return CHUNK
        pool = self._pool
        with pool.lock:
            began = time.monotonic()
            # With a spool, complete messages need no memory of the pool.
            while self._spool is None and pool.crowded() and not self._stopping:
                pool.memory.wait()
                self._note_blocked(began)
                began = time.monotonic()
            full = pool.used() >= pool.max_bytes
            if (
                self._stopping
                or pool.turn is connection
                or not (full or pool.partials_full(0, connection.charged))
            ):
                return CHUNK
            if not connection.charged and not full and pool.partial() < pool.max_bytes // 4 * 3:
                return SMALL_READ  # all these bytes may belong to an incomplete message
            if pool.turn is None:
                pool.turn = connection
                return CHUNK
            pool.crowded_at = time.monotonic()
            self._crowded = True
            return 0

    def _end_turn(self, connection: Connection) -> None:
        """End the turn of a connection without an incomplete message; under the pool's lock."""
        if self._pool.turn is connection and not connection.charged:
            self._pool.turn = None

    def _consume(self, connection: Connection, data: bytes) -> bool:
        """Store the messages of a connection; return False after a framing error."""
        pool = self._pool
        mono, wall = pool.now()
        if connection.skip:
            skipped = min(connection.skip, len(data))
            connection.skip -= skipped
            data = data[skipped:]
        if connection.charged:
            pool.charge_partial(-connection.charged, FORCE)
            connection.charged = 0
        buffer = connection.buffer
        buffer += data
        at = size = 0
        sound = True
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big", signed=True)
            if size < 4 or size - 4 > self._limit:
                self._lost(MALFORMED, 4, bytes(buffer[at:]))
                at = len(buffer)
                sound = False
                break
            if size > len(buffer) - at:
                break
            self._accept(bytes(buffer[at : at + size]), mono, wall)
            at += size
        if at:
            connection.since = None
        del buffer[:at]
        left = len(buffer)
        if left and connection.since is None:
            connection.since = time.monotonic()
        if left:
            # Whether the empty pool could store the whole message.
            fits = left < 4 or size - HEAD_BYTES + MESSAGE_OVERHEAD <= pool.max_bytes
            if fits and not self._block:
                self._limit_partials(connection, left)
            if fits and pool.charge_partial(left, FORCE if self._block else DISCARD):
                connection.charged = left
            elif left >= 4:
                self._lose_partial(connection)
        return sound

    def _limit_partials(self, connection: Connection, size: int) -> None:
        """Discard the oldest incomplete messages of this input if they use too much memory.

        Programs that send a part of a message and then wait must not use the memory of other
        programs.
        """
        while self._pool.partials_full(size):
            begun = [
                one
                for one in self._connections.values()
                if one is not connection and one.charged and len(one.buffer) >= 4
            ]
            if not begun:
                return
            self._lose_partial(min(begun, key=lambda one: one.since or 0.0))

    def _lose_partial(self, connection: Connection) -> None:
        """Discard the incomplete message of a connection; its rest will be skipped."""
        buffer = connection.buffer
        size = int.from_bytes(buffer[:4], "big")
        self._lost(NO_MEMORY, size, bytes(buffer))
        if connection.charged:
            self._pool.charge_partial(-connection.charged, FORCE)
            connection.charged = 0
        connection.skip = size - len(buffer)
        connection.since = None
        buffer.clear()
        self._end_turn(connection)

    def _close(self, connection: Connection) -> None:
        if connection.displaced:
            self._displacing = False
        if self._selector is not None:
            self._selector.unregister(connection.sock)
        with self._pool.lock:
            del self._connections[connection.sock.fileno()]
            if connection.charged:
                self._pool.charge_partial(-connection.charged, FORCE)
                connection.charged = 0
            self._end_turn(connection)
            if connection.buffer:
                self._lost(UNCLEAN_DISCONNECT, len(connection.buffer), bytes(connection.buffer))
        with contextlib.suppress(OSError):
            # A child between vfork() and exec() may hold it, too.
            connection.sock.shutdown(socket.SHUT_RDWR)
        _close(connection.sock)

    def _postpone(self, seconds: float) -> None:
        """Move the beginning of all time limits by the time in which nothing was read.

        It is not moved beyond the present time.
        """
        for connection in self._connections.values():
            self._postpone_one(connection, seconds)

    @staticmethod
    def _postpone_one(connection: Connection, seconds: float) -> None:
        now = time.monotonic()
        connection.last = min(connection.last + seconds, now)
        if connection.since is not None:
            connection.since = min(connection.since + seconds, now)

    def _expire(self, now: float) -> None:
        """End connections that were idle, or whose message was incomplete, for too long.

        From now on, their programs cannot write. The input still reads the data that was written
        before, and then closes the connections, so data that came at the last moment, or while the
        thread did not run, is not lost. (With TCP, one more write succeeds before the program gets
        the error.)
        """
        limit = self._partial
        if not limit and self._block and now - self._pool.crowded_at < CROWDED_SECONDS / 2:
            # Other connections, perhaps of another input, wait until incomplete messages end.
            limit = CROWDED_SECONDS
        for connection in self._connections.values():
            if connection.denied or connection.expired:
                continue  # it is not read now, or was ended already
            if limit > 0 and connection.since is not None and now - connection.since >= limit:
                self._partial_closed += 1
            elif self._idle > 0 and now - connection.last >= self._idle:
                self._idle_closed += 1
            else:
                continue
            connection.expired = True
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RD)


@contextlib.contextmanager
def _copy(fd: int) -> Iterator[socket.socket]:
    """Yield the socket of a descriptor, with a descriptor of its own."""
    with _open_lock:
        copied = os.dup(fd)
        try:
            sock = socket.socket(fileno=copied)
        except OSError:  # it is not that of a socket
            os.close(copied)
            raise
        _open.add(sock)
    try:
        yield sock
    finally:
        _close(sock)


def _close(sock: socket.socket) -> None:
    with _open_lock:
        _open.discard(sock)
        sock.close()


def _has_handshakes(listening: socket.socket) -> bool | None:
    """Return whether connections to a TCP socket have begun their handshake and not ended it.

    If the queue of the socket was full, the system drops the last segment of a handshake, with
    which the program is connected and may write, until the program sends the segment again. None
    means that the system does not list the handshakes.
    """
    name = "tcp6" if listening.family == socket.AF_INET6 else "tcp"
    port = f":{listening.getsockname()[1]:04X}"
    try:
        with open(f"/proc/net/{name}", encoding="ascii") as table:
            rows = [line.split()[1:4] for line in table]
    except OSError:
        return None
    return any(row[0].endswith(port) and row[2] == SYN_RECEIVED for row in rows)


def _at_end(sock: socket.socket) -> bool:
    """Return whether everything that was written to a connection has been read."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return False


def _sender(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Return the process and the user that the kernel names; 0 and -1 if it names none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == getattr(socket, "SCM_CREDENTIALS", None):
            pid, uid, _ = _CREDENTIALS.unpack_from(data)
            return int(pid), int(uid)
    return 0, -1
