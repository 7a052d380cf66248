"""Interface through which a shard of the group coordinator looks up topics.

`RegistryTopicView` implements it for a node; tests implement it with a dictionary.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Protocol

from aiokq.core.named_tuple import NamedTuple

__all__ = ["TopicView", "ViewedTopic"]


class ViewedTopic(NamedTuple):
    """An existing topic."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    racks: Mapping[int, frozenset[str]] = {}
    """The racks of the replicas by partition; partitions without known racks are left out."""


class TopicView(Protocol):
    """The current topics of the cluster."""

    @property
    def version(self) -> int:
        """A number that is incremented whenever a topic is created, changed or deleted."""
        ...

    def topic(self, name: str) -> ViewedTopic | None:
        """Return the topic of this name; None if there is none."""
        ...

    def by_id(self, topic_id: uuid.UUID) -> ViewedTopic | None:
        """Return the topic of this id; None if there is none."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, including internal topics."""
        ...
