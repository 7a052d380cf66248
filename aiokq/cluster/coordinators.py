"""Cache of the coordinators of groups and transactional ids.

The cache is keyed by (kind, key), because the group "a" and the transactional id "a" have different
coordinators. Lookups requested while a FindCoordinator request is in flight are sent together if
the broker accepts several keys in a request (KIP-699).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from aiokq.cluster.metadata import BrokerInfo
from aiokq.cluster.targets import CoordinatorKind
from aiokq.cluster.values import ClusterValues
from aiokq.connection.backoff import Backoff
from aiokq.core.error_base import KafkaError, copy_error
from aiokq.core.errors import CoordinatorNotAvailable, RequestTimeout, error_for
from aiokq.wire.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["Coordinators"]

logger = logging.getLogger("aiokq.cluster")

BATCHED_SINCE = 4
"""FindCoordinator version from which a request may have several keys (KIP-699)."""

Key: TypeAlias = tuple[CoordinatorKind, str]
FindCoordinator: TypeAlias = Callable[
    [Callable[[int], FindCoordinatorRequest]], Awaitable[FindCoordinatorResponse]
]
"""Sends a FindCoordinator request to one of the brokers.

The argument makes the request for the version that was negotiated with that broker.
"""


class Coordinators:
    """The coordinators of one cluster.

    Args:
        find: sends a FindCoordinator request to a broker to which a connection can be opened.
        learned: called with the broker of each coordinator found.
        trouble: returns the error of the latest metadata request, to explain a timeout; None if
            the metadata request succeeded.
        spawn: starts a task.
    """

    def __init__(
        self,
        settings: ClusterValues,
        *,
        find: FindCoordinator,
        learned: Callable[[tuple[BrokerInfo, ...]], None],
        trouble: Callable[[], KafkaError | None],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        random: random.Random,
    ) -> None:
        self._settings = settings
        self._find = find
        self._learned = learned
        self._trouble = trouble
        self._spawn = spawn
        self._random = random
        self._known: dict[Key, int] = {}
        self._waiting: dict[Key, list[asyncio.Future[int]]] = {}
        self._looking: set[CoordinatorKind] = set()
        self._last_error: dict[Key, KafkaError] = {}

    def known(self, kind: CoordinatorKind, key: str) -> int | None:
        """Return the node id of the coordinator; None if it is not cached."""
        return self._known.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str, node_id: int | None = None) -> None:
        """Forget a coordinator that could not be reached, or is no longer the coordinator.

        Args:
            node_id: id of the failed node; a cached coordinator on another node is kept. None to
                forget the coordinator on any node.
        """
        if node_id is None or self._known.get((kind, key)) == node_id:
            self._known.pop((kind, key), None)

    def forget_node(self, node_id: int) -> None:
        """Forget all coordinators on a node that was lost."""
        self._known = {key: node for key, node in self._known.items() if node != node_id}

    async def find(self, kind: CoordinatorKind, key: str, *, timeout: float) -> int:
        """Return the node id of the coordinator, cached or looked up.

        Args:
            timeout: seconds, including retries while a coordinator is loading or moving.

        Raises:
            RequestTimeout: no coordinator was found within the timeout; the cause is the last
                error.
            BrokerError: the broker refused the lookup, for example with GroupAuthorization.
            Closed: the cluster was closed, or failed.
        """
        name = (kind, key)
        node_id = self._known.get(name)
        if node_id is not None:
            return node_id
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append(future)
        if kind not in self._looking:
            self._looking.add(kind)
            self._spawn(self._look_up(kind), f"find {kind.name.lower()} coordinators")
        try:
            async with asyncio.timeout(timeout) as limit:
                return await future
        except TimeoutError as error:
            if not limit.expired():
                raise
            cause = self._last_error.get(name) or self._trouble()
            raise RequestTimeout(
                f"no coordinator found for {kind.name.lower()} {key!r} within {timeout:.3g} s: "
                + (str(cause) if cause is not None else "no broker answered"),
                api="FindCoordinator",
            ) from (cause or error)
        finally:
            waiting = self._waiting.get(name, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(name, None)
                self._last_error.pop(name, None)

    def fail_waiters(self, error: BaseException) -> None:
        """Fail every pending lookup with a copy of ``error``."""
        for name in list(self._waiting):
            self._fail(name, error)

    async def _look_up(self, kind: CoordinatorKind) -> None:
        """Look up the awaited keys of a kind, until no key of that kind is awaited."""
        backoff = Backoff(
            self._settings.retry_backoff_ms / 1000,
            self._settings.retry_backoff_max_ms / 1000,
            self._random,
        )
        try:
            while keys := [key for (other, key) in self._waiting if other is kind]:
                progress = False
                try:
                    progress = await self._ask(kind, keys)
                except KafkaError as error:
                    for key in keys:
                        self._refused(kind, key, error)
                if progress:
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next())
        finally:
            self._looking.discard(kind)

    async def _ask(self, kind: CoordinatorKind, keys: list[str]) -> bool:
        """Send one request for ``keys``, or for the first key if the broker takes only one key.

        Returns:
            Whether at least one lookup ended, successfully or with an error that is not retriable.
        """
        asked, batched = keys, True

        def request(version: int) -> FindCoordinatorRequest:
            nonlocal asked, batched
            if version >= BATCHED_SINCE:
                asked, batched = keys, True
                return FindCoordinatorRequest(key_type=int(kind), coordinator_keys=keys)
            asked, batched = keys[:1], False
            return FindCoordinatorRequest(key=keys[0], key_type=int(kind))

        response = await self._find(request)
        if batched:
            answers = [
                (c.key, c.error_code, c.error_message, BrokerInfo(c.node_id, c.host, c.port))
                for c in response.coordinators
                if c.key in asked
            ]
            silent = set(asked) - {answer[0] for answer in answers}
            for key in silent:
                self._refused(kind, key, CoordinatorNotAvailable("key not in the response"))
        else:
            broker = BrokerInfo(response.node_id, response.host, response.port)
            answers = [(asked[0], response.error_code, response.error_message, broker)]
        progress = False
        for key, code, message, broker in answers:
            if code:
                error = error_for(
                    code,
                    message,
                    api="FindCoordinator",
                    principal=self._settings.principal,
                    resource_name=key,
                )
                progress |= self._refused(kind, key, error)
                if not batched:
                    # One key per request: look up the other keys before this key is retried.
                    self._rotate((kind, key))
            else:
                self._learned((broker,))
                self._found((kind, key), broker.node_id)
                progress = True
        return progress

    def _found(self, name: Key, node_id: int) -> None:
        logger.info("coordinator found: kind=%s key=%s node=%d", name[0].name, name[1], node_id)
        self._known[name] = node_id
        for future in self._waiting.pop(name, []):
            if not future.done():
                future.set_result(node_id)

    def _refused(self, kind: CoordinatorKind, key: str, error: KafkaError) -> bool:
        """Record the error; if it is not retriable, fail the waiters and return True."""
        if (kind, key) not in self._waiting:
            return False  # all waiters timed out; a stored error would never be deleted
        self._last_error[kind, key] = error
        if error.retriable:
            return False
        self._fail((kind, key), error)
        return True

    def _fail(self, name: Key, error: BaseException) -> None:
        for future in self._waiting.pop(name, []):
            if not future.done():
                future.set_exception(copy_error(error))

    def _rotate(self, name: Key) -> None:
        waiting = self._waiting.pop(name, None)
        if waiting:
            self._waiting[name] = waiting
