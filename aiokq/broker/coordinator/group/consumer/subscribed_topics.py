"""The topics that a group subscribes to: their ids, and the hash of their metadata.

Subscribed names without a topic are left out until the topic is created.

Source: Kafka ``TopicIds.java``, ``Utils.computeGroupHash`` (KIP-1101).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from operator import attrgetter

from aiokq.assign.server_model import TopicSpec
from aiokq.broker.coordinator.group.consumer.member import ConsumerMember
from aiokq.broker.coordinator.group.consumer.regex import ResolvedRegex
from aiokq.broker.coordinator.group.topic_view import TopicView

__all__ = ["Subscriptions", "metadata_hash"]


class Subscriptions:
    """Resolver of subscriptions during one change of a group; resolves equal subscriptions once.

    Attributes:
        topics: the topics of the subscriptions resolved so far, by id.
    """

    def __init__(self, view: TopicView, regexes: Mapping[str, ResolvedRegex]) -> None:
        self._view = view
        self._regexes = regexes
        self._known: dict[tuple[frozenset[str], str], frozenset[uuid.UUID]] = {}
        self.topics: dict[uuid.UUID, TopicSpec] = {}

    def of(self, member: ConsumerMember) -> frozenset[uuid.UUID]:
        """Return the ids of the existing topics that a member subscribes to, by name or regex."""
        key = member.topic_names, member.topic_regex
        ids = self._known.get(key)
        if ids is None:
            names = member.topic_names
            resolved = self._regexes.get(member.topic_regex)
            if resolved is not None:
                names = names | resolved.topics
            ids = self._known[key] = frozenset(self._ids(names))
        return ids

    def _ids(self, names: Iterable[str]) -> Iterable[uuid.UUID]:
        for name in names:
            topic = self._view.topic(name)
            if topic is not None:
                if topic.topic_id not in self.topics:
                    self.topics[topic.topic_id] = TopicSpec(
                        topic.name, topic.partitions, topic.racks
                    )
                yield topic.topic_id


def metadata_hash(names: Iterable[str], view: TopicView) -> int:
    """Return a signed 64-bit hash of id, name, partitions and racks of the topics that exist.

    The hash is 0 if none of the topics exists. Kafka uses XXH3. The difference is harmless: after
    aiokq has loaded a hash that Kafka wrote, it recomputes the target assignment once.
    """
    # Sort after the look-up, because a member may subscribe to many names that have no topic.
    found = [topic for name in names if (topic := view.topic(name)) is not None]
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in sorted(found, key=attrgetter("name")):
        digest.update(topic.topic_id.bytes)
        racks = sorted((number, sorted(names)) for number, names in topic.racks.items())
        digest.update(repr((topic.name, topic.partitions, racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
