"""Which topics somebody wants to be kept informed of, counted. Asks for nothing itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["WatchedTopics"]


class WatchedTopics:
    """Reference counts per topic, and for all topics; when each topic was last used.

    A topic that is not watched may stay in the snapshot for a while after its last use.
    """

    def __init__(self) -> None:
        self._watched: Counter[str] = Counter()
        self._everything = 0
        self._used: dict[str, float] = {}

    def watch(self, topics: Iterable[str]) -> set[str]:
        """Count one more for each; returns those that were not watched before."""
        added = set()
        for topic in topics:
            if not self._watched[topic]:
                added.add(topic)
            self._watched[topic] += 1
        return added

    def unwatch(self, topics: Iterable[str]) -> None:
        """Count one less for each; one that is not watched is left alone."""
        for topic in topics:
            if self._watched[topic] > 1:
                self._watched[topic] -= 1
            else:
                del self._watched[topic]

    def watch_all(self) -> bool:
        """Count one more for all topics of the cluster; returns whether that is new."""
        self._everything += 1
        return self._everything == 1

    def unwatch_all(self) -> None:
        """Count one less."""
        self._everything = max(0, self._everything - 1)

    @property
    def everything(self) -> bool:
        """Whether all topics are watched."""
        return self._everything > 0

    @property
    def topics(self) -> frozenset[str]:
        """The topics watched by name."""
        return frozenset(self._watched)

    def used(self, topic: str, now: float) -> None:
        """Somebody just asked about the topic."""
        self._used[topic] = now

    def idle(self, known: Iterable[str], now: float, limit: float) -> frozenset[str]:
        """Those of ``known`` that nobody watches and nobody used for ``limit`` seconds."""
        if self.everything:
            return frozenset()
        idle = frozenset(
            topic
            for topic in known
            if topic not in self._watched and now - self._used.get(topic, now - limit) >= limit
        )
        for topic in idle:
            self._used.pop(topic, None)
        return idle
