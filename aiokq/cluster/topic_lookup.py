"""`TopicLookup`, which waits until metadata has a topic.

Topics are awaited separately, so a missing topic does not delay another topic.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from aiokq.cluster.metadata import TopicInfo
from aiokq.cluster.metadata_refresh import RETRIED_CODES, MetadataAsk
from aiokq.cluster.metadata_source import ask_node
from aiokq.core.errors import (
    BrokerError,
    KafkaError,
    RequestTimeout,
    UnknownTopicOrPartition,
    error_for,
)
from aiokq.core.nearest_name import nearest_name

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine

__all__ = ["TopicLookup"]

logger = logging.getLogger("aiokq.cluster")

NAMES_TIMEOUT: Final = 1.0
"""Seconds to wait for a list of topic names; afterwards, the previous list is used, if any."""

NAMES_AGE: Final = 60.0
"""Seconds for which a list of topic names is reused, to find names near those of missing topics."""

NAMES_COMPARED: Final = 10_000
"""Maximum number of comparisons with the names of one list; 10,000 take up to 0.3 s."""

NAMES_PER_TURN: Final = 50
"""Number of names compared before other tasks of the loop may run."""


class TopicLookup:
    """Looks up topics that are missing from the snapshot or cannot be used."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine
        self._names: tuple[str, ...] = ()
        self._names_at: float | None = None
        self._listing: asyncio.Task[None] | None = None
        self._compared = 0
        # Suggestions by missing name, kept so that a repeated error needs no new search.
        self._suggestions: dict[str, str | None] = {}
        self._searching = asyncio.Lock()

    async def wait(self, name: str, *, timeout: float, create: bool) -> TopicInfo:
        """Wait until metadata has the topic without an error; see `ClusterEngine.topic`."""
        engine = self._engine
        limit = asyncio.timeout(timeout)
        answered = False
        engine.refresher.expect(name)
        try:
            async with limit:
                while True:
                    # The first request is sent now, later requests after the topic's backoff.
                    await engine.refresher.refresh([name], create=create, urgent=not answered)
                    answered = True
                    # The use is recorded, because a later response drops unused topics from the
                    # metadata.
                    engine.watched_topics.used(name, engine.now())
                    info = engine.metadata.topics.get(name)
                    if info is not None and not info.error_code:
                        return info
                    self._raise_if_final(name)
        except TimeoutError as error:
            if not limit.expired():
                raise
            # Without an answer, an error of the topic is one of an earlier call.
            failure = self.error(name, timeout) if answered else self._unanswered(name, timeout)
            raise failure from (engine.last_error or error)
        finally:
            engine.refresher.unexpect(name)

    def missing_for(self, name: str) -> float | None:
        """See `MetadataRefresher.missing_for`."""
        return self._engine.refresher.missing_for(name)

    async def nearest_name(self, name: str) -> str | None:
        """Return an existing topic of which `name` may be a misspelling; None if no name is near.

        A list of all names is reused for a minute. If a new list does not arrive within a second,
        the previous list is used. The result for a new name is also None if there is no list, or
        if `NAMES_COMPARED` comparisons with the list were already made.
        """
        now = self._engine.now()
        if self._names_at is None or now - self._names_at > NAMES_AGE:
            if self._listing is None:
                self._listing = self._engine.spawn(self._list_names(), "names of all topics")
            await asyncio.wait([self._listing], timeout=NAMES_TIMEOUT)
        async with self._searching:
            if name not in self._suggestions:
                self._suggestions[name] = await self._search(name)
        return self._suggested(name)

    def error(self, name: str, waited: float) -> BrokerError:
        """Return the error for a topic that was not usable within ``waited`` seconds."""
        code = self._code(name)
        if code in RETRIED_CODES or self.missing_for(name) is not None:
            return self.missing_error(name, waited)
        if code:
            return self._refusal(code, name)
        return self._unanswered(name, waited)

    def _unanswered(self, name: str, waited: float) -> RequestTimeout:
        """Return the error for a topic about which no broker answered within ``waited`` seconds."""
        last_error = self._engine.last_error
        return RequestTimeout(
            f"no metadata of topic {name!r} within {waited:.3g} s"
            + (f": {last_error}" if last_error is not None else ""),
            api="Metadata",
            topic_partition=name,
        )

    def missing_error(self, name: str, waited: float) -> UnknownTopicOrPartition:
        """Return the error for a topic that did not exist within ``waited`` seconds."""
        near = self._suggested(name)
        return UnknownTopicOrPartition(
            f"there is no topic {name!r}, and none was created within {waited:.3g} s: "
            + (f"did you mean {near!r}? Otherwise " if near is not None else "")
            + self.remedy(),
            topic_partition=name,
        )

    def remedy(self) -> str:
        """Return the part of the error message that says what to do about a missing topic."""
        allowed = self._engine.settings.allow_auto_create_topics
        return (
            "create it, check its name, or have it created by its first use: "
            "auto.create.topics.enable=true on the brokers"
            + ("" if allowed else ", and allow_auto_create_topics=True on this client")
        )

    async def _search(self, name: str) -> str | None:
        names = self._names[: NAMES_COMPARED - self._compared]
        self._compared += len(names)
        near: str | None = None
        for first in range(0, len(names), NAMES_PER_TURN):
            if first:
                await asyncio.sleep(0)
            some = names[first : first + NAMES_PER_TURN]
            near = nearest_name(name, some if near is None else (near, *some))
        return near

    def _suggested(self, name: str) -> str | None:
        near = self._suggestions.get(name)
        # `near` equals `name` if the topic was created before the names were listed.
        return None if near == name else near

    async def _list_names(self) -> None:
        engine = self._engine
        try:
            answer = await ask_node(
                engine.any_node(), MetadataAsk(None), timeout=engine.settings.request_timeout
            )
        except KafkaError as error:
            logger.debug("cannot list topics to suggest a similar name: error=%s", error)
        else:
            self._names = tuple(
                topic.name for topic in answer.topics if not topic.internal and not topic.error_code
            )
            self._names_at = engine.now()
            self._compared = 0
            self._suggestions = {}
        finally:
            self._listing = None

    def _raise_if_final(self, name: str) -> None:
        code = self._code(name)
        if code and code not in RETRIED_CODES:
            error = self._refusal(code, name)
            if not error.retriable:
                raise error

    def _refusal(self, code: int, name: str) -> BrokerError:
        principal = self._engine.settings.principal
        return error_for(code, topic_partition=name, api="Metadata", principal=principal)

    def _code(self, name: str) -> int:
        metadata = self._engine.metadata
        info = metadata.topics.get(name)
        return metadata.topic_errors.get(name, 0) if info is None else info.error_code
