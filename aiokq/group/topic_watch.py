"""TopicWatch: gets the partitions, racks and names of topics for a group member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from aiokq.assign.model import Topology
from aiokq.cluster.events import (
    Event,
    EventKey,
    PartitionsAdded,
    TopicAdded,
    TopicRecreated,
    TopicRemoved,
)
from aiokq.core.errors import KafkaError
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.metadata import TopicInfo

__all__ = ["TopicWatch"]


class TopicWatch:
    """Watches topics in the cluster's metadata for one member.

    Args:
        changed: called with the new topology when a watched topic was created, deleted or
            recreated, or got more partitions, but not while `learn` is running.
        replaced: called with the name of each topic in the cluster's metadata that was deleted or
            recreated, whether it is watched or not.
        named: called with the names of topics whose ids were passed to `name`.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        *,
        changed: Callable[[Topology], None],
        replaced: Callable[[str], None],
        named: Callable[[Mapping[UUID, str]], None],
    ) -> None:
        self._engine = engine
        self._changed = changed
        self._replaced = replaced
        self._named = named
        self._watched: frozenset[str] = frozenset()
        self._nameless: frozenset[UUID] = frozenset()
        self._known = False
        self._changes = engine.changes.subscribe(self._on_change, replay=False)

    def close(self) -> None:
        """Stop watching topics."""
        self._changes.close()
        self._engine.unwatch(self._watched)
        self._watched = frozenset()

    async def learn(self, topics: frozenset[str]) -> Topology:
        """Request the partitions of these topics, and watch the topics from now on.

        A topic that does not exist has no partitions. If the request fails, but the client already
        has metadata of all the topics, the call returns their partitions from this metadata. If
        metadata of a topic is missing, the request is repeated after a retriable error.

        Raises:
            KafkaError: the request failed with an error that is not retriable, and the client has
                no metadata of some topic.
        """
        self._known = False
        engine = self._engine
        before, self._watched = self._watched, topics
        engine.watch(topics - before)
        engine.unwatch(before - topics)
        backoff = engine.new_backoff()
        while topics:
            try:
                await engine.refresh(topics)
            except KafkaError as error:
                if topics <= engine.metadata.topics.keys():
                    break
                if not error.retriable:
                    raise
                await asyncio.sleep(backoff.next())
            else:
                break
        self._known = True
        return self._topology()

    def name(self, topic_ids: frozenset[UUID]) -> None:
        """Call `named` with the names of these topics as soon as they are known."""
        self._nameless = topic_ids
        self._notify_names()
        if self._nameless:
            # Refresh all topics, because a topic that matches the subscribed regex may be new.
            self._engine.refresher.refresh()

    def _topology(self) -> Topology:
        metadata = self._engine.metadata
        partitions: dict[str, int] = {}
        racks: dict[TopicPartition, frozenset[str]] = {}
        rack_of = {node_id: broker.rack for node_id, broker in metadata.brokers.items()}
        for topic in self._watched:
            info = metadata.topics.get(topic)
            if info is None:
                continue
            partitions[topic] = len(info.partitions)
            racks.update(_racks(info, rack_of))
        return Topology(partitions, racks)

    def _on_change(self, key: EventKey, event: Event) -> None:
        if isinstance(event, TopicRecreated | TopicRemoved):
            self._replaced(event.topic)
        if isinstance(event, TopicAdded | PartitionsAdded | TopicRecreated | TopicRemoved):
            if self._nameless:
                self._notify_names()
            if self._known and event.topic in self._watched:
                self._changed(self._topology())

    def _notify_names(self) -> None:
        names = {
            info.topic_id: info.name
            for info in self._engine.metadata.topics.values()
            if info.topic_id in self._nameless
        }
        if names:
            self._nameless -= names.keys()
            self._named(names)


def _racks(
    info: TopicInfo, rack_of: Mapping[int, str | None]
) -> dict[TopicPartition, frozenset[str]]:
    found: dict[TopicPartition, frozenset[str]] = {}
    for number, partition in info.partitions.items():
        racks = frozenset(
            rack for node in partition.replicas if (rack := rack_of.get(node)) is not None
        )
        if racks:
            found[TopicPartition(info.name, number)] = racks
    return found
