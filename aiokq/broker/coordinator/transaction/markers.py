"""`LocalMarkers`: writes transaction markers to the partitions that this node leads.

Source: Kafka ``KafkaApis.handleWriteTxnMarkersRequest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiokq.broker.metadata.image.topic_names import OFFSETS_TOPIC
from aiokq.broker.replica.marker_append import append_marker
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.coordinator.runtime import AppendedMarker
    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.metadata.publisher.topics import TopicRegistry
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.clock import Clock
    from aiokq.core.types import TopicPartition
    from aiokq.records.control import EndTransactionMarker

__all__ = ["LocalMarkers"]


class _Groups(Protocol):
    """The group coordinator, whose state changes with the markers in its partitions."""

    def append_marker(
        self,
        partition: int,
        producer: TransactionalProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
    ) -> AppendedMarker: ...


class _Marker(NamedTuple):
    """A `completion.WrittenMarker` in a partition of a topic other than `__consumer_offsets`."""

    partition: Partition
    leader_epoch: int
    end_offset: int

    @property
    def is_committed(self) -> bool:
        """Whether the marker is committed in the leadership that wrote it."""
        partition = self.partition
        return (
            partition.is_online
            and partition.leader_epoch == self.leader_epoch
            and partition.high_watermark >= self.end_offset
        )

    async def committed(self) -> None:
        """Wait until the marker is committed.

        Raises:
            BrokerError: see `Commits.committed`.
        """
        await self.partition.commits.committed(self.end_offset, self.leader_epoch)


class LocalMarkers:
    """A `completion.MarkerLog` that writes to the partitions of this node."""

    def __init__(self, topics: TopicRegistry, groups: _Groups, clock: Clock) -> None:
        self._topics = topics
        self._groups = groups
        self._clock = clock

    def write(
        self,
        partition: TopicPartition,
        producer: TransactionalProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
    ) -> _Marker | AppendedMarker | None:
        """Append a marker; return None if the partition does not exist.

        Raises:
            BrokerError: see `append_marker`, `CoordinatorRuntime.append_marker`.
        """
        found = self._topics.partition(partition.topic, partition.partition)
        if found is None:
            return None
        if partition.topic == OFFSETS_TOPIC:
            return self._groups.append_marker(
                partition.partition, producer, marker, transaction_version
            )
        appended = append_marker(
            found,
            marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=found.leader_epoch,
            now_ms=self._clock.timestamp_ms(),
        )
        return _Marker(found, found.leader_epoch, appended.last_offset + 1)

    def is_open(self, partition: TopicPartition, producer_id: int) -> bool:
        """Whether a producer has an open transaction in a partition that this node leads."""
        found = self._topics.partition(partition.topic, partition.partition)
        if found is None or not found.is_online:
            return False
        return found.log.producers.has_open_transaction(producer_id)
