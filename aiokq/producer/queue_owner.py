"""The protocols through which a PartitionQueue calls the rest of its producer, and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.core.errors import KafkaError
    from aiokq.fastpath.produce import Batch
    from aiokq.producer.partition_queue import PartitionQueue
    from aiokq.producer.queued_batch import QueuedBatch
    from aiokq.producer.values import ProducerValues

__all__ = ["NEVER", "QueueLimits", "QueueOutcomes", "QueueOwner", "QueueSenders"]

NEVER: Final = float("inf")
"""A time that never comes."""


class QueueOwner(Protocol):
    """What a queue shares with the other queues of its producer."""

    @property
    def hurried(self) -> bool:
        """Whether batches are sent without lingering: during flush, full memory, or close."""
        ...

    def opened(self, queue: PartitionQueue, batch: Batch) -> None:
        """Take note of a new open batch; raise a KafkaError to refuse it."""

    def schedule(self, queue: PartitionQueue, when: float) -> None:
        """Call `on_time` at `when` (monotonic seconds) or earlier."""

    def seal(self, queued: QueuedBatch) -> bool:
        """Compress and seal a batch; return False if that continues in the executor or failed."""
        ...

    def producer_id_needed(self) -> None:
        """Obtain a producer id, because a batch waits for it."""

    def regroup(self, queued: QueuedBatch, groups: Sequence[Sequence[int]]) -> list[QueuedBatch]:
        """Split a batch into new ones by record index; the Deliveries follow their records."""
        ...


class QueueSenders(Protocol):
    """The senders, as a queue sees them."""

    def ready(self, queue: PartitionQueue) -> None:
        """Offer the queue to the sender of its leader: something may be sent now."""

    def moved(self, queue: PartitionQueue, error: KafkaError) -> None:
        """Request new metadata: the leader has changed, or the partition is gone."""


class QueueOutcomes(Protocol):
    """The receiver of the outcomes of a queue's batches."""

    def delivered(self, queued: QueuedBatch, base_offset: int, log_append_time_ms: int) -> None:
        """Complete a batch that a broker acknowledged."""

    def failed(self, queued: QueuedBatch, error: KafkaError) -> None:
        """Fail a batch for good."""

    def retrying(self, queued: QueuedBatch, error: KafkaError) -> None:
        """Take note of a failed attempt that will be retried."""


@frozen
class QueueLimits:
    """The settings of all queues as plain values: they are read for every batch.

    Attributes:
        linger: `linger_ms` in seconds.
        delivery_timeout: `delivery_timeout_ms` in seconds.
        retries: how often a batch is retried.
        required_acks: 0, 1 or -1.
        max_in_flight: batches of a partition that may be in flight.
    """

    linger: float = 0.0
    delivery_timeout: float = 120.0
    retries: int = 2**31 - 1
    required_acks: int = -1
    max_in_flight: int = 5

    @classmethod
    def of(cls, settings: ProducerValues) -> QueueLimits:
        """Return the queue settings of a producer."""
        return cls(
            linger=settings.linger,
            delivery_timeout=settings.delivery_timeout,
            retries=settings.retries,
            required_acks=settings.required_acks,
            max_in_flight=settings.max_in_flight_requests_per_connection,
        )
