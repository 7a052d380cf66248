"""MissingTopics: warns about topics that do not exist, and limits the wait of close() for them.

producer_metadata.py waits for the topics, and fails the records that wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aiokq.core.errors import Closed, KafkaError, UnknownTopicOrPartition
from aiokq.core.log_lines import LineLimit
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.metadata import TopicInfo

__all__ = ["MissingTopics", "no_partition"]

logger = logging.getLogger("aiokq.producer")

WARN_AFTER: Final = 1.0
"""Seconds that records wait before the warning. Creating a topic normally takes less time."""

CONFIRMED_AFTER: Final = 1.0
"""Seconds for which responses must report a topic as unknown before close() believes them.

A single response may be wrong, because brokers learn of a new topic one after the other.
"""

GRACE: Final = 2.0
"""Seconds that close() waits for a topic after two responses called it unknown."""

ASK_EVERY: Final = 0.5
"""Seconds between two metadata requests while close() waits for a topic."""


class _Watch:
    """The number of waiters for a topic, and the timer or task that warns about the topic."""

    __slots__ = ("task", "timer", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None:
            self.task.cancel()


class MissingTopics:
    """Watches topics while records or callers wait for them, and warns of topics that do not exist.

    Args:
        timeout: longest time that records wait for a topic, in seconds; shown in the warning.
        spawn: starts a task that belongs to the producer.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        timeout: float,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._engine = engine
        self._timeout = timeout
        self._spawn = spawn
        self._watched: dict[str, _Watch] = {}
        self._lines = LineLimit(logger, logging.WARNING, "topics do not exist: others=%d")

    @contextmanager
    def watching(self, topic: str) -> Iterator[None]:
        """Watch `topic` inside the `with` block; overlapping blocks share one warning."""
        watch = self._watched.get(topic)
        if watch is None:
            watch = self._watched[topic] = _Watch()
            watch.timer = asyncio.get_running_loop().call_later(
                WARN_AFTER, self._begin, topic, watch
            )
        watch.waiting += 1
        try:
            yield
        finally:
            watch.waiting -= 1
            if not watch.waiting:
                watch.end()
                del self._watched[topic]

    def close(self) -> None:
        """Log the number of suppressed warnings, if any were suppressed."""
        self._lines.end()

    async def given_up(self, topic: str) -> None:
        """Wait until close() has to fail the records of a missing topic.

        The call returns when responses have reported the topic as unknown for `CONFIRMED_AFTER`
        seconds, and the newest response still does so after `GRACE` more seconds. It does not
        return while the topic is unusable for another reason, or while no broker has answered.
        """
        lookup, refresher = self._engine.topics, self._engine.refresher
        while True:
            await refresher.refresh([topic])
            while (missing := lookup.missing_for(topic)) is None or missing < CONFIRMED_AFTER:
                await asyncio.sleep(ASK_EVERY)
                await refresher.refresh([topic])
            try:
                async with asyncio.timeout(GRACE):
                    while True:
                        await asyncio.sleep(ASK_EVERY)
                        await refresher.refresh([topic])
            except TimeoutError:
                pass
            if lookup.missing_for(topic) is not None:
                return

    def _begin(self, topic: str, watch: _Watch) -> None:
        watch.timer = None
        try:
            watch.task = self._spawn(self._warn(topic), f"watch {topic}")
        except Closed:
            return  # the producer is closed: no warning is needed

    async def _warn(self, topic: str) -> None:
        lookup = self._engine.topics
        try:
            while lookup.missing_for(topic) is None:
                # The topic is unusable for another reason, or no broker answers: other messages
                # report these cases.
                await self._engine.refresher.refresh([topic], urgent=False)
            near = await lookup.nearest_name(topic)
        except KafkaError as error:  # the waiting calls raise this error
            logger.debug("topic not watched: topic=%s error=%s", topic, error)
            return
        if lookup.missing_for(topic) is not None:
            self._lines.write(
                "topic does not exist: topic=%s%s waits_ms=%.0f; %s",
                topic,
                f" nearest={near}" if near is not None else "",
                self._timeout * 1000,
                lookup.remedy(),
            )


def no_partition(info: TopicInfo, partition: int) -> UnknownTopicOrPartition:
    """Return the error for a partition that a topic does not have."""
    return UnknownTopicOrPartition(
        f"topic {info.name!r} has no partition {partition}: it has {len(info.partitions)}, "
        "numbered from 0",
        topic_partition=TopicPartition(info.name, partition),
    )
