"""What distinguishes one coordinator of a node from another: its topic, keys, records and shards.

Source: Kafka ``CoordinatorRuntime.Builder``, ``CoordinatorShardBuilder.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from aiokq.broker.coordinator.shard import Shard

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Timers
    from aiokq.broker.metadata.topic_layout import TopicSpec
    from aiokq.core.types import Buffer

__all__ = ["CoordinatorDefinition", "ShardFactory"]

S_co = TypeVar("S_co", bound=Shard, covariant=True)


class ShardFactory(Protocol[S_co]):
    """Makes the shards of a coordinator, and encodes their records."""

    def new_shard(self, timers: Timers, leader_epoch: int) -> S_co:
        """Return an empty shard, for one leadership of its partition.

        Args:
            timers: of this shard; the runtime runs them.
            leader_epoch: of the partition, which is a transaction coordinator's epoch.
        """
        ...

    def encode(self, record: CoordinatorRecord, /) -> tuple[bytes, bytes | None]:
        """Return a record's key and value as the log stores them.

        Raises:
            ProtocolError: a field does not fit its type.
        """
        ...

    def decode(self, key: Buffer | None, value: Buffer | None, /) -> CoordinatorRecord | None:
        """Return the record of a key and value; None if its type is unknown and to be ignored.

        Raises:
            ProtocolError: the bytes are no record of the type they claim to be.
        """
        ...


class CoordinatorDefinition(Protocol[S_co]):
    """The settings of one coordinator; the runtime holds no rule of any particular one."""

    @property
    def topic(self) -> str:
        """The internal topic whose partitions hold the state."""
        ...

    @property
    def entries(self) -> str:
        """What a shard is made of, in the plural, for log lines and background tasks: `groups`."""
        ...

    def topic_spec(self, live_brokers: int) -> TopicSpec:
        """How the topic is created, with no more replicas than there are live brokers."""
        ...

    def partition_of(self, key: str, partitions: int) -> int:
        """Return the partition that coordinates a key, of so many partitions."""
        ...

    def shard_factory(self) -> ShardFactory[S_co]:
        """Import what shards need. Runs in the executor, when the first shard is needed."""
        ...
