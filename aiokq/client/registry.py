"""`Registry`, a read-only view of a cluster as the tree that Kafka kept in ZooKeeper, with watches.

This module sends the requests and detects changes; registry_tree.py builds the nodes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from enum import Enum
from types import TracebackType
from typing import Final, Self

from aiokq.admin.group_listing import list_groups
from aiokq.admin.group_offsets import list_group_offsets
from aiokq.admin.groups import describe_groups
from aiokq.client.registry_tree import (
    RegistryNode,
    group_name,
    group_node,
    metadata_node,
    node_name,
    parse_path,
)
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata import ClusterMetadata
from aiokq.core import limits
from aiokq.core.errors import Closed, GroupIdNotFound, NoNode, RequestTimeout
from aiokq.core.frozen import frozen
from aiokq.core.types import OffsetAndMetadata, TopicPartition

__all__ = ["Registry", "RegistryChange", "RegistryChangeKind", "RegistryWatch"]

GROUP_INTERVAL: Final = 5.0
"""Seconds between two polls of ``/consumers`` or a node below it, if no interval is given."""

TOPICS: Final = ("brokers", "topics")


class RegistryChangeKind(Enum):
    """The kind of a change of a node; short forms of ZooKeeper's event types."""

    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"


@frozen
class RegistryChange:
    """A change of a watched node; ``node`` is its new state, None if it was deleted."""

    path: str
    kind: RegistryChangeKind
    node: RegistryNode | None


class Registry:
    """A read-only tree over a cluster's metadata and groups; the cluster needs no ZooKeeper.

    ========================================  ===================================================
    ``/brokers/ids``                          brokers in the metadata
    ``/brokers/ids/N``                        endpoint of broker N
    ``/brokers/topics``                       topics
    ``/brokers/topics/T``                     replicas of each partition
    ``/brokers/topics/T/partitions/P/state``  leader, epoch and in-sync replicas
    ``/consumers``                            consumer groups
    ``/consumers/G/ids/M``                    the subscription of member M
    ``/consumers/G/offsets/T/P``              the committed offset
    ``/consumers/G/owners/T/P``               the id of the owning member, followed by "-0"
    ========================================  ===================================================

    Contents are as Kafka 0.8 to 3.x wrote them, mostly JSON. Fields that a client cannot know
    (``timestamp``, ``jmx_port``, ``controller_epoch``) are -1. In the id of a group or member,
    ``/`` is written ``%2F`` and ``%`` is written ``%25``. Contents are not cached between calls. A
    call fails after ``timeout`` seconds, by default ``default_api_timeout_ms``.

    Source: the ZooKeeper directories of Kafka's documentation, section 5.6.
    """

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine

    async def get(self, path: str, *, timeout: float | None = None) -> str | None:
        """Return the contents of a node; None if it only has children.

        Raises:
            NoNode: there is no node at this path.
            ValueError: the path is not absolute, or has an empty name.
            RequestTimeout: the cluster did not answer within the timeout.
            BrokerError: the coordinator of a group refused the request.
        """
        return (await self._required(path, timeout)).data

    async def children(self, path: str, *, timeout: float | None = None) -> list[str]:
        """Return the names of a node's children.

        Raises:
            NoNode: there is no node at this path.
            ValueError: the path is not absolute, or has an empty name.
            RequestTimeout: the cluster did not answer within the timeout.
            BrokerError: the coordinator of a group refused the request.
        """
        return list((await self._required(path, timeout)).children)

    async def exists(self, path: str, *, timeout: float | None = None) -> bool:
        """Return whether there is a node at this path.

        Raises:
            ValueError: the path is not absolute, or has an empty name.
            RequestTimeout: the cluster did not answer within the timeout.
            BrokerError: the coordinator of a group refused the request.
        """
        return await self.read(parse_path(path), timeout) is not None

    async def watch(
        self, path: str, *, interval: float | None = None, timeout: float | None = None
    ) -> RegistryWatch:
        """Watch the creation, contents, children and deletion of a node, which need not exist yet.

        ``async with await registry.watch("/brokers/ids") as watch: async for change in watch: ...``

        Changes of brokers and topics are reported when a metadata response contains them. For
        ``/consumers`` and the nodes below it, the coordinators are polled. If a node changes
        several times between two polls, only its last state is reported.

        Args:
            interval: seconds between two polls; default 5 for ``/consumers`` and the nodes below
                it. For other nodes, None means no polling: changes come with the client's own
                metadata requests, at the latest after ``metadata_max_age_ms``.

        Raises:
            ValueError: the path is not absolute or has an empty name; or the interval is not
                above 0.
            RequestTimeout: the cluster did not answer within the timeout.
            BrokerError: the coordinator of a group refused the request.
        """
        limits.optional_seconds(interval, "interval", positive=True)
        limits.optional_seconds(timeout)
        watch = RegistryWatch(self, self._engine, parse_path(path), interval, timeout)
        try:
            await watch.start()
        except BaseException:
            watch.close()
            raise
        return watch

    async def _required(self, path: str, timeout: float | None) -> RegistryNode:
        node = await self.read(parse_path(path), timeout)
        if node is None:
            raise NoNode(f"there is no {path}")
        return node

    async def read(self, names: tuple[str, ...], timeout: float | None) -> RegistryNode | None:
        """Request and return the node; None if it does not exist."""
        limits.optional_seconds(timeout)
        engine = self._engine
        engine.bind()
        total = engine.settings.default_api_timeout if timeout is None else timeout
        limit = asyncio.timeout(total)
        try:
            async with limit:
                if names[:1] == ("consumers",):
                    return await self._read_group(names[1:], total)
                await self._refresh(names)
                return self.look(names, engine.metadata)
        except TimeoutError as error:
            if not limit.expired():
                raise
            cause = engine.last_error
            raise RequestTimeout(
                f"no answer about /{'/'.join(names)} within {total:.3g} s"
                + (f": {cause}" if cause is not None else "")
            ) from (cause or error)

    def look(self, names: tuple[str, ...], metadata: ClusterMetadata) -> RegistryNode | None:
        """Return a node outside ``/consumers`` from `metadata`; None if it does not exist."""
        protocol = self._engine.settings.security_protocol
        return metadata_node(metadata, names, security_protocol=protocol)

    async def _refresh(self, names: tuple[str, ...]) -> None:
        if names == TOPICS:
            self._engine.watch_all()
            try:
                await self._engine.refresh()
            finally:
                self._engine.unwatch_all()
        elif names[:2] == TOPICS:
            await self._engine.refresh([names[2]])
        elif names[:2] == ("brokers", "ids"):
            await self._engine.refresh()

    async def _read_group(self, names: tuple[str, ...], timeout: float) -> RegistryNode | None:
        engine = self._engine
        if not names:
            found = await list_groups(engine, states=(), types=(), timeout=timeout)
            groups = found.raise_for_errors().values()
            ids = [g.group_id for g in groups if g.is_simple or g.protocol_type == "consumer"]
            return RegistryNode("/consumers", None, tuple(sorted(map(node_name, ids))))
        group_id = group_name(names[0])
        described = await describe_groups(
            engine, [group_id], include_authorized_operations=False, timeout=timeout
        )
        if isinstance(described[group_id].error, GroupIdNotFound):
            return None
        group = described.raise_for_errors()[group_id]
        offsets: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if names[1:2] == ("offsets",):
            listed = await list_group_offsets(
                engine, group_id, require_stable=False, timeout=timeout
            )
            offsets = listed.raise_for_errors()[group_id].offsets
        return group_node(names[1:], group, offsets)


class RegistryWatch:
    """An async iterator over the changes of one registry node, until watch or cluster is closed.

    The iterator raises the error of a failed poll. The watch stays active after that: iterate again
    to wait for more changes.

    Attributes:
        node: the last known state of the node; None if there is no such node.
    """

    def __init__(
        self,
        registry: Registry,
        engine: ClusterEngine,
        names: tuple[str, ...],
        interval: float | None,
        timeout: float | None,
    ) -> None:
        self.node: RegistryNode | None = None
        self._registry = registry
        self._engine = engine
        self._names = names
        self._of_group = names[:1] == ("consumers",)
        self._interval = GROUP_INTERVAL if interval is None and self._of_group else interval
        self._timeout = timeout
        self._changes: deque[RegistryChange] = deque()
        self._wake = asyncio.Event()
        self._watched: frozenset[str] = frozenset()
        self._watches_all = False
        self._closed = False

    async def start(self) -> None:
        """Watch the node, and read its first state, with which later states are compared."""
        engine = self._engine
        if not self._of_group:
            if self._names == TOPICS:
                engine.watch_all()
                self._watches_all = True
            elif self._names[:2] == TOPICS:
                engine.watch(self._names[2:3])
                self._watched = frozenset(self._names[2:3])
        engine.store.observers.add(self)
        self.node = await self._registry.read(self._names, self._timeout)
        self._changes.clear()

    @property
    def path(self) -> str:
        """The path of the node."""
        return "/" + "/".join(self._names)

    @property
    def closed(self) -> bool:
        """Whether the watch was closed; queued changes can still be read."""
        return self._closed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RegistryChange:
        self._engine.check_loop()
        while not self._changes:
            if self._closed:
                raise StopAsyncIteration
            if not await self._woken():
                await self._look_again()
        return self._changes.popleft()

    async def aclose(self) -> None:
        """End the watch. May be called more than once; does nothing in a forked child.

        Raises:
            WrongLoop: called on another loop than that of the cluster.
        """
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def _woken(self) -> bool:
        """Wait for a change or the end of the watch; return False when the next poll is due."""
        self._wake.clear()
        try:
            async with asyncio.timeout(self._interval):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _look_again(self) -> None:
        try:
            self._compare(await self._registry.read(self._names, self._timeout))
        except Closed:
            if not self._closed:
                raise

    def metadata_changed(self, metadata: ClusterMetadata) -> None:
        """Compare the node with its state in a newer metadata snapshot; called on the loop."""
        if not self._of_group:
            self._compare(self._registry.look(self._names, metadata))

    def _compare(self, node: RegistryNode | None) -> None:
        before, self.node = self.node, node
        if before == node:
            return
        kinds: list[RegistryChangeKind]
        if before is None:
            kinds = [RegistryChangeKind.CREATED]
        elif node is None:
            kinds = [RegistryChangeKind.DELETED]
        else:
            changed = {
                RegistryChangeKind.DATA: before.data != node.data,
                RegistryChangeKind.CHILDREN: before.children != node.children,
            }
            kinds = [kind for kind, differs in changed.items() if differs]
        self._changes.extend(RegistryChange(self.path, kind, node) for kind in kinds)
        self._wake.set()

    def close(self) -> None:
        """End the watch like `aclose`, but without a coroutine."""
        if self._engine.forked:
            return
        self._engine.check_loop()
        if self._closed:
            return
        self._closed = True
        self._engine.store.observers.discard(self)
        if self._watched:
            self._engine.unwatch(self._watched)
        if self._watches_all:
            self._engine.unwatch_all()
        self._wake.set()
