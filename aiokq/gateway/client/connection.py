"""Connection: a socket to the gateway, the policy for refused messages, and the counts.

Nothing here waits. `send` is a generator that yields each `Wait`; the blocking client and the
asyncio client wait in their own way. This module has no lock for `send`: a client makes one call at
a time.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
import weakref
from collections.abc import Generator
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from aiokq.gateway.client.address import Address, datagram_limit
from aiokq.gateway.client.counts import Counts
from aiokq.gateway.client.errors import (
    ClientClosed,
    GatewayAway,
    GatewayUnavailable,
    MessageTooLarge,
    QueueFull,
)

__all__ = ["Connection", "Policy", "Wait", "watch_forks"]

Policy: TypeAlias = Literal["raise", "drop", "wait"]

POLICIES: Final = ("raise", "drop", "wait")
NO_SIGNAL: Final[int] = getattr(socket, "MSG_NOSIGNAL", 0)
"""Flag of `send`: a closed connection raises an error instead of the signal SIGPIPE."""

FIRST_PAUSE: Final = 0.001
LAST_PAUSE: Final = 0.05
"""FIRST_PAUSE and LAST_PAUSE: the shortest and longest pause between two attempts, in seconds.

Each pause is twice as long as the previous one.
"""

LONGEST_WAIT: Final = 0.25
"""Seconds after which a full queue is tried again, even if the system has not reported room."""


class Wait(NamedTuple):
    """A wait that a generator of `Connection.send` requests."""

    seconds: float
    """Maximum seconds to wait."""
    writable: socket.socket | None
    """The socket whose writability ends the wait; None to wait for all `seconds`."""


class Connection:
    """A connection to the gateway, and the counts of its messages.

    The socket is opened when it is needed.

    Args:
        policy: the behaviour of `send` when the gateway is away or its queue is full.
        timeout: seconds that one message may take.
    """

    def __init__(self, address: Address, policy: Policy, timeout: float) -> None:
        if policy not in POLICIES:
            raise ValueError(f"when_unavailable is {policy!r}; it is one of {', '.join(POLICIES)}")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}, and must be positive")
        self.address = address
        self.policy: Policy = policy
        self.timeout = timeout
        self.closed = False
        self.last_error: GatewayUnavailable | None = None
        self._socket: socket.socket | None = None
        self._retry_at = 0.0
        # An RLock, because a signal handler may refuse a message while its thread has the lock.
        self._counting = threading.RLock()
        self._reset_counts()

    def send(self, message: bytes, deadline: float) -> Generator[Wait, None, bool]:
        """Send one message: a generator whose value is False if the message was dropped.

        An exception thrown into the generator, or `close` of the generator, ends the attempt. If a
        part of the message was written to a stream, the connection is closed, so that the next
        message is sent on a new connection.

        Raises:
            GatewayUnavailable: the message was not sent, and the policy is to raise.
            MessageTooLarge: the message does not fit into a datagram of the socket.
            ClientClosed: the client was closed.
        """
        try:
            yield from self._deliver(message, deadline)
        except GatewayUnavailable as error:
            return self.refuse(error)
        except MessageTooLarge:
            self._raised["too_large"] += 1
            raise
        except ClientClosed:
            raise
        except BaseException:
            self._raised["cancelled"] += 1
            raise
        self._sent += 1
        self._sent_bytes += len(message)
        return True

    def refuse(self, error: GatewayUnavailable) -> Literal[False]:
        """Count a message that was not sent; return False or raise, as the policy requires."""
        self.last_error = error
        reason = "queue_full" if isinstance(error, QueueFull) else "away"
        with self._counting:
            if self.policy == "drop":
                self._dropped[reason] += 1
                return False
            self._raised[reason] += 1
        raise error

    def cancelled(self) -> None:
        """Count a message whose sender was cancelled before its turn."""
        self._raised["cancelled"] += 1

    def counts(self) -> Counts:
        """Return a copy of the counts."""
        dropped, raised = dict(self._dropped), dict(self._raised)
        return Counts(self._sent, self._sent_bytes, dropped, raised, self._connects)

    def disconnect(self) -> None:
        """Close the socket. The next message opens another."""
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()

    def forked(self) -> None:
        """Forget the parent's socket and counts, in a child process."""
        # Closing the descriptor of the child does not disturb the parent's connection.
        self.disconnect()
        self.last_error = None
        self._retry_at = 0.0
        self._counting = threading.RLock()
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._sent = self._sent_bytes = self._connects = 0
        self._dropped = {"away": 0, "queue_full": 0}
        self._raised = {"away": 0, "queue_full": 0, "too_large": 0, "cancelled": 0}

    def _deliver(self, message: bytes, deadline: float) -> Generator[Wait, None, None]:
        pause = FIRST_PAUSE
        while True:
            if self.closed:
                raise ClientClosed("the client is closed")
            try:
                return (yield from self._attempt(message, deadline))
            except GatewayUnavailable as error:
                left = deadline - time.monotonic()
                if self.policy != "wait" or left <= 0:
                    raise
                full = isinstance(error, QueueFull) and error.__cause__ is None
                if full and self._socket is not None:
                    yield Wait(min(left, LONGEST_WAIT), self._socket)
                else:
                    # A socket can be writable while the system has no memory for a datagram, so
                    # wait.
                    yield Wait(min(left, pause), None)
                    pause = min(2 * pause, LAST_PAUSE)

    def _attempt(self, message: bytes, deadline: float) -> Generator[Wait, None, None]:
        write = self._send_datagram if self.address.datagram else self._send_stream
        opened = self._socket
        if opened is not None:
            try:
                return (yield from write(opened, message, deadline))
            except GatewayAway:
                # The gateway of this connection has ended, and another gateway may already listen.
                # The old gateway did not accept the message, because it discards incomplete
                # messages.
                pass
        yield from self._connect(deadline)
        opened = self._socket
        assert opened is not None
        return (yield from write(opened, message, deadline))

    def _connect(self, deadline: float) -> Generator[Wait, None, None]:
        if self.policy != "wait" and time.monotonic() < self._retry_at:
            raise GatewayAway(f"{self.address.text} accepts no connections")
        try:
            opened, code = self.address.open()
        except OSError as error:
            raise self._away(error.errno) from error
        try:
            while code == errno.EINPROGRESS:
                left = deadline - time.monotonic()
                if left <= 0:
                    # Before `_retry_at`, messages do not wait for a connection, unless the policy
                    # is "wait".
                    self._retry_at = time.monotonic() + self.timeout
                    raise GatewayAway(f"{self.address.text} accepts no connections")
                yield Wait(min(left, LONGEST_WAIT), opened)
                code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or _state(opened)
            if code == errno.EAGAIN:
                raise QueueFull(f"too many connections wait at {self.address.text}")
            if code:
                raise self._away(code)
        except BaseException:
            opened.close()
            raise
        self._socket = opened
        self._connects += 1

    def _send_datagram(
        self, opened: socket.socket, message: bytes, deadline: float
    ) -> Generator[Wait, None, None]:
        try:
            opened.send(message, NO_SIGNAL)
        except BlockingIOError:
            raise QueueFull(f"the queue of {self.address.text} is full") from None
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise _too_large(len(message), datagram_limit(opened)) from None
            if error.errno in (errno.ENOBUFS, errno.ENOMEM):
                raise QueueFull(f"the system has no memory for {self.address.text}") from error
            self.disconnect()
            raise self._away(error.errno) from error
        return
        yield  # never reached: makes this function a generator, as _send_stream is

    def _send_stream(
        self, opened: socket.socket, message: bytes, deadline: float
    ) -> Generator[Wait, None, None]:
        if self.address.tcp and _ended(opened):
            # TCP would accept the message although nobody reads it.
            self.disconnect()
            raise self._away(errno.EPIPE)
        rest = memoryview(message)
        begun = True
        try:
            while rest:
                try:
                    done = opened.send(rest, NO_SIGNAL)
                except BlockingIOError:
                    if len(rest) == len(message):
                        begun = False
                        raise QueueFull(f"the queue of {self.address.text} is full") from None
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise QueueFull(
                            f"{self.address.text} did not take the rest of a message in "
                            f"{self.timeout} s"
                        ) from None
                    yield Wait(min(left, LONGEST_WAIT), opened)
                else:
                    rest = rest[done:]
        except OSError as error:
            self.disconnect()
            raise self._away(error.errno) from error
        except BaseException:
            # `rest` does not show whether bytes were sent: a signal handler may raise after the
            # system took some bytes and before `rest` is updated.
            if begun:
                self.disconnect()
            raise

    def _away(self, code: int | None) -> GatewayAway:
        reason = os.strerror(code) if code is not None else "unknown error"
        return GatewayAway(f"no gateway at {self.address.text}: {reason}", code)


class Forkable(Protocol):
    """A client that is notified when its process was forked."""

    def forked(self) -> None:
        """Drop the resources of the parent process; called in the child."""


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch_forks(client: Forkable) -> None:
    """Call `forked` of a client in each child process."""
    _clients.add(client)


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _state(opened: socket.socket) -> int:
    """Return 0 for a connected socket, else EINPROGRESS."""
    try:
        opened.getpeername()
    except OSError:
        return errno.EINPROGRESS
    return 0


def _ended(opened: socket.socket) -> bool:
    """Whether the gateway closed a stream. A gateway never writes: only the end can be read."""
    try:
        return not opened.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"the message has {size} bytes, and a datagram of this socket at most {limit}: give "
        "send_buffer_bytes (the system's limit is the sysctl net.core.wmem_max), or use a stream",
        size=size,
        limit=limit,
    )
