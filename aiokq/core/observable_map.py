"""ObservableMap: the latest value of each key, reported synchronously to subscribers.

Rules, each tested in tests/unit/core/test_observable_map.py and tests/property/core:

- A new subscriber first receives the latest value of every key, unless `replay` is False.
- A value equal to the latest value of its key is not reported.
- Values emitted while subscribers are being called are queued until all have been called (run to
  completion).
- An exception of a subscriber is logged, and the other subscribers are still called.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from aiokq.core.error_base import copy_error

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

logger = logging.getLogger("aiokq.core")


class Subscription(Generic[K, V]):
    """A subscriber of an ObservableMap; created by `subscribe()`."""

    __slots__ = ("_callback", "_seen", "_source")

    def __init__(
        self, source: ObservableMap[K, V], callback: Callable[[K, V], object], seen: int
    ) -> None:
        self._source: ObservableMap[K, V] | None = source
        self._callback = callback
        self._seen = seen

    @property
    def closed(self) -> bool:
        return self._source is None

    def close(self) -> None:
        """End the subscription; queued values are dropped. May be called twice and in callbacks."""
        if self._source is not None:
            self._source._subscriptions.pop(self, None)
            self._source = None

    def _deliver(self, key: K, value: V) -> None:
        try:
            self._callback(key, value)
        except Exception:
            logger.exception(
                "subscription callback failed: callback=%r key=%r", self._callback, key
            )


class ObservableMap(Generic[K, V]):
    """The latest value of each key.

    Context: the event loop of the object that owns the map. The owner calls `emit` when a value
    changes. Values must be immutable, because a new value is compared with the latest by `==`.
    """

    __slots__ = ("_dispatching", "_emitted", "_failure", "_latest", "_queue", "_subscriptions")

    def __init__(self) -> None:
        self._latest: dict[K, V] = {}
        # A dict, because a set would lose the order of subscription.
        self._subscriptions: dict[Subscription[K, V], None] = {}
        self._queue: deque[tuple[int, K, V]] = deque()
        self._emitted = 0
        self._dispatching = False
        self._failure: BaseException | None = None

    def emit(self, key: K, value: V) -> bool:
        """Set the latest value of `key` and notify the subscribers.

        Returns:
            False if the latest value was equal, so that no subscriber was notified.
        """
        latest = self._latest
        if key in latest and latest[key] == value:
            return False
        latest[key] = value
        self._emitted += 1
        if self._subscriptions:
            self._queue.append((self._emitted, key, value))
            if not self._dispatching:
                self._dispatch()
        return True

    def subscribe(
        self, callback: Callable[[K, V], object], *, replay: bool = True
    ) -> Subscription[K, V]:
        """Call `callback(key, value)` for every value emitted after this call.

        Args:
            callback: must not block; its exceptions are logged.
            replay: whether the callback is first called with the latest value of each key.
        """
        subscription = Subscription(self, callback, self._emitted)
        self._subscriptions[subscription] = None
        if replay and self._latest:
            outermost, self._dispatching = not self._dispatching, True
            try:
                for key, value in list(self._latest.items()):
                    if subscription.closed:
                        break
                    subscription._deliver(key, value)
            finally:
                self._dispatching = not outermost
            if outermost:
                self._dispatch()
        return subscription

    def get(self, key: K) -> V | None:
        """Return the latest value, or None if there is none."""
        return self._latest.get(key)

    def snapshot(self) -> dict[K, V]:
        """Return a copy of the latest values."""
        return dict(self._latest)

    def forget(self, key: K) -> None:
        """Remove a key.

        New subscribers do not receive its value, and the next `emit` of the key notifies
        subscribers even if the value is the same as before.
        """
        self._latest.pop(key, None)

    async def wait_for(self, predicate: Callable[[K, V], bool]) -> tuple[K, V]:
        """Return the first key and value for which `predicate(key, value)` is true.

        The latest value of each key is tested first, then each value that is emitted. Exceptions of
        the predicate are raised.

        Raises:
            BaseException: a copy of the error passed to `close`.
        """
        for key, value in self._latest.items():
            if predicate(key, value):
                return key, value
        if self._failure is not None:
            raise copy_error(self._failure)
        found: asyncio.Future[tuple[K, V]] = asyncio.get_running_loop().create_future()

        def check(key: K, value: V) -> None:
            if found.done():
                return
            try:
                if predicate(key, value):
                    found.set_result((key, value))
            except Exception as error:  # noqa: BLE001  raised by wait_for()
                found.set_exception(error)

        waiter = _Waiter(self, check, self._emitted, found)
        self._subscriptions[waiter] = None
        try:
            return await found
        finally:
            waiter.close()

    def close(self, error: BaseException) -> None:
        """Raise a copy of `error` from every wait_for() that waits, or would have to wait later.

        The owner calls this when it closes, and emits nothing afterwards.
        """
        self._failure = error
        for subscription in list(self._subscriptions):
            if isinstance(subscription, _Waiter):
                subscription.fail(copy_error(error))

    def _dispatch(self) -> None:
        queue = self._queue
        self._dispatching = True
        try:
            while queue:
                number, key, value = queue.popleft()
                for subscription in list(self._subscriptions):
                    # Skip a subscriber that was added after the emit: its replay, if any, included
                    # this value. Also skip a subscription that a callback has just closed.
                    if subscription._seen < number and not subscription.closed:
                        subscription._deliver(key, value)
        finally:
            self._dispatching = False


class _Waiter(Subscription[K, V]):
    """The subscription of one wait_for() call."""

    __slots__ = ("_found",)

    def __init__(
        self,
        source: ObservableMap[K, V],
        callback: Callable[[K, V], object],
        seen: int,
        found: asyncio.Future[tuple[K, V]],
    ) -> None:
        super().__init__(source, callback, seen)
        self._found = found

    def fail(self, error: BaseException) -> None:
        if not self._found.done():
            self._found.set_exception(error)
