"""Owns observable state: the latest value per key, told synchronously to who wants to know.

Rules, each with its test in tests/unit/core/test_observable_map.py and tests/property/core:
subscribers get the latest value of every key first; a value equal to the latest is
suppressed; what is emitted while subscribers are being called waits until they all were
(run to completion); a subscriber neither awaits nor raises: what it raises is logged and
the others are called all the same.
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
    """One subscriber; made by ObservableMap.subscribe()."""

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
        """Not called again, not even for what is queued. Harmless twice and in a callback."""
        if self._source is not None:
            self._source._subscriptions.pop(self, None)
            self._source = None

    def _deliver(self, key: K, value: V) -> None:
        try:
            self._callback(key, value)
        except Exception:
            logger.exception("signal subscriber failed: callback=%r key=%r", self._callback, key)


class ObservableMap(Generic[K, V]):
    """Emits on the loop that owns the state, after the state was changed.

    Values are compared with `==`; use immutable ones.
    """

    __slots__ = ("_dispatching", "_emitted", "_failure", "_latest", "_queue", "_subscriptions")

    def __init__(self) -> None:
        self._latest: dict[K, V] = {}
        # A dict for its order, and because a set would lose the order of subscription.
        self._subscriptions: dict[Subscription[K, V], None] = {}
        self._queue: deque[tuple[int, K, V]] = deque()
        self._emitted = 0
        self._dispatching = False
        self._failure: BaseException | None = None

    def emit(self, key: K, value: V) -> bool:
        """Sets the latest value of `key` and tells the subscribers.

        Returns:
            False if that is its latest value already: nobody is told.
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
        """Calls `callback(key, value)` for what is emitted from now on.

        Args:
            callback: must not block; what it raises is logged.
            replay: call it now, once per key, with the latest values.
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
        """The latest value, None if there is none."""
        return self._latest.get(key)

    def snapshot(self) -> dict[K, V]:
        """The latest value of every key: a copy."""
        return dict(self._latest)

    def forget(self, key: K) -> None:
        """Drops a key: late subscribers do not hear of it, an equal value is news again."""
        self._latest.pop(key, None)

    async def wait_for(self, predicate: Callable[[K, V], bool]) -> tuple[K, V]:
        """Waits until `predicate(key, value)` is true of a latest value or an emitted one.

        Cancelling it leaves nothing behind. What the predicate raises is raised here.

        Raises:
            the error given to close(), as a copy of the caller's own.
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
            except Exception as error:  # noqa: BLE001  it is the waiter's, and goes to the waiter
                found.set_exception(error)

        waiter = _Waiter(self, check, self._emitted, found)
        self._subscriptions[waiter] = None
        try:
            return await found
        finally:
            waiter.close()

    def close(self, error: BaseException) -> None:
        """Ends every wait_for() with a copy of `error`, and every later one that has to wait.

        For the owner that goes away: nothing will be emitted any more.
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
                    # Who subscribed after this was emitted has had it as replay; who was
                    # closed by a callback of this very round is not called any more.
                    if subscription._seen < number and not subscription.closed:
                        subscription._deliver(key, value)
        finally:
            self._dispatching = False


class _Waiter(Subscription[K, V]):
    """The subscription of one wait_for()."""

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
