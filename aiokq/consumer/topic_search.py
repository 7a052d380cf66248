"""TopicSearch: waits for topics and partitions that are to be read but do not exist.

partition_discovery.py handles topics that were found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Final

from aiokq.cluster.offsets import no_such_partition
from aiokq.core.errors import (
    Closed,
    KafkaError,
    RequestTimeout,
    TopicAuthorization,
    UnknownTopicOrPartition,
    copy_error,
)

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.positions import PartitionState
    from aiokq.consumer.record_source import RecordSource
    from aiokq.consumer.values import ConsumerValues

__all__ = ["TopicSearch"]

logger = logging.getLogger("aiokq.consumer")

UNREADABLE: Final = "topic cannot be read"


class TopicSearch:
    """Waits until topics exist, and until assigned partitions of topics exist.

    A subscriber waits as long as necessary. For a missing partition that was assigned, manually or
    by the group, the reader gets an error every `default_api_timeout_ms`. For a deleted topic,
    the metadata requests do not allow auto-creation, even if `allow_auto_create_topics` is set.

    Args:
        wanted: returns whether a topic is still subscribed to or assigned.
        assigned: returns the assigned partitions of a topic.
        asked: called with a topic when a metadata response has shown whether it exists.
        report: raises an error about a topic to the reader.
        spawn: starts a task of the consumer.

    Source: Java's ConsumerMetadata, except for the rule about deleted topics.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        engine: ClusterEngine,
        *,
        wanted: Callable[[str], bool],
        assigned: Callable[[str], list[PartitionState]],
        asked: Callable[[str], None],
        report: Callable[[KafkaError], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._limit = settings.default_api_timeout
        self._engine = engine
        self._wanted = wanted
        self._assigned = assigned
        self._asked = asked
        self._report = report
        self._spawn = spawn
        self._searches: dict[str, asyncio.Future[None]] = {}
        """For each topic, a future that is done when it is known whether the topic exists."""
        self._deleted: set[str] = set()

    def find(self, topic: str) -> None:
        """Search for a topic and all of its assigned partitions."""
        if topic not in self._searches:
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._searches[topic] = answered
            self._spawn(self._search(topic, answered), f"find topic {topic}")

    def lost(self, topic: str) -> None:
        """Search for a deleted topic, which may be created again."""
        self._deleted.add(topic)
        self.find(topic)

    def found(self, topic: str) -> None:
        """Handle a topic that exists: it is not treated as deleted any more."""
        self._deleted.discard(topic)

    def forget(self, kept: Collection[str]) -> None:
        """Forget deleted topics that are not in `kept`."""
        self._deleted.intersection_update(kept)

    @property
    def unanswered(self) -> list[asyncio.Future[None]]:
        """The futures of topics whose existence is still unknown."""
        return [answered for answered in self._searches.values() if not answered.done()]

    async def _search(self, topic: str, answered: asyncio.Future[None]) -> None:
        engine = self._engine
        backoff = engine.new_backoff()
        try:
            while self._wanted(topic):
                try:
                    await engine.refresh([topic])
                    self._asked(topic)
                    if not self._missing(topic):
                        engine.outages.ended(UNREADABLE, topic)
                        return
                    if not answered.done():
                        answered.set_result(None)
                        await self._warn(topic)
                    await self._appearance(topic)
                except Closed:
                    return
                except RequestTimeout as error:
                    engine.outages.failed(UNREADABLE, topic, error, where={"topic": topic})
                except UnknownTopicOrPartition as error:
                    self._report_missing(topic, error)
                except KafkaError as error:
                    # The error may end when permissions are granted, so retry with backoff.
                    engine.outages.failed(UNREADABLE, topic, error, where={"topic": topic})
                    self._report(error)
                    answered.cancel()
                    await asyncio.sleep(backoff.next())
        finally:
            del self._searches[topic]
            answered.cancel()

    async def _appearance(self, topic: str) -> None:
        """Wait for a limited time until the topic, or its assigned partitions, exist.

        Raises:
            UnknownTopicOrPartition: the topic or an assigned partition still does not exist.
        """
        engine = self._engine
        info = engine.metadata.topics.get(topic)
        if info is None:
            create = False if topic in self._deleted else None
            await engine.topic(topic, timeout=self._limit, create=create)
            return
        backoff = engine.new_backoff()
        deadline = engine.now() + self._limit
        while absent := self._absent(topic):
            if engine.now() >= deadline:
                raise no_such_partition(absent[0].tp, len(info.partitions))
            await asyncio.sleep(backoff.next())
            await engine.refresh([topic])

    def _absent(self, topic: str) -> list[PartitionState]:
        """Return the assigned partitions that do not exist."""
        info = self._engine.metadata.topics.get(topic)
        return [
            state
            for state in self._assigned(topic)
            if info is None or state.tp.partition not in info.partitions
        ]

    def _missing(self, topic: str) -> bool:
        return topic not in self._engine.metadata.topics or bool(self._absent(topic))

    async def _warn(self, topic: str) -> None:
        engine = self._engine
        if topic not in engine.metadata.topics:
            if engine.metadata.topic_errors.get(topic) == TopicAuthorization.code:
                return  # the topic may exist, and the search reports the refusal
            near = await engine.topics.nearest_name(topic)
            suggestion = f" nearest={near}" if near is not None else ""
            logger.warning("topic does not exist: topic=%s%s", topic, suggestion)
            return
        for state in self._absent(topic):
            logger.warning("partition does not exist: partition=%s", state.tp)

    def _report_missing(self, topic: str, error: UnknownTopicOrPartition) -> None:
        """Report to the readers that the topic, or some of its partitions, do not exist.

        If the topic exists, each missing partition is reported. Otherwise, each reader gets `error`
        once.
        """
        logger.warning("topic or partition still does not exist: topic=%s error=%s", topic, error)
        info = self._engine.metadata.topics.get(topic)
        reported: set[RecordSource] = set()
        for state in self._absent(topic):
            if info is not None:
                state.source.report(no_such_partition(state.tp, len(info.partitions)))
            elif state.source not in reported:
                reported.add(state.source)
                own = copy_error(error)
                own.topic_partition = state.tp
                state.source.report(own)
