"""Learning: what an answer about metadata changes beside the state; asks for nothing itself.

Counts it, warns where another cluster answers, and lets topics go that nobody uses any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiokq.cluster.inputs import MetadataReceived, TopicsForgotten
from aiokq.cluster.interest import Interest
from aiokq.cluster.view import ClusterView
from aiokq.core.counters import ClientCounters

__all__ = ["Learning"]

logger = logging.getLogger("aiokq.cluster")


class Learning:
    """Takes metadata into the view.

    Args:
        interest: who wants which topics.
        max_idle: seconds after their last use that unwatched topics are kept.
        now: the loop's time.
    """

    def __init__(
        self,
        view: ClusterView,
        interest: Interest,
        counters: ClientCounters,
        *,
        max_idle: float,
        now: Callable[[], float],
    ) -> None:
        self._view = view
        self._interest = interest
        self._counters = counters
        self._max_idle = max_idle
        self._now = now

    def take(self, received: MetadataReceived) -> None:
        """Take an answer in."""
        view = self._view
        self._counters.metadata_refreshes += 1
        known = view.state.metadata.cluster_id
        if known is not None and received.cluster_id not in (None, known):
            logger.error(
                "another cluster answers: expected=%s got=%s; check bootstrap_servers",
                known,
                received.cluster_id,
            )
        view.apply(received)
        metadata = view.state.metadata
        idle = self._interest.idle(
            [*metadata.topics, *metadata.topic_errors], self._now(), self._max_idle
        )
        idle -= {topic.name for topic in received.topics}
        if idle:
            view.apply(TopicsForgotten(idle))
            view.forget(idle)
