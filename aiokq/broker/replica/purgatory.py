"""The fetches of one node that wait for records, up to a deadline.

The purgatory counts the bytes that the high watermarks pass. When a fetch is woken, the fetch
handler reads the logs again.

Source: Kafka ``DelayedOperationPurgatory.java``, ``DelayedFetch.scala``.
Tests: ``tests/unit/broker/replica/test_purgatory.py``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext

__all__ = ["FetchPurgatory"]


class _DelayedFetch:
    """One waiting fetch.

    Attributes:
        lacking: bytes that are still missing to reach ``min_bytes``.
        room: bytes that each partition may still add to the response.
    """

    __slots__ = ("future", "lacking", "room")

    def __init__(
        self, future: asyncio.Future[bool], lacking: int, room: dict[TopicPartition, int]
    ) -> None:
        self.future = future
        self.lacking = lacking
        self.room = room

    def add(self, partition: TopicPartition, size: int) -> None:
        """Count new bytes of a partition towards ``min_bytes``, at most those that have room."""
        size = min(size, self.room[partition])
        self.room[partition] -= size
        self.lacking -= size
        if self.lacking <= 0:
            self.wake(True)

    def wake(self, ready: bool) -> None:
        if not self.future.done():
            self.future.set_result(ready)


class FetchPurgatory:
    """The delayed fetches of a node, by the partitions that they watch."""

    def __init__(self) -> None:
        self._watchers: dict[TopicPartition, set[_DelayedFetch]] = {}
        self._by_connection: dict[RequestContext, _DelayedFetch | None] = {}
        self._delayed = 0
        self._closed = False

    def __len__(self) -> int:
        return self._delayed

    async def wait(
        self,
        connection: RequestContext,
        lacking: int,
        room: Mapping[TopicPartition, int],
        timeout: float,
    ) -> bool:
        """Wait until high watermarks have passed `lacking` more bytes, or a leadership changes.

        Args:
            connection: the client's connection; the wait ends when it is closed.
            lacking: bytes missing to reach the fetch's `min_bytes`.
            room: the partitions to watch, each with the maximum number of bytes that it may still
                add to the response.
            timeout: the maximum duration of the wait, in seconds.

        Returns:
            True if enough bytes were counted, or the leadership of a watched partition has changed;
            False if the timeout passed, the client disconnected or the node closes.
        """
        if self._closed:
            return False
        loop = asyncio.get_running_loop()
        delayed = _DelayedFetch(loop.create_future(), lacking, dict(room))
        deadline = loop.call_later(timeout, delayed.wake, False)
        self._delayed += 1
        known = connection in self._by_connection
        self._by_connection[connection] = delayed
        if not known:
            connection.on_disconnect(functools.partial(self._disconnected, connection))
        for partition in delayed.room:
            self._watchers.setdefault(partition, set()).add(delayed)
        try:
            return await delayed.future
        finally:
            deadline.cancel()
            self._delayed -= 1
            if connection in self._by_connection:
                self._by_connection[connection] = None
            for partition in delayed.room:
                watchers = self._watchers[partition]
                watchers.discard(delayed)
                if not watchers:
                    del self._watchers[partition]

    def appended(self, partition: TopicPartition, size: int) -> None:
        """Count `size` bytes of a partition that consumers can read from now on."""
        watchers = self._watchers.get(partition)
        if watchers:
            for delayed in watchers:
                delayed.add(partition, size)

    def wake(self, partition: TopicPartition) -> None:
        """Wake the fetches that watch a partition, because its leadership has changed."""
        for delayed in self._watchers.get(partition, ()):
            delayed.wake(True)

    def _disconnected(self, connection: RequestContext) -> None:
        """End the wait of a disconnected client before the timeout."""
        delayed = self._by_connection.pop(connection, None)
        if delayed is not None:
            delayed.wake(False)

    def close(self) -> None:
        """End all waits; each fetch then returns the available bytes. Later fetches do not wait."""
        self._closed = True
        for watchers in self._watchers.values():
            for delayed in watchers:
                delayed.wake(False)
