"""Arguments and results of the admin client's calls about transactions and producers."""

from __future__ import annotations

from typing import Self

from aiokq.admin.kafka_names import KafkaName
from aiokq.core import limits
from aiokq.core.errors import KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = [
    "AbortTransactionSpec",
    "FencedProducer",
    "PartitionProducers",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]


class TransactionState(KafkaName):
    """The state of a transactional id."""

    EMPTY = "Empty"
    """The producer is initialized and has no transaction."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """The transaction is committed; its markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    """The transaction is aborted; its markers are being written."""
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """The producer is being fenced, before its transaction is aborted."""
    UNKNOWN = "Unknown"


@frozen
class TransactionListing:
    """A transactional id in a listing.

    Attributes:
        coordinator: node id of the broker that listed the transactional id.
    """

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: int


@frozen
class TransactionDescription:
    """A transactional id and its transaction.

    Attributes:
        coordinator: node id of the transaction coordinator; -1 if it is unknown.
        transaction_timeout_ms: the coordinator aborts a transaction this many milliseconds after
            its start.
        start_timestamp_ms: start of the open or last transaction, in milliseconds since 1970; None
            if no transaction began since the producer was initialized.
        topic_partitions: partitions of the transaction, sorted. While the transaction is being
            committed or aborted, these are the partitions that have no marker yet.
    """

    transactional_id: str
    coordinator: int = -1
    state: TransactionState = TransactionState.UNKNOWN
    producer_id: int = -1
    producer_epoch: int = -1
    transaction_timeout_ms: int = -1
    start_timestamp_ms: int | None = None
    topic_partitions: tuple[TopicPartition, ...] = ()
    error: KafkaError | None = None


@frozen
class ProducerState:
    """The state of a producer in a replica of a partition.

    Attributes:
        last_sequence: sequence number of the producer's last record; -1 if no record followed the
            producer's last transaction marker.
        last_timestamp_ms: timestamp of the producer's last batch, in milliseconds since 1970.
        coordinator_epoch: epoch of the coordinator that wrote the producer's last transaction
            marker; None if there is no marker.
        current_transaction_start_offset: first offset of the producer's open transaction; None if
            no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None = None
    current_transaction_start_offset: int | None = None


@frozen
class PartitionProducers:
    """The producers of one partition, sorted by producer id."""

    topic_partition: TopicPartition
    producers: tuple[ProducerState, ...] = ()
    error: KafkaError | None = None


@frozen
class FencedProducer:
    """The result of fencing one producer.

    Attributes:
        producer_id: the current producer id of the transactional id; usually also the id of the
            fenced producer.
        producer_epoch: the current epoch of `producer_id`; newer than the epoch of the fenced
            producer if both have the same producer id.
    """

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1
    error: KafkaError | None = None


@frozen
class AbortTransactionSpec:
    """An open transaction in a partition, for `Admin.abort_transaction`.

    Args:
        topic_partition: the partition, or a tuple of topic and partition number.
        producer_id: id of the producer.
        producer_epoch: epoch of the producer in this partition.
        coordinator_epoch: epoch of the transaction coordinator. A partition refuses an epoch that
            is older than that of the producer's last marker.

    Raises:
        ValueError, TypeError: an argument is out of range, or not of the expected type.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "topic_partition", TopicPartition.of(self.topic_partition))
        limits.whole(self.producer_id, "producer_id", 0, limits.INT64_MAX)
        limits.whole(self.producer_epoch, "producer_epoch", 0, INT16_MAX)
        limits.count(self.coordinator_epoch, "coordinator_epoch", 0)

    @classmethod
    def of(cls, topic_partition: TopicPartition, producer: ProducerState) -> Self:
        """Return the spec of a producer's open transaction.

        If the partition has no marker of the producer, the coordinator epoch is 0. The partition
        accepts a marker with this epoch, and later markers of any coordinator.
        """
        return cls(
            topic_partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch or 0,
        )


INT16_MAX = 2**15 - 1
