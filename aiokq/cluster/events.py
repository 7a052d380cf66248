"""The typed events of a cluster, and the key under which the latest event is kept.

Each event type has one source: events about brokers, topics and partitions come from the reducer,
Throttled from the nodes, LoopStalled from the watchdog, DeliveriesFailed from the producer,
ProcessAborted and DeadLettered from `process()`, and group events from the consumer's group.
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
    "DeadLettered",
    "DeliveriesFailed",
    "Event",
    "EventKey",
    "LeaderChanged",
    "LoopStalled",
    "Lost",
    "PartitionFailed",
    "PartitionRecovered",
    "PartitionsAdded",
    "ProcessAborted",
    "Revoked",
    "Throttled",
    "TopicAdded",
    "TopicRecreated",
    "TopicRemoved",
]


@frozen
class EventKey:
    """The subject of an event. Only the latest event of each key is kept."""

    family: str
    subject: Hashable


@frozen
class Event(ABC):
    """Something that happened in the cluster or in one of its clients."""

    @property
    @abstractmethod
    def key(self) -> EventKey:
        """The key of the event; only the latest event of each key is kept."""


@frozen
class _BrokerEvent(Event):
    node_id: int

    @property
    def key(self) -> EventKey:
        return EventKey("broker", self.node_id)


@frozen
class _TopicEvent(Event):
    topic: str

    @property
    def key(self) -> EventKey:
        return EventKey("topic", self.topic)


@frozen
class _PartitionEvent(Event):
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> EventKey:
        return EventKey("partition", self.topic_partition)


@frozen
class BrokerUp(_BrokerEvent):
    """A broker is available: newly listed, at a new address, or reached again."""

    host: str
    port: int


@frozen
class BrokerDown(_BrokerEvent):
    """A broker cannot be reached, or the cluster no longer lists it."""

    reason: str


@frozen
class TopicAdded(_TopicEvent):
    """A topic became known; its leaders are in the metadata snapshot."""

    topic_id: UUID
    partitions: int


@frozen
class TopicRemoved(_TopicEvent):
    """A topic no longer exists."""

    topic_id: UUID


@frozen
class TopicRecreated(_TopicEvent):
    """A topic was deleted and created again under the same name, with a new id and new records."""

    previous_id: UUID
    topic_id: UUID
    partitions: int


@frozen
class PartitionsAdded(_TopicEvent):
    """A topic has more partitions than before; ``partitions`` is the new number."""

    previous: int
    partitions: int


@frozen
class LeaderChanged(_PartitionEvent):
    """A known partition has a new leader, no leader (-1), or the same leader in a newer epoch."""

    leader: int
    leader_epoch: int
    previous_leader: int

    @property
    def key(self) -> EventKey:
        return EventKey("leader", self.topic_partition)


@frozen
class PartitionFailed(_PartitionEvent):
    """A request for a partition failed, or its leader was lost; the partition is in recovery."""

    error: str
    """Kafka's name of the error, or ``CONNECTION_LOST``."""


@frozen
class PartitionRecovered(_PartitionEvent):
    """A partition works again: the leader confirmed its leadership, or a request succeeded."""

    leader: int
    leader_epoch: int


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
    """Records were not delivered; no caller saw the error, because no Delivery was awaited."""

    client_id: str
    count: int
    error: str
    topic_partitions: tuple[TopicPartition, ...]
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("deliveries", self.client_id)


@frozen
class ProcessAborted(Event):
    """`process()` discarded the results since its last commit, and handles the records again."""

    group_id: str
    records: int
    error: str
    timestamp_ms: int

    @property
    def key(self) -> EventKey:
        return EventKey("process", self.group_id)


@frozen
class DeadLettered(_PartitionEvent):
    """`process()` committed a record, or a batch, to a dead-letter topic."""

    offset: int
    group_id: str
    dead_letter_topic: str
    error: str

    @property
    def key(self) -> EventKey:
        return EventKey("dead letter", (self.group_id, self.topic_partition))


def member_key(group_id: str, member_id: str) -> EventKey:
    """Return the key of `Assigned`, `Revoked` and `Lost` events of a member.

    The three types share a key, so the latest event has the member's current assignment. The event
    is forgotten when the consumer is closed.
    """
    return EventKey("assignment", (group_id, member_id))


@frozen
class _MemberEvent(Event):
    group_id: str
    member_id: str
    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    """All partitions of the member after this event."""

    @property
    def key(self) -> EventKey:
        return member_key(self.group_id, self.member_id)


@frozen
class Assigned(_MemberEvent):
    """Partitions were assigned to a member of a group, in addition to partitions that it kept."""


@frozen
class Revoked(_MemberEvent):
    """Partitions were revoked from a member, after it had the chance to commit their offsets."""


@frozen
class Lost(_MemberEvent):
    """Partitions were lost: another member may own them already, and commits are refused."""

    error: KafkaError | None = field(default=None, compare=False)
    """`MaxPollExceeded` if the application stopped polling, else why the membership ended."""


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
