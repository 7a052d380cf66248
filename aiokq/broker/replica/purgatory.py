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

__all__ = ["FetchPurgatory", "Watch"]


class Watch:
    """The partitions that one fetch watches, and the new bytes counted in them.

    Attributes:
        room: bytes that each partition may still add to the response.
    """

    __slots__ = ("_counted", "_future", "_lacking", "_ready", "room")

    def __init__(self) -> None:
        self.room: dict[TopicPartition, int] = {}
        self._counted = 0
        self._ready: bool | None = None
        self._lacking = 0
        self._future: asyncio.Future[bool] | None = None

    def count(self, partition: TopicPartition, size: int) -> None:
        """Count new bytes of a partition towards ``min_bytes``, at most the partition's `room`."""
        size = min(size, self.room[partition])
        self.room[partition] -= size
        self._counted += size
        if self._future is not None and self._counted >= self._lacking:
            self.wake(True)

    def wake(self, ready: bool) -> None:
        """End the wait in progress; if none is in progress, the next wait ends at once."""
        if self._ready is None:
            self._ready = ready
        if self._future is not None and not self._future.done():
            self._future.set_result(ready)

    def begin(self, lacking: int) -> asyncio.Future[bool]:
        """Begin to wait for `lacking` bytes, including the bytes counted before this call.

        Returns:
            A future with the argument of `wake`; it is done if `wake` was called already.
        """
        future = self._future = asyncio.get_running_loop().create_future()
        self._lacking = lacking
        if self._ready is not None:
            future.set_result(self._ready)
        elif self._counted >= lacking:
            self.wake(True)
        return future


class FetchPurgatory:
    """The delayed fetches of a node, by the partitions that they watch."""

    def __init__(self) -> None:
        self._watchers: dict[TopicPartition, set[Watch]] = {}
        self._by_connection: dict[RequestContext, Watch | None] = {}
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
        watch = Watch()
        for partition, size in room.items():
            self.add(watch, partition, size)
        try:
            return await self.wait_on(connection, watch, lacking, timeout)
        finally:
            self.end(watch)

    def add(self, watch: Watch, partition: TopicPartition, room: int) -> None:
        """Begin to count the new bytes of a partition, for a wait that may begin later.

        A fetch lets other tasks run while it reads its partitions. It adds each partition right
        after its read, so that records appended before the wait are counted.
        """
        watch.room[partition] = room
        self._watchers.setdefault(partition, set()).add(watch)

    def end(self, watch: Watch) -> None:
        """Stop counting bytes for a watch."""
        for partition in watch.room:
            watchers = self._watchers[partition]
            watchers.discard(watch)
            if not watchers:
                del self._watchers[partition]
        watch.room = {}

    async def wait_on(
        self, connection: RequestContext, watch: Watch, lacking: int, timeout: float
    ) -> bool:
        """Wait like `wait`, for the partitions that were added to a watch."""
        if self._closed:
            return False
        loop = asyncio.get_running_loop()
        future = watch.begin(lacking)
        deadline = loop.call_later(timeout, watch.wake, False)
        self._delayed += 1
        known = connection in self._by_connection
        self._by_connection[connection] = watch
        if not known:
            connection.on_disconnect(functools.partial(self._disconnected, connection))
        try:
            return await future
        finally:
            deadline.cancel()
            self._delayed -= 1
            if connection in self._by_connection:
                self._by_connection[connection] = None

    def appended(self, partition: TopicPartition, size: int) -> None:
        """Count `size` bytes that have become readable for consumers in a partition."""
        watchers = self._watchers.get(partition)
        if watchers:
            for watch in watchers:
                watch.count(partition, size)

    def wake(self, partition: TopicPartition) -> None:
        """Wake the fetches that watch a partition, because its leadership has changed."""
        for watch in self._watchers.get(partition, ()):
            watch.wake(True)

    def _disconnected(self, connection: RequestContext) -> None:
        """End the wait of a disconnected client before the timeout."""
        watch = self._by_connection.pop(connection, None)
        if watch is not None:
            watch.wake(False)

    def close(self) -> None:
        """End all waits; each fetch then returns the available bytes. Later fetches do not wait."""
        self._closed = True
        for watchers in self._watchers.values():
            for watch in watchers:
                watch.wake(False)
