"""`LazyConnection`, a connection to a node that is opened on first use and reopened when lost."""

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
    """A connection to a node that is opened when somebody asks for it, and again when it is gone.

    Args:
        node: where to.
        name: what for, in logs and task names.
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
        """The open connection; `None` if there is none now."""
        connection = self._connection
        if connection is None or connection.closed:
            return None
        return connection

    @property
    def connecting(self) -> bool:
        """Whether an attempt is under way, or waiting for its time."""
        return self._attempt is not None

    async def get(self) -> Connection:
        """The open connection; opens one if there is none, waiting out the node's backoff.

        A cancelled wait does not cancel the attempt for the others.

        Raises:
            ConnectionLost: this attempt failed; the next call begins another one.
            AuthenticationFailed, UnsupportedVersion, ProtocolError, BrokerError: as
                `open_connection`; while the node backs off from such an error, at once.
            Closed: the node, or this place on it, was closed.
        """
        while True:
            connection = self.current
            if connection is None:
                break
            if not connection.retiring:
                return connection
            # What was sent on it goes first: two connections would not keep the order.
            await connection.wait_closed()
        attempt = self._attempt
        if attempt is None:
            attempt = self._begin()
        try:
            # A caller that is cancelled ends its wait, not the attempt.
            return await asyncio.shield(attempt)
        except KafkaError as error:
            raise copy_error(error) from error.__cause__

    def shut(self, reason: str) -> None:
        """Begin to close, without waiting for the end of it."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.shut(reason)

    async def close(self, reason: str = "closed by this client") -> None:
        """Close the connection, or give up the attempt. Harmless twice."""
        self.shut(reason)
        if self._connection is not None:
            await self._connection.close(reason)

    def reset(self, reason: str) -> None:
        """Close what there is; the next caller opens anew. For a node that moved."""
        if self._connection is not None:
            self._connection.shut(reason)
        # An attempt under way is begun again by the node.

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
        """The task ended; if it did not decide the attempt, it was cancelled, or has a bug."""
        self._task = None
        if self._attempt is attempt:
            self._attempt = None
        if not attempt.done():
            self._fail(attempt, self._closed_error())

    @staticmethod
    def _fail(attempt: asyncio.Future[Connection], error: KafkaError) -> None:
        attempt.set_exception(error)
        attempt.exception()  # those who waited may all have been cancelled

    def _closed_error(self) -> Closed:
        return Closed(f"connections to node {self.node.name} are closed")


class DedicatedConnection(LazyConnection):
    """A connection of one owner, such as a consumer's fetches or a group member.

    It shares the node's backoff and state, and nothing else: what blocks on it blocks its owner.
    """

    async def request(self, message: Request[R], *, timeout: float | None = None) -> R:
        """Send a request on it and wait for the response.

        Raises:
            KafkaError: as `get` and `Connection.request`.
        """
        connection = await self.get()
        await self.node.ready()
        return await connection.request(message, timeout=timeout)

    async def close(self, reason: str = "closed by this client") -> None:
        """Close it; the node forgets it. Harmless twice."""
        self.node.release(self)
        await super().close(reason)
