"""`WatchedTopics`, reference counts of the topics that clients watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["WatchedTopics"]


class WatchedTopics:
    """Reference counts per topic and for all topics, and the time of each topic's last use.

    A topic that is not watched stays in the snapshot for some time after its last use.
    """

    def __init__(self) -> None:
        self._watched: Counter[str] = Counter()
        self._everything = 0
        self._used: dict[str, float] = {}

    def watch(self, topics: Iterable[str]) -> set[str]:
        """Add a reference to each topic; return the topics that were not watched before."""
        added = set()
        for topic in topics:
            if not self._watched[topic]:
                added.add(topic)
            self._watched[topic] += 1
        return added

    def unwatch(self, topics: Iterable[str]) -> None:
        """Remove a reference from each topic; topics that are not watched are ignored."""
        for topic in topics:
            if self._watched[topic] > 1:
                self._watched[topic] -= 1
            else:
                del self._watched[topic]

    def watch_all(self) -> bool:
        """Add a reference to all topics; return whether no such reference existed before."""
        self._everything += 1
        return self._everything == 1

    def unwatch_all(self) -> None:
        """Undo one `watch_all`, if there is one."""
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
        """Record the time of a topic's last use."""
        self._used[topic] = now

    def idle(self, known: Iterable[str], now: float, limit: float) -> frozenset[str]:
        """Return unwatched topics of ``known`` that were not used for ``limit`` seconds.

        The times of last use of these topics are removed.
        """
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
