"""Interface of a coordinator's definition: its topic, key partitioning, records and shards.

Source: Kafka ``CoordinatorRuntime.Builder``, ``CoordinatorShardBuilder.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from aiokq.broker.coordinator.shard import Shard

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Timers
    from aiokq.broker.metadata.controller.topic_layout import TopicSpec

__all__ = ["CoordinatorDefinition", "ShardFactory"]

S_co = TypeVar("S_co", bound=Shard, covariant=True)


class ShardFactory(Protocol[S_co]):
    """Factory of a coordinator's shards, and encoder of their records."""

    def new_shard(self, timers: Timers, leader_epoch: int) -> S_co:
        """Return an empty shard, for one leadership of its partition.

        Args:
            timers: the timers of this shard; the runtime runs the due timers.
            leader_epoch: the leader epoch of the partition; a transaction coordinator uses it as
                its coordinator epoch.
        """
        ...

    def encode(self, record: CoordinatorRecord, /) -> tuple[bytes, bytes | None]:
        """Return a record's key and value as the log stores them.

        Raises:
            ProtocolError: a field does not fit its type.
        """
        ...


class CoordinatorDefinition(Protocol[S_co]):
    """The topic, key partitioning and shards of one coordinator, as the runtime needs them."""

    @property
    def topic(self) -> str:
        """The internal topic whose partitions hold the state."""
        ...

    @property
    def noun(self) -> str:
        """The plural noun for a shard's entries, such as `groups`, for log lines and task names."""
        ...

    def topic_spec(self, live_brokers: int) -> TopicSpec:
        """Return the topic to create, with at most `live_brokers` replicas per partition."""
        ...

    def partition_of(self, key: str, partitions: int) -> int:
        """Return the index of the partition that coordinates a key.

        Args:
            partitions: the number of partitions of the topic.
        """
        ...

    def shard_factory(self) -> ShardFactory[S_co]:
        """Import the modules of shards and return their factory.

        The runtime calls this method in the executor, when the first shard is needed.
        """
        ...
