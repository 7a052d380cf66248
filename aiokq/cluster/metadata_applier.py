"""`MetadataApplier`, which applies metadata responses to the state of the cluster.

The applier also counts the responses, logs an error for a response of another cluster, and forgets
topics that are no longer in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiokq.cluster.reducer_inputs import MetadataReceived, TopicsForgotten
from aiokq.cluster.state_store import ClusterStateStore
from aiokq.cluster.watched_topics import WatchedTopics
from aiokq.core.counters import ClientCounters

__all__ = ["MetadataApplier"]

logger = logging.getLogger("aiokq.cluster")


class MetadataApplier:
    """Applies metadata responses to the store.

    Args:
        watched_topics: the topics in use.
        max_idle: seconds that a topic is kept after its last use if nothing watches it.
        now: returns the loop's time.
    """

    def __init__(
        self,
        store: ClusterStateStore,
        watched_topics: WatchedTopics,
        counters: ClientCounters,
        *,
        max_idle: float,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._watched_topics = watched_topics
        self._counters = counters
        self._max_idle = max_idle
        self._now = now

    def take(self, received: MetadataReceived) -> None:
        store = self._store
        self._counters.metadata_refreshes += 1
        known = store.state.metadata.cluster_id
        if known is not None and received.cluster_id not in (None, known):
            logger.error(
                "a response came from another cluster: expected=%s got=%s; check bootstrap_servers",
                known,
                received.cluster_id,
            )
        store.apply(received)
        metadata = store.state.metadata
        idle = self._watched_topics.idle(
            [*metadata.topics, *metadata.topic_errors], self._now(), self._max_idle
        )
        idle -= {topic.name for topic in received.topics}
        if idle:
            store.apply(TopicsForgotten(idle))
            store.forget(idle)
