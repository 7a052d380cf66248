"""What coordinators may know of topics: an interface, and the value it gives.

Owns nothing; `runtime` gives the view of the node's topics, tests one of a dictionary.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

__all__ = ["TopicView", "ViewedTopic"]


class ViewedTopic(NamedTuple):
    """A topic that exists."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    racks: Mapping[int, frozenset[str]] = {}
    """By partition, the racks that have a replica; without those that have none."""


class TopicView(Protocol):
    """The topics of the cluster as they are now."""

    @property
    def version(self) -> int:
        """Grows whenever a topic is created, grown or deleted."""
        ...

    def topic(self, name: str) -> ViewedTopic | None:
        """The topic of this name, if there is one."""
        ...

    def by_id(self, topic_id: uuid.UUID) -> ViewedTopic | None:
        """The topic of this id, if there is one."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics, internal ones too."""
        ...
