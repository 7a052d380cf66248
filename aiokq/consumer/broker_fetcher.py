"""BrokerFetcher: the fetch loop of one broker, with its own connection and one request in flight.

The Fetcher selects the partitions and offsets to fetch, and handles the responses.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.cluster.metadata import ZERO_ID
from aiokq.connection.node import Purpose
from aiokq.consumer.fetch_sessions import Ask, FetchSession, Plan, fetch_topics, forgotten_topics
from aiokq.core.errors import BrokerError, Closed, KafkaError, error_for
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from aiokq.connection.backoff import Backoff
    from aiokq.connection.connection import Connection
    from aiokq.connection.lazy_connection import DedicatedConnection
    from aiokq.connection.node import Node
    from aiokq.consumer.positions import PartitionState
    from aiokq.consumer.values import ConsumerValues
    from aiokq.core.outages import Outages
    from aiokq.core.types import TopicPartition

__all__ = ["BrokerFetcher", "FetchOwner", "Want"]

logger = logging.getLogger("aiokq.consumer")

TROUBLE: Final = "fetch failed"

SESSIONS_SINCE: Final = 7
RACKS_SINCE: Final = 11
LAST_FETCHED_EPOCH_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13

SESSION_CODES: Final = (70, 71, 106)
"""The error codes of a lost fetch session.

FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
"""

GLANCE: Final = 0.05
"""Seconds between fetches of idle partitions while other partitions have enough buffered.

A long poll would delay the next fetch of those other partitions.
"""

CLOSE_TIMEOUT: Final = 0.5
"""Seconds to wait for the response when closing a session.

If the request is lost, the broker evicts the session later.
"""


class Want(NamedTuple):
    """The decision whether to fetch a partition now; `ask` is None to fetch nothing."""

    ask: Ask | None = None
    full: bool = False
    """Whether nothing is fetched because enough data of the partition is buffered."""
    at: float = 0.0
    """Loop time at which to check the partition again; 0 to wait for a change."""


class FetchOwner(Protocol):
    """The part of the Fetcher that a BrokerFetcher needs."""

    @property
    def outages(self) -> Outages: ...

    def want(self, state: PartitionState, node_id: int, now: float) -> Want: ...

    def max_bytes(self) -> int: ...

    def node(self, node_id: int) -> Node: ...

    def new_backoff(self) -> Backoff: ...

    async def unpack(self, response: FetchResponse) -> None: ...

    def received(
        self,
        node_id: int,
        asked: dict[TopicPartition, Ask],
        response: FetchResponse,
    ) -> bool: ...

    def unreachable(
        self, node_id: int, states: list[PartitionState], error: KafkaError
    ) -> None: ...


class BrokerFetcher:
    """The fetch loop for all partitions that are read from one broker.

    Attributes:
        states: the partitions, including those that need no fetch now.
        last_error: why the last request failed; None after a successful response.
    """

    def __init__(
        self,
        node_id: int,
        owner: FetchOwner,
        settings: ConsumerValues,
    ) -> None:
        self.node_id = node_id
        self.session = FetchSession()
        self.states: dict[TopicPartition, PartitionState] = {}
        self.last_error: KafkaError | None = None
        self.in_flight = False
        self._owner = owner
        self._settings = settings
        self._dirty: dict[TopicPartition, None] = {}
        self._full: set[TopicPartition] = set()
        self._delayed: dict[TopicPartition, float] = {}
        self._wake = asyncio.Event()
        self._glance_at = 0.0
        self._backoff = owner.new_backoff()
        self._connection: DedicatedConnection | None = None

    def add(self, state: PartitionState) -> None:
        self.states[state.tp] = state
        self.touch(state.tp)

    def remove(self, tp: TopicPartition) -> None:
        self.states.pop(tp, None)
        self.touch(tp)

    def touch(self, tp: TopicPartition) -> None:
        """Check the partition before the next request, because its state changed."""
        self._dirty[tp] = None
        self._wake.set()

    def wake(self) -> None:
        """End the current wait, because a reader waits for records."""
        self._wake.set()

    def touch_all(self) -> None:
        """Check all partitions before the next request."""
        self._dirty.update(dict.fromkeys(self.states))
        self._wake.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            self._look(now)
            if not self.session.wanted:
                await self._sleep(self._next_look(now))
                continue
            if now < self._glance_at and self._enough():
                await self._sleep(self._next_look(now, self._glance_at - now))
                continue
            try:
                empty = await self._fetch_once()
            except KafkaError as error:
                await self._failed(error)
                continue
            now = loop.time()
            self._glance_at = now + GLANCE
            if empty and self._full:
                await self._sleep(self._next_look(now, GLANCE))

    async def close(self) -> None:
        """End the session and close the connection. The task of `run` must already be cancelled."""
        dedicated, self._connection = self._connection, None
        if dedicated is None:
            return
        plan = self.session.close()
        connection = dedicated.current
        if connection is not None and connection.in_flight:
            # The broker may be delaying the response to a fetch on this connection. Any connection
            # can end a session, so use the shared connection.
            connection = dedicated.node.connected(Purpose.CONTROL)
        if plan is not None and connection is not None:
            try:
                await connection.request(
                    self._request(plan, 0, connection.version_for(FetchRequest)),
                    timeout=CLOSE_TIMEOUT,
                )
            except KafkaError as error:
                logger.debug("fetch session not closed: node=%s error=%s", self.node_id, error)
        await dedicated.close()

    # Hot path, once per fetch; measured by benchmarks/micro/consumer.py.
    def _look(self, now: float) -> None:
        """Update the session for the partitions that changed or are due."""
        for tp in [tp for tp, when in self._delayed.items() if when <= now]:
            self._dirty[tp] = None
        dirty, self._dirty = self._dirty, {}
        session = self.session
        for tp in dirty:
            self._full.discard(tp)
            self._delayed.pop(tp, None)
            state = self.states.get(tp)
            if state is None:
                session.drop(tp)
                continue
            want = self._owner.want(state, self.node_id, now)
            if want.ask is not None:
                session.want(tp, want.ask)
            else:
                session.drop(tp)
                if want.full:
                    self._full.add(tp)
            if want.at > now:
                self._delayed[tp] = want.at

    def _enough(self) -> bool:
        """Whether to delay the next request a little, to fetch more partitions with one request.

        True if the partitions with enough buffered data outnumber the partitions to be fetched, and
        no reader waits for one of the partitions to be fetched.
        """
        wanted = self.session.wanted
        return len(self._full) > len(wanted) and not any(
            ask.state.source.hungry for ask in wanted.values()
        )

    def _next_look(self, now: float, most: float | None = None) -> float | None:
        """Return the seconds until the next partition is due, at most `most`.

        The result is None if no partition will be due and `most` is None.
        """
        if not self._delayed:
            return most
        soonest = min(self._delayed.values()) - now
        return soonest if most is None else min(soonest, most)

    async def _sleep(self, seconds: float | None) -> None:
        """Wait for a change, at most `seconds`; None for no limit."""
        if seconds is None:
            await self._wake.wait()
        elif seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _fetch_once(self) -> bool:
        """Send one request, if partitions are to be fetched, and handle its response.

        Returns:
            Whether a response without partitions was received.
        """
        connection = await self._connect()
        self._look(asyncio.get_running_loop().time())
        session = self.session
        if not session.wanted:
            return False
        version = connection.version_for(FetchRequest)
        by_ids = version >= TOPIC_IDS_SINCE
        if by_ids and any(ask.topic_id == ZERO_ID for ask in session.wanted.values()):
            version, by_ids = TOPIC_IDS_SINCE - 1, False
        plan = session.next(by_ids=by_ids, sessions=version >= SESSIONS_SINCE)
        # Partitions with enough buffered data are left out of the request, and may need a fetch
        # soon. The broker must therefore answer immediately.
        max_wait_ms = 0 if self._full else self._settings.fetch_max_wait_ms
        self.in_flight = True
        try:
            answer = connection.send(
                self._request(plan, max_wait_ms, version),
                version=version,
                timeout=self._settings.request_timeout + max_wait_ms / 1000,
            )
            # Send the request now, so that the broker prepares the next response while the reader
            # handles the records of the last response.
            connection.push()
            response = await answer
        finally:
            self.in_flight = False
        if response.error_code:
            session.reject(response.error_code)
            error = error_for(response.error_code, api="Fetch", node=self.node_id)
            if error.code in SESSION_CODES and self.last_error is None:
                # A broker may evict a session without notice. Retry immediately with a new session,
                # but not twice in a row.
                logger.debug(
                    "fetch session no longer exists: node=%s error=%s", self.node_id, error
                )
                self.last_error = error
                return False
            raise error
        if version >= SESSIONS_SINCE:
            session.accept(response.session_id)
        await self._owner.unpack(response)
        news = self._owner.received(self.node_id, session.sent, response)
        self.last_error = None
        self._owner.outages.ended(TROUBLE, self.node_id)
        self._backoff.reset()
        return not news

    async def _connect(self) -> Connection:
        node = self._owner.node(self.node_id)
        dedicated = self._connection
        if dedicated is None or dedicated.node is not node:
            if dedicated is not None:
                await dedicated.close()
            dedicated = self._connection = node.dedicated("fetch")
            self.session.lost()
        connection = await dedicated.get()
        await node.ready()
        return connection

    def _request(self, plan: Plan, max_wait_ms: int, version: int) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=self._owner.max_bytes(),
            isolation_level=1 if settings.committed_only else 0,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=fetch_topics(plan.asks, epochs=version >= LAST_FETCHED_EPOCH_SINCE),
            forgotten_topics_data=forgotten_topics(plan.forgotten),
            rack_id=settings.client_rack if version >= RACKS_SINCE else "",
        )

    async def _failed(self, error: KafkaError) -> None:
        if isinstance(error, Closed):
            self._connection = None  # another Node object has replaced the closed Node
        self.session.lost()
        self.last_error = error
        pause = self._backoff.next()
        self._owner.outages.failed(TROUBLE, self.node_id, error, where={"node": self.node_id})
        if not isinstance(error, BrokerError) or error.code not in SESSION_CODES:
            states = [state for tp in self.session.wanted if (state := self.states.get(tp))]
            self._owner.unreachable(self.node_id, states, error)
        await asyncio.sleep(pause)
