"""AsyncGatewayClient: the client of the gateway for asyncio."""

from __future__ import annotations

import asyncio
import os
import time
from types import TracebackType
from typing import Self

from aiokq.gateway.client.address import Address
from aiokq.gateway.client.connection import Connection, Policy, Wait, watch_forks
from aiokq.gateway.client.counts import Counts
from aiokq.gateway.client.errors import ClientClosed, GatewayUnavailable, QueueFull
from aiokq.gateway.client.message import BytesLike, encode

__all__ = ["AsyncGatewayClient"]


class AsyncGatewayClient:
    """Writes messages to the gateway's socket, and never blocks the event loop.

    Tasks may share a client: messages never mix, and are sent in the order of the calls. A forked
    child opens a socket of its own, and its counts begin at 0. The arguments are those of
    GatewayClient.

    Raises:
        ValueError: not exactly one address is given, or an argument is out of range.
        TypeError: the port is not an int.
        PathTooLong: a path has more than 107 bytes.

    Example:
        async with AsyncGatewayClient(unix_datagram="/run/aiokq/gateway.sock") as client:
            await client.send("orders", b"value", key=b"k")
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
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        watch_forks(self)

    async def send(
        self,
        topic: str | bytes,
        value: BytesLike,
        *,
        key: BytesLike = b"",
        partition_key: int | None = None,
        timestamp_ms: int | None = None,
    ) -> bool:
        """Send one message; False if it was dropped.

        The arguments are those of `encode`. A `CancelledError` raised here means that the message
        was not sent. If a stream had taken a part of the message, the connection is closed, and the
        gateway discards the part.

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
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A lock belongs to one loop, and each call of `asyncio.run` makes a new loop.
            self._loop, self._lock = loop, asyncio.Lock()
        lock = self._lock
        deadline = time.monotonic() + connection.timeout
        try:
            acquired = await self._acquire(lock)
        except asyncio.CancelledError:
            connection.cancelled()
            raise
        if not acquired:
            return connection.refuse(QueueFull("another message is still being sent"))
        try:
            steps = connection.send(message, deadline)
            try:
                while True:
                    await _wait(loop, next(steps))
            except StopIteration as end:
                sent: bool = end.value
                return sent
            finally:
                steps.close()  # after a cancellation: abandons a message that was begun
        finally:
            lock.release()

    def counts(self) -> Counts:
        """Return the numbers of this process's messages, by outcome."""
        return self._connection.counts()

    @property
    def last_error(self) -> GatewayUnavailable | None:
        """The error of the last message that was dropped or refused; None if there was none."""
        return self._connection.last_error

    async def close(self) -> None:
        """Close the socket. Sent messages stay in the kernel. May be called twice.

        A task that waits for the gateway raises ClientClosed. A message that a stream took in part
        is completed first, for at most `timeout` seconds.
        """
        self._connection.closed = True
        if self._loop is not asyncio.get_running_loop():
            self._connection.disconnect()
            return
        lock = self._lock
        if await self._acquire(lock):
            try:
                self._connection.disconnect()
            finally:
                lock.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _acquire(self, lock: asyncio.Lock) -> bool:
        if not lock.locked():
            return await lock.acquire()
        try:
            async with asyncio.timeout(self._connection.timeout):
                return await lock.acquire()
        except TimeoutError:
            return False

    def forked(self) -> None:
        """Drop the parent's socket and loop in a forked child; called by this package."""
        self._loop = None
        self._connection.forked()


async def _wait(loop: asyncio.AbstractEventLoop, wait: Wait) -> None:
    if wait.writable is None:
        await asyncio.sleep(wait.seconds)
        return
    writable = loop.create_future()
    number = wait.writable.fileno()
    loop.add_writer(number, _done, writable)
    try:
        async with asyncio.timeout(wait.seconds):
            await writable
    except TimeoutError:
        pass
    finally:
        loop.remove_writer(number)


def _done(writable: asyncio.Future[None]) -> None:
    if not writable.done():
        writable.set_result(None)
