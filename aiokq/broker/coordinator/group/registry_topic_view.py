"""The topics of a node as its coordinators see them. Owns a count of their changes.

Kept apart from `topic_view`, which machines and tests import without a registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.topic_view import ViewedTopic

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable

    from aiokq.broker.node import BrokerEndpoint
    from aiokq.broker.topics import Topic, TopicRegistry

__all__ = ["RegistryView"]


class RegistryView:
    """A `TopicView` of a registry."""

    def __init__(
        self, topics: TopicRegistry, brokers: Callable[[], Iterable[BrokerEndpoint]]
    ) -> None:
        self._topics = topics
        self._brokers = brokers
        self._version = 0
        topics.listeners.append(self._changed)

    def _changed(self, topic: Topic) -> None:
        self._version += 1

    @property
    def version(self) -> int:
        """Grows whenever a topic is created, grown or deleted."""
        return self._version

    def topic(self, name: str) -> ViewedTopic | None:
        """The topic of this name, if there is one."""
        return self._view(self._topics.get(name))

    def by_id(self, topic_id: uuid.UUID) -> ViewedTopic | None:
        """The topic of this id, if there is one."""
        return self._view(self._topics.by_id(topic_id))

    def names(self) -> Iterable[str]:
        """The names of all topics, internal ones too."""
        return [topic.name for topic in self._topics]

    def _view(self, topic: Topic | None) -> ViewedTopic | None:
        if topic is None:
            return None
        racks = {broker.node_id: broker.rack for broker in self._brokers() if broker.rack}
        where = {}
        if racks:
            for partition in topic.partitions:
                found = frozenset(racks[node] for node in partition.replicas if node in racks)
                if found:
                    where[partition.index] = found
        return ViewedTopic(topic.name, topic.topic_id, len(topic.partitions), where)
