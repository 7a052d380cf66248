"""CoordinatorConnection: a member's own connection to the coordinator of its group.

It is not shared, because a broker answers the requests of a connection in order, and the response
to a join waits for the other members of the group.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokq.cluster.targets import CoordinatorKind
from aiokq.core.errors import Closed, RequestTimeout

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.connection.lazy_connection import DedicatedConnection
    from aiokq.group.actions import Ask
    from aiokq.wire.struct import Response

__all__ = ["CoordinatorConnection"]


class CoordinatorConnection:
    """Finds the group's coordinator, and sends it the requests of a member."""

    def __init__(self, engine: ClusterEngine, group_id: str) -> None:
        self._engine = engine
        self._group_id = group_id
        self._node_id: int | None = None
        self._connection: DedicatedConnection | None = None
        self._closed = False

    async def ask(self, ask: Ask) -> Response:
        """Send a request and wait for its response; the timeout includes finding the coordinator.

        Raises:
            RequestTimeout: no coordinator was found in time, or it did not respond in time.
            ConnectionLost: connecting failed, or the connection ended before the response.
            FieldNotSupported, UnsupportedVersion: the broker is too old for the request.
            BrokerError: the broker refuses to name a coordinator.
            Closed: this connection was closed.
        """
        limit = asyncio.timeout(ask.timeout)
        try:
            async with limit:
                dedicated = await self._dedicated(ask.timeout)
                connection = await dedicated.get()
                await dedicated.node.ready()
                version = connection.version_for(ask.request_class)
                return await connection.request(
                    ask.make(version), version=version, timeout=ask.timeout
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RequestTimeout(
                f"the coordinator of group {self._group_id!r} did not respond within "
                f"{ask.timeout:.3g} s",
                api=ask.request_class.NAME,
            ) from error

    async def drop(self) -> None:
        """Close the connection, and discard requests in flight."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        """Close for good, so that a pending lookup of the coordinator does not connect."""
        self._closed = True
        await self.drop()

    def relocate(self) -> None:
        """Look up the coordinator before the next request."""
        self._engine.coordinator_failed(CoordinatorKind.GROUP, self._group_id)

    async def _dedicated(self, timeout: float) -> DedicatedConnection:
        engine = self._engine
        node_id = await engine.coordinator(CoordinatorKind.GROUP, self._group_id, timeout=timeout)
        if self._closed:
            raise Closed(f"the member of group {self._group_id!r} is closed")
        connection = self._connection
        if connection is None or node_id != self._node_id:
            # The new connection is set before the old connection is closed, so that concurrent
            # calls use the new connection.
            old, self._node_id = connection, node_id
            connection = engine.node(node_id).dedicated(f"group {self._group_id}")
            self._connection = connection
            if old is not None:
                await old.close()
        return connection
