"""GatewayClient: the blocking client of the gateway."""

from __future__ import annotations

import os
import select
import threading
import time
from types import TracebackType
from typing import Self

from aiokq.gateway.client.address import Address
from aiokq.gateway.client.connection import Connection, Policy, Wait, watch_forks
from aiokq.gateway.client.counts import Counts
from aiokq.gateway.client.errors import ClientClosed, GatewayUnavailable, QueueFull
from aiokq.gateway.client.message import BytesLike, encode

__all__ = ["GatewayClient"]


class GatewayClient:
    """Writes messages to the gateway's socket.

    Threads and signal handlers may share a client: messages never mix. A forked child may go on
    using its copy: the child opens a socket of its own, and its counts begin at 0. The first
    message opens the socket. After a restart of the gateway, the next message opens another one.

    Args:
        unix_datagram: the path of a datagram socket.
        unix_stream: the path of a stream socket.
        tcp: a port. Exactly one of the three is given.
        host: the IP address of the port; a gateway listens on loopback addresses only.
        when_unavailable: the behaviour of `send` when the gateway is away or its queue is full.
            "raise" raises GatewayAway or QueueFull at once. "drop" counts the message and returns
            False. "wait" tries for `timeout` seconds, and then raises.
        timeout: seconds that one message may take. With "raise" and "drop", `send` waits only while
            another thread is sending, for the rest of a message that a stream took in part, and
            while a TCP connection is being opened.
        send_buffer_bytes: SO_SNDBUF of the socket; it limits the size of datagrams, and how many
            bytes wait in the kernel.

    Raises:
        ValueError: not exactly one address is given, or an argument is out of range.
        TypeError: the port is not an int.
        PathTooLong: a path has more than 107 bytes.

    Example:
        with GatewayClient(unix_datagram="/run/aiokq/gateway.sock") as client:
            client.send("orders", b"value", key=b"k")
    """

    def __init__(
        self,
        *,
        unix_datagram: str | os.PathLike[str] | None = None,
        unix_stream: str | os.PathLike[str] | None = None,
        tcp: int | None = None,
        host: str = "127.0.0.1",
        when_unavailable: Policy = "raise",
        timeout: float = 5.0,
        send_buffer_bytes: int | None = None,
    ) -> None:
        address = Address(
            unix_datagram=unix_datagram,
            unix_stream=unix_stream,
            tcp=tcp,
            host=host,
            send_buffer_bytes=send_buffer_bytes,
        )
        self._connection = Connection(address, when_unavailable, timeout)
        # Reentrant, because a signal handler may interrupt its own thread with the lock.
        self._lock = threading.RLock()
        self._sending = False
        """Whether the thread that has the lock is sending a message."""
        watch_forks(self)

    def send(
        self,
        topic: str | bytes,
        value: BytesLike,
        *,
        key: BytesLike = b"",
        partition_key: int | None = None,
        timestamp_ms: int | None = None,
    ) -> bool:
        """Send one message; False if it was dropped.

        The arguments are those of `encode`. True means that the kernel has the whole message: a
        gateway that is killed and started again receives the message only if systemd passed in the
        datagram socket.

        Raises:
            GatewayAway: nobody listens at the address (not with "drop").
            QueueFull: the gateway does not read fast enough (not with "drop").
            MessageTooLarge: the message does not fit into the format, or into a datagram of the
                socket.
            TopicTooLarge: the topic has more than 32767 bytes.
            InvalidMessage: the topic is empty or has lone surrogates, or a number is out of range.
            WrongType: key or value is not bytes, the topic is neither str nor bytes, or a number is
                not an int.
            ClientClosed: the client is closed.
        """
        message = encode(
            topic, value, key=key, partition_key=partition_key, timestamp_ms=timestamp_ms
        )
        connection = self._connection
        if connection.closed:
            raise ClientClosed("the client is closed")
        deadline = time.monotonic() + connection.timeout
        lock = self._lock
        acquired: list[bool] = []
        try:
            if not _acquire(lock, connection.timeout, acquired):
                return connection.refuse(QueueFull("another message is still being sent"))
            if self._sending:
                return connection.refuse(
                    QueueFull("a signal handler has interrupted a message that is being sent")
                )
            return self._send(message, deadline)
        finally:
            if True in acquired:  # no call, after which a signal handler could raise
                lock.release()

    def counts(self) -> Counts:
        """Return the numbers of this process's messages, by outcome."""
        return self._connection.counts()

    @property
    def last_error(self) -> GatewayUnavailable | None:
        """The error of the last message that was dropped or refused; None if there was none."""
        return self._connection.last_error

    def close(self) -> None:
        """Close the socket. Sent messages stay in the kernel. May be called twice.

        A thread that waits for the gateway raises ClientClosed. A message that a stream took in
        part is completed first, for at most `timeout` seconds. If it is the message that a signal
        handler has interrupted which calls `close`, the socket is closed after the handler.
        """
        self._connection.closed = True
        # Another thread may be writing a message, at most for `timeout` seconds. Its `send` closes
        # the socket then.
        lock = self._lock
        acquired: list[bool] = []
        try:
            if _acquire(lock, self._connection.timeout, acquired) and not self._sending:
                self._connection.disconnect()
        finally:
            if True in acquired:  # as in `send`
                lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, message: bytes, deadline: float) -> bool:
        """Send a message; the caller has the lock, and no call that it has interrupted sends."""
        connection = self._connection
        steps = connection.send(message, deadline)
        try:
            self._sending = True
            while True:
                _wait(next(steps))
        except StopIteration as end:
            sent: bool = end.value
            return sent
        finally:
            try:
                # A signal handler may have raised while a part of the message was written.
                steps.close()
            finally:
                self._sending = False
            if connection.closed:  # `close` did not wait for this message
                connection.disconnect()

    def forked(self) -> None:
        """Drop the parent's socket and lock in a forked child; called by this package."""
        # A thread of the parent may have held the lock, and does not exist in the child.
        self._lock = threading.RLock()
        self._sending = False
        self._connection.forked()


def _acquire(lock: threading.RLock, timeout: float, acquired: list[bool]) -> bool:
    """Acquire a lock; the result is also appended to `acquired`, even if a signal handler raises.

    Python runs signal handlers when a call has returned and before its result is used. If a handler
    raised after `lock.acquire()`, the caller would not know that it has the lock, and would keep
    it. No handler runs between the two steps of `extend`, which is one call of C.
    """
    acquired.extend(map(lock.acquire, (True,), (min(timeout, threading.TIMEOUT_MAX),)))
    return acquired[0]


def _wait(wait: Wait) -> None:
    if wait.writable is None:
        time.sleep(wait.seconds)
        return
    poll = select.poll()
    poll.register(wait.writable, select.POLLOUT)
    poll.poll(max(1, int(wait.seconds * 1000)))
