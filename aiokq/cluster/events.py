"""The typed events of a cluster, and the key under which the latest event is kept.

Each event type has one source: events about brokers, topics and partitions come from the reducer,
Throttled from the nodes, LoopStalled from the watchdog, group events from the consumer's group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import field
from typing import TypeAlias
from uuid import UUID

from aiokq.core.errors import KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = [
    "Assigned",
    "BrokerDown",
    "BrokerUp",
    "DeliveriesFailed",
    "Event",
    "EventKey",
    "LeaderChanged",
    "LoopStalled",
    "Lost",
    "PartitionFailed",
    "PartitionRecovered",
    "PartitionsAdded",
    "Revoked",
    "Throttled",
    "TopicAdded",
    "TopicRecreated",
    "TopicRemoved",
]


@frozen
class EventKey:
    """What an event is about: of several events with one key only the latest is state."""

    family: str
    subject: Hashable


@frozen
class Event(ABC):
    """Something that happened in the cluster or in one of its clients."""

    @property
    @abstractmethod
    def key(self) -> EventKey:
        """The subject whose latest state this event is."""


@frozen
class BrokerUp(Event):
    """A broker is known and believed to answer: newly listed, moved, or reached again."""

    node_id: int
    host: str
    port: int

    @property
    def key(self) -> EventKey:
        return EventKey("broker", self.node_id)


@frozen
class BrokerDown(Event):
    """A broker cannot be reached, or the cluster no longer lists it."""

    node_id: int
    reason: str

    @property
    def key(self) -> EventKey:
        return EventKey("broker", self.node_id)


@frozen
class TopicAdded(Event):
    """A topic became known, with the leaders that the metadata snapshot has."""

    topic: str
    topic_id: UUID
    partitions: int

    @property
    def key(self) -> EventKey:
        return EventKey("topic", self.topic)


@frozen
class TopicRemoved(Event):
    """A topic no longer exists."""

    topic: str
    topic_id: UUID

    @property
    def key(self) -> EventKey:
        return EventKey("topic", self.topic)


@frozen
class TopicRecreated(Event):
    """A topic was deleted and created again: same name, other id, other records."""

    topic: str
    previous_id: UUID
    topic_id: UUID
    partitions: int

    @property
    def key(self) -> EventKey:
        return EventKey("topic", self.topic)


@frozen
class PartitionsAdded(Event):
    """A topic has more partitions than before; ``partitions`` is their number now."""

    topic: str
    previous: int
    partitions: int

    @property
    def key(self) -> EventKey:
        return EventKey("topic", self.topic)


@frozen
class LeaderChanged(Event):
    """A known partition has another leader, none (-1), or the same in a newer epoch."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    previous_leader: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> EventKey:
        return EventKey("leader", self.topic_partition)


@frozen
class PartitionFailed(Event):
    """Requests for a partition fail; its recovery is being looked after."""

    topic: str
    partition: int
    error: str
    """Kafka's name of the error, or ``CONNECTION_LOST``."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> EventKey:
        return EventKey("partition", self.topic_partition)


@frozen
class PartitionRecovered(Event):
    """A failed partition has a leader that answers and agrees that it leads."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> EventKey:
        return EventKey("partition", self.topic_partition)


@frozen
class Throttled(Event):
    """A broker asked for a pause because of a quota (KIP-219); it is being kept."""

    node_id: int
    throttle_ms: int
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("throttle", self.node_id)


@frozen
class LoopStalled(Event):
    """The event loop ran nothing for ``stalled_ms``; ``stack`` is what it was doing."""

    stalled_ms: int
    stack: str
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("loop", None)


@frozen
class DeliveriesFailed(Event):
    """Records that nobody awaited were not delivered, and no exception could say so."""

    client_id: str
    count: int
    error: str
    topic_partitions: tuple[TopicPartition, ...]
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("deliveries", self.client_id)


def member_key(group_id: str, member_id: str) -> EventKey:
    """The subject of the three events below.

    They share it, so that the latest of them tells what a member owns, and partitions that are
    given, taken and given again are news each time. Who leaves a group forgets its key.
    """
    return EventKey("assignment", (group_id, member_id))


@frozen
class Assigned(Event):
    """Partitions were given to a member of a group, beside those it kept."""

    group_id: str
    member_id: str
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    """All that it owns after this."""

    @property
    def key(self) -> EventKey:
        return member_key(self.group_id, self.member_id)


@frozen
class Revoked(Event):
    """Partitions were taken from a member in order; it could still commit."""

    group_id: str
    member_id: str
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    """All that it owns after this."""

    @property
    def key(self) -> EventKey:
        return member_key(self.group_id, self.member_id)


@frozen
class Lost(Event):
    """Partitions were lost: another member may own them already, commits are refused."""

    group_id: str
    member_id: str
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    """All that it owns after this."""
    error: KafkaError | None = field(default=None, compare=False)
    """Why: `MaxPollExceeded` if nobody asked for records, else what the coordinator said."""

    @property
    def key(self) -> EventKey:
        return member_key(self.group_id, self.member_id)


MetadataEvent: TypeAlias = (
    BrokerUp
    | BrokerDown
    | TopicAdded
    | TopicRemoved
    | TopicRecreated
    | PartitionsAdded
    | LeaderChanged
    | PartitionFailed
    | PartitionRecovered
)
"""What the reducer gives."""
