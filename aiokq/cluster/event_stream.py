"""`EventStream`, an async iterator over a cluster's events with a bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiokq.cluster.events import Event, EventKey
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.core import limits
from aiokq.core.errors import Closed
from aiokq.core.observable_map import ObservableMap

__all__ = ["EventStream"]


class EventStream:
    """Async iterator over the latest event of each key and then over new events, in order.

    The stream is subscribed when it is created. It queues at most ``limit`` events. When the queue
    is full, the oldest event is dropped and counted in ``dropped``. When the stream or its cluster
    is closed, the iteration ends after the queued events. If several tasks iterate one stream, each
    event is delivered to only one of the tasks.

    Raises:
        ValueError, TypeError: the limit is not an integer of at least 1.
    """

    def __init__(
        self,
        changes: ObservableMap[EventKey, Event],
        *,
        limit: int = 10_000,
        on_drop: Callable[[], None] | None = None,
        binding: LoopBinding | None = None,
    ) -> None:
        limits.count(limit, "limit")
        self.dropped = 0
        """Number of events dropped because the queue was full."""
        self._limit = limit
        self._events: deque[Event] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._on_drop = on_drop
        self._binding = binding
        self._subscription = changes.subscribe(self._put)

    @property
    def closed(self) -> bool:
        """Whether no more events will be queued."""
        return self._closed

    def __len__(self) -> int:
        """Return the number of queued events."""
        return len(self._events)

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        self._check()
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                # This waiter was woken, but is cancelled. The next waiter gets the event.
                if waiter.done() and not waiter.cancelled() and self._events:
                    self._wake()
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return self._events.popleft()

    def get_nowait(self) -> Event | None:
        """Return the next event; None if no event is queued.

        Raises:
            Closed: the stream has ended, or its cluster is not started.
            WrongLoop: called on another loop, or in another process.
        """
        self._check()
        if self._events:
            return self._events.popleft()
        if self._closed:
            raise Closed("the event stream is closed")
        return None

    def close(self) -> None:
        """End the stream; queued events can still be read. May be called more than once.

        In a forked child, the call does nothing.

        Raises:
            WrongLoop: called on another loop.
        """
        if self._binding is not None:
            if self._binding.forked:
                return
            self._binding.check_bound()
        if self._closed:
            return
        self._closed = True
        self._subscription.close()
        while self._waiters:
            self._wake()

    async def aclose(self) -> None:
        """Call `close`; for ``contextlib.aclosing``."""
        self.close()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._binding is not None and not self._closed:
            self._binding.check()
        elif self._binding is not None:
            self._binding.check_bound()

    def _put(self, key: EventKey, event: Event) -> None:
        if len(self._events) >= self._limit:
            self._events.popleft()
            self.dropped += 1
            if self._on_drop is not None:
                self._on_drop()
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
