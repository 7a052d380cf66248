"""The typed events of a cluster, and the key under which the latest event is kept.

Each event type has one source: events about brokers, topics and partitions come from the reducer,
Throttled from the nodes, LoopStalled from the watchdog, DeliveriesFailed from the producer, and
group events from the consumer's group.
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
    """The subject of an event; of the events with the same key, only the latest is kept."""

    family: str
    subject: Hashable


@frozen
class Event(ABC):
    """Something that happened in the cluster or in one of its clients."""

    @property
    @abstractmethod
    def key(self) -> EventKey:
        """The subject of the event."""


@frozen
class BrokerUp(Event):
    """A broker is available: newly listed, at a new address, or reached again."""

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
    """A topic became known; its leaders are in the metadata snapshot."""

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
    """A topic was deleted and created again: its name is the same, its id and records are not."""

    topic: str
    previous_id: UUID
    topic_id: UUID
    partitions: int

    @property
    def key(self) -> EventKey:
        return EventKey("topic", self.topic)


@frozen
class PartitionsAdded(Event):
    """A topic has more partitions than before; ``partitions`` is the new number."""

    topic: str
    previous: int
    partitions: int

    @property
    def key(self) -> EventKey:
        return EventKey("topic", self.topic)


@frozen
class LeaderChanged(Event):
    """A known partition has a new leader, no leader (-1), or the same leader in a newer epoch."""

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
    """Requests for a partition fail; the client has started its recovery."""

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
    """The leader of a failed partition has answered that it leads the partition."""

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
    """A broker throttles this client because of a quota (KIP-219), and the client pauses."""

    node_id: int
    throttle_ms: int
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("throttle", self.node_id)


@frozen
class LoopStalled(Event):
    """The event loop was blocked for ``stalled_ms``; ``stack`` shows where."""

    stalled_ms: int
    stack: str
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("loop", None)


@frozen
class DeliveriesFailed(Event):
    """Records were not delivered, and nobody awaited their Deliveries: no caller saw the error."""

    client_id: str
    count: int
    error: str
    topic_partitions: tuple[TopicPartition, ...]
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("deliveries", self.client_id)


def member_key(group_id: str, member_id: str) -> EventKey:
    """Return the key of `Assigned`, `Revoked` and `Lost` events of a member.

    The three types share a key, so the latest event has the member's current assignment. The event
    is forgotten when the consumer is closed.
    """
    return EventKey("assignment", (group_id, member_id))


@frozen
class Assigned(Event):
    """Partitions were assigned to a member of a group, in addition to partitions that it kept."""

    group_id: str
    member_id: str
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    """All partitions of the member after this event."""

    @property
    def key(self) -> EventKey:
        return member_key(self.group_id, self.member_id)


@frozen
class Revoked(Event):
    """Partitions were revoked from a member, after it had the chance to commit their offsets."""

    group_id: str
    member_id: str
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    """All partitions of the member after this event."""

    @property
    def key(self) -> EventKey:
        return member_key(self.group_id, self.member_id)


@frozen
class Lost(Event):
    """Partitions were lost: another member may own them already, and commits are refused."""

    group_id: str
    member_id: str
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    """All partitions of the member after this event."""
    error: KafkaError | None = field(default=None, compare=False)
    """`MaxPollExceeded` if the application stopped polling, else the coordinator's error."""

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
"""The events that the reducer emits."""
