"""Owns what is said about a topic that does not exist, and how long close() waits for one.

Who waits for it, and what becomes of the records, is the matter of producer_metadata.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aiokq.core.errors import Closed, KafkaError
from aiokq.core.log_lines import LineLimit

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine

__all__ = ["MissingTopics"]

logger = logging.getLogger("aiokq.producer")

WARN_AFTER: Final = 1.0
"""Seconds that a topic which is being created may take without a word."""

CONFIRMED_AFTER: Final = 1.0
"""Seconds between two answers that both call a topic unknown, for close() to believe it: brokers
hear of a new topic one after the other."""

GRACE: Final = 2.0
"""Seconds that close() gives a topic of which it believes that it does not exist."""

ASK_EVERY: Final = 0.5
"""Seconds between two looks of close()."""


class _Watch:
    """How many wait for a topic, and what will warn of it: a timer, then a task."""

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
    """Watches topics while somebody waits for them.

    Args:
        timeout: seconds that a topic is waited for.
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
        """While somebody waits for a topic: one warning, however many wait, and for few topics."""
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
        """Nobody waits any more."""
        self._lines.end()

    async def given_up(self, topic: str) -> None:
        """Until close() may give up a topic that somebody waits for, which may be never.

        Two answers a second apart called it unknown, and after `GRACE` seconds more the newest one
        still does. A topic that cannot be used for another reason is not given up here, nor is one
        that no broker says anything about.
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
            return  # there is nobody left to warn

    async def _warn(self, topic: str) -> None:
        lookup = self._engine.topics
        try:
            while lookup.missing_for(topic) is None:
                # Not there for another reason, or no broker answers: others say so.
                await self._engine.refresher.refresh([topic], urgent=False)
            near = await lookup.nearest_name(topic)
        except KafkaError as error:  # who waits for the topic is told
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
