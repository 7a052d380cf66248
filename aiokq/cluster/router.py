"""`Router`, which sends a request to the node of its target and returns the response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from aiokq.cluster.metadata import ClusterMetadata
from aiokq.cluster.targets import Coordinator, Leader, Role, Target
from aiokq.connection.node import Node, Purpose
from aiokq.core.error_base import KafkaError
from aiokq.core.errors import ConnectionLost, LeaderNotAvailable, RequestTimeout
from aiokq.wire import Request, Response

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.connection.connection import Connection

__all__ = ["Router"]

R = TypeVar("R", bound=Response)


class Router:
    """Sends requests to the nodes of targets; waits for metadata if a node is not known."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine

    async def send(self, message: Request[R], target: int | Target, *, timeout: float) -> R:
        """Send a request in the newest version that has all fields that the request sets."""

        def prepare(connection: Connection) -> tuple[Request[R], int]:
            complete = connection.completed(message)
            return complete, connection.version_carrying(complete)

        return await self._route(prepare, type(message), target, timeout)

    async def request(
        self,
        make: Callable[[int], Request[R]],
        request_class: type[Request[R]],
        target: int | Target,
        *,
        timeout: float,
        newest: int | None = None,
        at_once: bool = False,
    ) -> R:
        """Send the request that ``make`` returns for the negotiated version.

        See `ClusterEngine.request`.

        Args:
            newest: upper limit of the version.
            at_once: whether the request is written now if it can be sent without waiting; if not,
                requests of one iteration of the loop are written together.
        """

        def prepare(connection: Connection) -> tuple[Request[R], int]:
            version = connection.version_for(request_class)
            if newest is not None:
                version = min(version, newest)
            return connection.completed(make(version)), version

        return await self._route(prepare, request_class, target, timeout, at_once=at_once)

    async def _route(
        self,
        prepare: Callable[[Connection], tuple[Request[R], int]],
        request_class: type[Request[R]],
        target: int | Target,
        timeout: float,
        *,
        at_once: bool = False,
    ) -> R:
        if isinstance(target, Coordinator) and timeout > self._engine.settings.request_timeout:
            answer = self._send_now(prepare, target, at_once)
            if answer is not None:
                return await answer
        limit = asyncio.timeout(timeout)
        last_error: KafkaError | None = None
        try:
            async with limit:
                backoff = self._engine.new_backoff()
                while True:
                    try:
                        node = await self.resolve(target, timeout=timeout)
                        connection = await node.connection(Purpose.CONTROL)
                        await node.ready()
                        message, version = prepare(connection)
                        remaining = timeout
                        if (when := limit.when()) is not None:
                            remaining = when - asyncio.get_running_loop().time()
                        answer = connection.send(
                            message,
                            version=version,
                            timeout=max(0.0, min(remaining, self._engine.settings.request_timeout)),
                        )
                    except KafkaError as error:
                        # Nothing was sent yet, so a retry on another node is safe for any request.
                        if not error.retriable or isinstance(target, int):
                            raise
                        last_error = error
                        self._unreachable(target)
                        self._engine.counters.retries[request_class.NAME] += 1
                        await asyncio.sleep(backoff.next())
                        continue
                    return await answer
        except TimeoutError as error:
            if not limit.expired():
                raise
            if isinstance(target, Leader):
                topic = target.topic_partition.topic
                if topic not in self._engine.metadata.topics:
                    raise self._engine.topics.error(topic, timeout) from error
            cause = last_error or self._engine.last_error
            raise RequestTimeout(
                f"no response to {request_class.NAME} within {timeout:.3g} s"
                + (f": {cause}" if cause is not None else ""),
                api=request_class.NAME,
            ) from (cause or error)

    def _send_now(
        self,
        prepare: Callable[[Connection], tuple[Request[R], int]],
        target: Coordinator,
        at_once: bool,
    ) -> asyncio.Future[R] | None:
        """Send a request to a coordinator if that is possible without waiting.

        Only the timeout of the connection applies, which is cheaper than `asyncio.timeout`. When
        the timeout expires, the connection is closed, so the timeout cannot be shortened for one
        request.

        Returns:
            The future of the response; None if nothing was sent.
        """
        engine = self._engine
        engine.bind()
        node_id = engine.coordinators.known(target.kind, target.key)
        if node_id is None:
            return None
        try:
            node = engine.node(node_id)
            connection = node.connected(Purpose.CONTROL)
            if connection is None or node.is_throttling:
                return None
            message, version = prepare(connection)
            return connection.send(message, version=version, at_once=at_once)
        except KafkaError as error:
            if error.retriable:
                return None
            raise

    async def resolve(self, target: int | Target, *, timeout: float) -> Node:
        """Return the current node of a target.

        Raises:
            ConnectionLost: the cluster does not list the node id, or has no controller.
            LeaderNotAvailable: the partition has no leader.
            UnknownTopicOrPartition: the topic does not exist.
            RequestTimeout: no metadata or no coordinator was found within the timeout.
            KafkaError: the brokers refused the lookup of the topic or coordinator.
        """
        engine = self._engine
        if isinstance(target, Coordinator):
            node_id = await engine.coordinator(target.kind, target.key, timeout=timeout)
            return engine.node(node_id)
        if isinstance(target, Leader):
            await engine.topic(target.topic_partition.topic, timeout=timeout, create=False)
            node = engine.leader_node(target.topic_partition)
            if node is None:
                engine.refresher.soon([target.topic_partition.topic])
                raise LeaderNotAvailable(topic_partition=target.topic_partition)
            return node
        if not engine.metadata.brokers:
            await engine.refresh()
        if isinstance(target, int):
            if target not in engine.metadata.brokers:
                await engine.refresh()
            return engine.node(target)
        if target is Role.CONTROLLER:
            return await self._controller()
        return engine.any_node()

    async def _controller(self) -> Node:
        metadata: ClusterMetadata = self._engine.metadata
        if metadata.controller_id not in metadata.brokers:
            await self._engine.refresh()
            metadata = self._engine.metadata
            if metadata.controller_id not in metadata.brokers:
                raise ConnectionLost(
                    "the cluster currently has no controller", may_have_been_written=False
                )
        return self._engine.node(metadata.controller_id)

    def _unreachable(self, target: int | Target) -> None:
        engine = self._engine
        if isinstance(target, Coordinator):
            engine.coordinator_failed(target.kind, target.key)
        elif isinstance(target, Leader):
            engine.refresher.soon([target.topic_partition.topic])
        else:
            engine.refresher.soon(())
