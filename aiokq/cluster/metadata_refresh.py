"""`MetadataRefresher`, which decides when to request metadata and notifies waiters.

At most one request is in flight; topics requested meanwhile go into the next request. Each topic
that is missing or has no leader is retried with a backoff of its own, so that no topic delays
another.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from aiokq.cluster.metadata import ClusterMetadata
from aiokq.cluster.reducer_inputs import MetadataReceived
from aiokq.cluster.values import ClusterValues
from aiokq.cluster.watched_topics import WatchedTopics
from aiokq.connection.backoff import Backoff
from aiokq.core.codes import BY_CODE
from aiokq.core.error_base import KafkaError, copy_error
from aiokq.core.errors import AuthenticationFailed, InvalidTopic
from aiokq.core.frozen import frozen
from aiokq.core.outages import Outages

__all__ = ["MetadataAsk", "MetadataRefresher"]

logger = logging.getLogger("aiokq.cluster")

TROUBLE: Final = "metadata refresh failed"

LONGEST_NAME: Final = 249
"""Maximum length of a topic name, in characters."""

RETRIED_CODES = frozenset((3, 100))
"""The error codes UNKNOWN_TOPIC_OR_PARTITION and UNKNOWN_TOPIC_ID.

A topic with one of these codes is requested again while it is in use, because it may be created
later.
"""


@frozen
class MetadataAsk:
    """The topics of one metadata request."""

    topics: frozenset[str] | None
    """None for all topics of the cluster."""
    create: bool = False
    """Whether the brokers may create topics that do not exist."""


@dataclass(slots=True, eq=False)
class _Waiter:
    future: asyncio.Future[None]
    round: int
    """Number of the first request sent after the waiter was added; earlier requests are ignored."""
    topics: set[str] = field(default_factory=set)
    everything: bool = False


class MetadataRefresher:
    """Requests metadata when a request is due or a caller waits, one request at a time.

    Args:
        watched_topics: the topics to keep in the metadata.
        ask: sends one request; raises KafkaError if no broker answered.
        apply: applies the response.
        metadata: returns the current snapshot.
        outages: logs the beginning and the end of a series of failed requests.
    """

    def __init__(
        self,
        settings: ClusterValues,
        watched_topics: WatchedTopics,
        *,
        ask: Callable[[MetadataAsk], Awaitable[MetadataReceived]],
        apply: Callable[[MetadataReceived], None],
        metadata: Callable[[], ClusterMetadata],
        outages: Outages,
        random: random.Random,
    ) -> None:
        self._settings = settings
        self._watched_topics = watched_topics
        self._ask = ask
        self._apply = apply
        self._metadata = metadata
        self._random = random
        self._backoff = self._new_backoff()
        self._outages = outages
        self._due: dict[str, float] = {}
        self._create: set[str] = set()
        self._everything_due = False
        self._brokers_due = False
        self._pace: dict[str, Backoff] = {}
        self._missing: dict[str, tuple[float, float]] = {}
        """Loop times of the first and the latest response that reported a topic as missing.

        Only the current uninterrupted series of such responses counts.
        """
        self._awaited: Counter[str] = Counter()
        self._waiters: list[_Waiter] = []
        self._round = 0
        self._wake = asyncio.Event()
        self._not_before = 0.0
        self._age_due = 0.0
        self.last_success: float | None = None
        """Loop time of the latest response; None before the first response."""
        self.last_error: KafkaError | None = None
        """The error of the latest request, or None."""

    def refresh(
        self, topics: Iterable[str] | None = None, *, create: bool = False, urgent: bool = True
    ) -> asyncio.Future[None]:
        """Return a future that is done when requests sent after this call have covered the topics.

        Failed requests are repeated until one succeeds, so the caller must set a timeout.

        Args:
            topics: topics that the responses must cover; None for all watched topics.
            create: whether the brokers may create the topics.
            urgent: whether to send a request now; otherwise the future waits for the next requests
                that are due.

        Raises:
            InvalidTopic: a name is longer than `LONGEST_NAME`.
            AuthenticationFailed: (by the future) the brokers refused the credentials.
            BootstrapFailed: (by the future) no bootstrap address can be expected to answer.
            Closed: (by the future) the cluster was closed.
        """
        topics = None if topics is None else set(topics)
        for topic in topics or ():
            if len(topic) > LONGEST_NAME:
                raise InvalidTopic(
                    f"{topic[:30]!r}... has {len(topic)} characters; a topic's name has at most"
                    f" {LONGEST_NAME}",
                    topic_partition=topic,
                )
        now = self._now()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(future, self._round + 1)
        if topics is None:
            waiter.everything = self._watched_topics.everything
            waiter.topics = set() if waiter.everything else set(self._watched_topics.topics)
        else:
            waiter.topics = topics
        self._waiters.append(waiter)
        if urgent:
            self._brokers_due = True
            self._everything_due |= waiter.everything
            for topic in waiter.topics:
                self._due[topic] = now
        if create:
            self._create |= waiter.topics
        self._wake.set()
        return future

    def soon(self, topics: Iterable[str]) -> None:
        """Schedule a request after an error about topics, or about a broker.

        The request is sent ``retry_backoff_ms`` after the latest response at the earliest.

        Args:
            topics: empty for an error about a broker.
        """
        now = self._now()
        pause = self._settings.retry_backoff_ms / 1000
        earliest = now if self.last_success is None else max(now, self.last_success + pause)
        names = list(topics)
        for topic in names:
            self._due[topic] = min(self._due.get(topic, earliest), earliest)
        if not names:
            self._age_due = min(self._age_due, earliest)
        self._wake.set()

    def expect(self, topic: str) -> None:
        """Retry the topic while it is missing or leaderless.

        Each call is undone by one `unexpect`.
        """
        self._awaited[topic] += 1

    def unexpect(self, topic: str) -> None:
        """Undo one `expect`. After the last `unexpect`, only a watched topic is retried."""
        self._awaited[topic] -= 1
        if self._awaited[topic] <= 0:
            del self._awaited[topic]
            if topic not in self._watched_topics.topics:
                self._due.pop(topic, None)
                self._pace.pop(topic, None)
                self._missing.pop(topic, None)
                self._create.discard(topic)

    def missing_for(self, topic: str) -> float | None:
        """Return for how many seconds all responses have reported the topic as missing.

        Returns:
            The seconds from the first of these responses to the latest; 0 after one response. None
            if the latest response had another result, or if the topic is not in use.
        """
        first_and_newest = self._missing.get(topic)
        return None if first_and_newest is None else first_and_newest[1] - first_and_newest[0]

    def fail_waiters(self, error: BaseException) -> None:
        """Fail the futures of all `refresh` calls with a copy of ``error``."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(copy_error(error))
                # The exception is marked as retrieved, because the waiter may have been cancelled.
                waiter.future.exception()

    async def run(self) -> None:
        """Send requests when they are due, until cancelled; failed requests are retried."""
        while True:
            await self._until_due()
            ask = self._take()
            self._round += 1
            try:
                received = await self._ask(ask)
                self._apply(received)
            except KafkaError as error:
                self._failed(ask, error)
            except Exception as error:
                # The cause is a bug or an invalid response. The request is retried, because the
                # client would never learn of a new leader if this task ended.
                failure = KafkaError(f"unexpected {error!r}")
                failure.__cause__ = error
                if str(failure) != str(self.last_error):  # log the traceback only once
                    logger.exception("metadata refresh failed unexpectedly")
                self._failed(ask, failure)
            else:
                self._succeeded(ask, received)

    async def _until_due(self) -> None:
        while True:
            now = self._now()
            when = self._next_due()
            if when <= now:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(when - now):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _next_due(self) -> float:
        if self._everything_due or self._brokers_due:
            when = 0.0
        else:
            when = min([self._age_due, *self._due.values()])
        return max(when, self._not_before)

    def _take(self) -> MetadataAsk:
        now = self._now()
        self._brokers_due = False
        if now >= self._age_due:
            self._age_due = now + self._settings.metadata_max_age_ms / 1000
            self._everything_due |= self._watched_topics.everything
            self._due.update(dict.fromkeys(self._watched_topics.topics, now))
        due = {topic for topic, when in self._due.items() if when <= now}
        creating = due & self._create
        if creating:
            # Topics to create need a separate request, because the create flag of a request applies
            # to all of its topics.
            for topic in creating:
                del self._due[topic]
            self._brokers_due = bool(due - creating) or self._everything_due
            return MetadataAsk(frozenset(creating), create=True)
        for topic in due:
            del self._due[topic]
        if self._everything_due:
            self._everything_due = False
            return MetadataAsk(None)
        return MetadataAsk(frozenset(due))

    def _succeeded(self, ask: MetadataAsk, received: MetadataReceived) -> None:
        now = self._now()
        self.last_success, self.last_error = now, None
        self._backoff.reset()
        self._outages.ended(TROUBLE, None)
        self._not_before = 0.0
        answered = {topic.name for topic in received.topics} | (ask.topics or set())
        for topic in answered:
            self._follow_up(topic, now)
        self._settle_waiters(ask)

    def _follow_up(self, topic: str, now: float) -> None:
        """Schedule a retry if the topic has a retriable error, or a partition without a leader.

        A topic that is not in use is retried only if the response reported it as missing, and the
        metadata still has it.
        """
        metadata = self._metadata()
        info = metadata.topics.get(topic)
        code = metadata.topic_errors.get(topic, 0) if info is None else info.error_code
        row = BY_CODE.get(code)
        troubled = bool(info is not None and info.leaderless) or (
            code != 0 and row is not None and (row.retriable or code in RETRIED_CODES)
        )
        wanted = topic in self._awaited or topic in self._watched_topics.topics
        if wanted and code in RETRIED_CODES:
            self._missing[topic] = (self._missing.get(topic, (now, now))[0], now)
        else:
            self._missing.pop(topic, None)
        if not troubled:
            self._create.discard(topic)
        # The reducer removes a topic only after a second response without the topic. Therefore a
        # known topic that one response reported as missing is requested again, even if it is not
        # in use.
        doubted = info is not None and code in RETRIED_CODES
        if not troubled or not (wanted or doubted):
            self._pace.pop(topic, None)
            return
        pace = self._pace.get(topic)
        if pace is None:
            pace = self._pace[topic] = self._new_backoff()
        self._due.setdefault(topic, now + pace.next())

    def _settle_waiters(self, ask: MetadataAsk) -> None:
        waiting = []
        for waiter in self._waiters:
            if waiter.future.done():
                continue
            if waiter.round > self._round:
                waiting.append(waiter)
                continue
            if ask.topics is None:
                waiter.everything = False
                waiter.topics.clear()
            else:
                waiter.topics -= ask.topics
            if waiter.topics or waiter.everything:
                waiting.append(waiter)
            else:
                waiter.future.set_result(None)
        self._waiters = waiting

    def _failed(self, ask: MetadataAsk, error: KafkaError) -> None:
        pause = self._backoff.next()
        now = self._now()
        self.last_error = error
        self._not_before = now + pause
        if ask.topics is None:
            self._everything_due = True
        else:
            self._brokers_due = True
            for topic in ask.topics:
                self._due[topic] = now
        self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]
        self._outages.failed(TROUBLE, None, error, where={})
        if isinstance(error, AuthenticationFailed):
            self.fail_waiters(error)

    def _new_backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(
            settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000, self._random
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
