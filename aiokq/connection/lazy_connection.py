"""LazyConnection: a connection to a node that is opened on first use and reopened when lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aiokq.core.errors import Closed, KafkaError, copy_error

if TYPE_CHECKING:
    from aiokq.connection.connection import Connection
    from aiokq.connection.node import Node
    from aiokq.wire import Request, Response

__all__ = ["DedicatedConnection", "LazyConnection"]

R = TypeVar("R", bound="Response")


class LazyConnection:
    """A connection to a node that is opened on first use, and again after it is lost.

    Args:
        node: the node to connect to.
        name: purpose of the connection, for logs and task names.
    """

    def __init__(self, node: Node, name: str) -> None:
        self.name = name
        self.node = node
        self._connection: Connection | None = None
        self._attempt: asyncio.Future[Connection] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def current(self) -> Connection | None:
        """The open connection, or `None`."""
        connection = self._connection
        if connection is None or connection.closed:
            return None
        return connection

    @property
    def connecting(self) -> bool:
        """Whether an attempt is in progress or waiting for the end of a backoff."""
        return self._attempt is not None

    async def get(self) -> Connection:
        """Return the open connection; if there is none, open one after the node's backoff.

        If the open connection is retiring, the call waits until it is closed. Cancelling one caller
        does not cancel the attempt for other callers.

        Raises:
            ConnectionLost: this attempt failed; the next `get` starts another attempt.
            AuthenticationFailed, UnsupportedVersion, ProtocolError, BrokerError: the broker cannot
                be used with this configuration; raised without an attempt while the node backs off
                from such an error.
            Closed: the node or this connection was closed.
        """
        while True:
            connection = self.current
            if connection is None:
                break
            if not connection.retiring:
                return connection
            # Wait for the requests in flight: two open connections would not preserve the order.
            await connection.wait_closed()
        attempt = self._attempt
        if attempt is None:
            attempt = self._begin()
        try:
            # Cancelling a caller ends its wait, not the attempt.
            return await asyncio.shield(attempt)
        except KafkaError as error:
            raise copy_error(error) from error.__cause__

    def shut(self, reason: str) -> None:
        """Start to close the connection or cancel the attempt, without waiting."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.shut(reason)

    async def close(self, reason: str = "closed by this client") -> None:
        """Close the connection or cancel the attempt. May be called twice."""
        self.shut(reason)
        if self._connection is not None:
            await self._connection.close(reason)

    def reset(self, reason: str) -> None:
        """Close the connection, because the node has moved; `get` then opens another connection."""
        if self._connection is not None:
            self._connection.shut(reason)
        # The node restarts an attempt that is in progress.

    def _begin(self) -> asyncio.Future[Connection]:
        if self._closed:
            raise self._closed_error()
        refused = self.node.refusal()
        if refused is not None:
            raise refused
        attempt: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._attempt = attempt
        try:
            self._task = self.node.supervisor.spawn(
                self._connect(attempt), name=f"connect to {self.node.name} for {self.name}"
            )
        except Closed:
            self._attempt = None
            raise
        self._task.add_done_callback(lambda _: self._abandon(attempt))
        return attempt

    async def _connect(self, attempt: asyncio.Future[Connection]) -> None:
        try:
            connection = await self.node.connect(self.name)
        except KafkaError as error:
            self._attempt = None
            self._fail(attempt, error)
            return
        self._connection = connection
        self._attempt = None
        attempt.set_result(connection)

    def _abandon(self, attempt: asyncio.Future[Connection]) -> None:
        """Fail an attempt whose task ended without a result, by cancellation or a bug."""
        self._task = None
        if self._attempt is attempt:
            self._attempt = None
        if not attempt.done():
            self._fail(attempt, self._closed_error())

    @staticmethod
    def _fail(attempt: asyncio.Future[Connection], error: KafkaError) -> None:
        attempt.set_exception(error)
        attempt.exception()  # prevents asyncio's warning if all waiters are cancelled

    def _closed_error(self) -> Closed:
        return Closed(f"connections to node {self.node.name} are closed")


class DedicatedConnection(LazyConnection):
    """A connection that only its owner uses, for example for the fetches of a consumer.

    The connection shares only the backoff and the state of the node with other connections.
    Therefore a blocked request on this connection delays no request of another owner.
    """

    async def request(self, message: Request[R], *, timeout: float | None = None) -> R:
        """Send a request on this connection and wait for the response.

        Raises:
            KafkaError: an error of `get` or of `Connection.request`.
        """
        connection = await self.get()
        await self.node.ready()
        return await connection.request(message, timeout=timeout)

    async def close(self, reason: str = "closed by this client") -> None:
        """Close the connection and remove it from the node. May be called twice."""
        self.node.release(self)
        await super().close(reason)
