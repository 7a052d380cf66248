"""BrokerFetcher: the fetch loop of one broker, on a connection of its own; one request in flight.

What partitions want is asked of the Fetcher, and what comes back is handed to it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiokq.cluster.metadata import ZERO_ID
from aiokq.connection.node import Purpose
from aiokq.consumer.fetch_sessions import Ask, FetchSession, Plan, fetch_topics, forgotten_topics
from aiokq.core.errors import BrokerError, Closed, KafkaError, error_for
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
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""

GLANCE: Final = 0.05
"""Seconds between looks at idle partitions while others of the broker have enough waiting: a fetch
that the broker holds back must not be in the way of those when they are wanted again."""

CLOSE_TIMEOUT: Final = 0.5
"""Seconds that a broker may take to close a session; it would forget it by itself as well."""


class Want(NamedTuple):
    """What a partition is to be asked for, or why not."""

    ask: Ask | None = None
    full: bool = False
    """It has enough waiting."""
    at: float = 0.0
    """Loop time when to look at it again; 0 if that is not a matter of time."""


class FetchOwner(Protocol):
    """The part of the Fetcher that its loops need."""

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
    """Fetches all partitions that are read from one broker.

    Attributes:
        states: the partitions, wanted now or not.
        last_error: why the last request failed; None after an answer.
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

    # -- what the owner tells

    def add(self, state: PartitionState) -> None:
        """The partition is read from here from now on."""
        self.states[state.tp] = state
        self.touch(state.tp)

    def remove(self, tp: TopicPartition) -> None:
        """It is read elsewhere, or nowhere."""
        self.states.pop(tp, None)
        self.touch(tp)

    def touch(self, tp: TopicPartition) -> None:
        """Something about the partition changed: look at it before the next request."""
        self._dirty[tp] = None
        self._wake.set()

    def wake(self) -> None:
        """A reader waits: do not put off what is wanted."""
        self._wake.set()

    def touch_all(self) -> None:
        """The same for all of them."""
        self._dirty.update(dict.fromkeys(self.states))
        self._wake.set()

    # -- the loop

    async def run(self) -> None:
        """Fetch for ever."""
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
        """End the session and the connection; the loop was cancelled before."""
        dedicated, self._connection = self._connection, None
        if dedicated is None:
            return
        plan = self.session.close()
        connection = dedicated.current
        if connection is not None and connection.in_flight:
            # Behind a fetch that the broker holds it would wait; a session is not the socket's.
            connection = dedicated.node.connected(Purpose.CONTROL)
        if plan is not None and connection is not None:
            try:
                await connection.request(
                    self._request(plan, 0, connection.version_for(FetchRequest)),
                    timeout=CLOSE_TIMEOUT,
                )
            except KafkaError as error:
                logger.debug("session not closed: node=%s error=%s", self.node_id, error)
        await dedicated.close()

    # -- inside

    # hot: once per fetch, benchmarks/micro/consumer.py
    def _look(self, now: float) -> None:
        """Bring what is wanted up to date with the partitions that changed."""
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
        """Whether most partitions have enough waiting and no reader waits for the others: then
        these are asked together a little later, in one request instead of several."""
        wanted = self.session.wanted
        return len(self._full) > len(wanted) and not any(
            ask.state.source.hungry for ask in wanted.values()
        )

    def _next_look(self, now: float, most: float | None = None) -> float | None:
        """Seconds until a partition is due, at most so many; None if none is."""
        if not self._delayed:
            return most
        soonest = min(self._delayed.values()) - now
        return soonest if most is None else min(soonest, most)

    async def _sleep(self, seconds: float | None) -> None:
        """Until something changes, at most so long."""
        if seconds is None:
            await self._wake.wait()
        elif seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _fetch_once(self) -> bool:
        """One request and its response. Returns whether that brought nothing."""
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
        # Where some partitions have enough waiting, the others are glanced at, not waited for.
        max_wait_ms = 0 if self._full else self._settings.fetch_max_wait_ms
        self.in_flight = True
        try:
            response = await connection.request(
                self._request(plan, max_wait_ms, version),
                version=version,
                timeout=self._settings.request_timeout + max_wait_ms / 1000,
            )
        finally:
            self.in_flight = False
        if response.error_code:
            session.reject(response.error_code)
            error = error_for(response.error_code, api="Fetch", node=self.node_id)
            if error.code in SESSION_CODES and self.last_error is None:
                # A broker may give a session up at any time: begin another at once, but once.
                logger.debug("fetch session is gone: node=%s error=%s", self.node_id, error)
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
            self._connection = None  # the node was replaced by another of its id
        self.session.lost()
        self.last_error = error
        pause = self._backoff.next()
        self._owner.outages.failed(TROUBLE, self.node_id, error, where={"node": self.node_id})
        if not isinstance(error, BrokerError) or error.code not in SESSION_CODES:
            states = [state for tp in self.session.wanted if (state := self.states.get(tp))]
            self._owner.unreachable(self.node_id, states, error)
        await asyncio.sleep(pause)
