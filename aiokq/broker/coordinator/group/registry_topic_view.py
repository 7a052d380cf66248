"""Adapter from a node's topic registry to `TopicView`.

This module is separate from `topic_view`, because shards and their tests import `topic_view`
without a registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.topic_view import ViewedTopic

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Mapping

    from aiokq.broker.metadata.publisher.topics import Topic, TopicRegistry

__all__ = ["RegistryTopicView"]


class RegistryTopicView:
    """A `TopicView` of a topic registry.

    Args:
        racks: returns the rack of each live node, None for a node without a rack.
    """

    def __init__(
        self, topics: TopicRegistry, racks: Callable[[], Mapping[int, str | None]]
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._version = 0
        topics.listeners.append(self._changed)

    def _changed(self, topic: Topic) -> None:
        self._version += 1

    @property
    def version(self) -> int:
        return self._version

    def topic(self, name: str) -> ViewedTopic | None:
        found = self._topics.get(name)
        return None if found is None else self._view(found)

    def by_id(self, topic_id: uuid.UUID) -> ViewedTopic | None:
        found = self._topics.by_id(topic_id)
        return None if found is None else self._view(found)

    def names(self) -> Iterable[str]:
        return [topic.name for topic in self._topics]

    def _view(self, topic: Topic) -> ViewedTopic:
        racks = {node: rack for node, rack in self._racks().items() if rack}
        partition_racks = {}
        if racks:
            for partition in topic.partitions:
                found = frozenset(racks[node] for node in partition.replicas if node in racks)
                if found:
                    partition_racks[partition.index] = found
        return ViewedTopic(topic.name, topic.topic_id, len(topic.partitions), partition_racks)
