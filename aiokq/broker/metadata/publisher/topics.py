"""The topics of a node as requests see them, with their partitions and settings.

The publisher adds, changes and removes topics according to the metadata image.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from aiokq.broker.metadata.image.topic_names import INTERNAL_TOPICS
from aiokq.broker.replica.served_topic import ProduceLimits

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.replica.partition import Partition

__all__ = ["Topic", "TopicRegistry"]


class Topic:
    """A topic of the node, with its partitions and settings.

    Attributes:
        configs: the topic's own settings, by Kafka's names.
        config: all settings, typed, including defaults.
        limits: limits of a client's batch, according to `config`.
    """

    __slots__ = ("config", "configs", "limits", "name", "partitions", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: uuid.UUID,
        configs: Mapping[str, str],
        config: LogConfig,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[Partition] = []
        self.configure(configs, config)

    def configure(self, configs: Mapping[str, str], config: LogConfig) -> None:
        """Replace the settings; `config` has all settings, including defaults."""
        self.configs = configs
        self.config = config
        self.limits = ProduceLimits.of(config, is_internal=self.is_internal)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class TopicRegistry:
    """The topics of a node, by name and by id. Used from the node's loop only.

    Attributes:
        listeners: called with a topic after the topic was created or deleted, after partitions were
            added to it, and after one of its logs was opened by a recovery or a retry. `get` no
            longer returns a deleted topic.
    """

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self.listeners: list[Callable[[Topic], None]] = []

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def sorted(self) -> list[Topic]:
        return [self._topics[name] for name in sorted(self._topics)]

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self._topics.get(topic)
        return None if found is None else found.partition(index)

    def add(self, topic: Topic) -> None:
        """Add a topic, so that requests find it."""
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def remove(self, topic: Topic) -> None:
        """Remove a topic, so that requests do not find it."""
        del self._topics[topic.name]
        del self._by_id[topic.topic_id]
        if len(self._topics) > len(self._by_id):  # two topics had the same id
            self._by_id = {each.topic_id: each for each in self._topics.values()}

    def notify(self, topic: Topic) -> None:
        for listener in self.listeners:
            listener(topic)
