"""The settings and protocols by which a PartitionQueue knows the rest of its producer."""

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
"""A time that does not come."""


class QueueOwner(Protocol):
    """What a queue shares with the other queues of its producer."""

    @property
    def hurried(self) -> bool:
        """Whether batches go without lingering: a flush, full memory, or the end."""
        ...

    def opened(self, queue: PartitionQueue, batch: Batch) -> None:
        """The partition has a new open batch. Raises where it must not be."""

    def schedule(self, queue: PartitionQueue, when: float) -> None:
        """`on_time` is to be called at `when` (monotonic seconds) or before."""

    def seal(self, queued: QueuedBatch) -> bool:
        """Closes the batch, compressing it; False if that goes on outside of the loop, or the
        batch was given up as it cannot be done."""
        ...

    def producer_id_needed(self) -> None:
        """A batch waits for a producer id."""

    def regroup(self, queued: QueuedBatch, groups: Sequence[Sequence[int]]) -> list[QueuedBatch]:
        """New batches of the records at these indexes; their Deliveries follow."""
        ...


class QueueSenders(Protocol):
    """The senders, as a queue sees them."""

    def ready(self, queue: PartitionQueue) -> None:
        """Something may be sent now: offer the queue to the sender of its leader."""

    def moved(self, queue: PartitionQueue, error: KafkaError) -> None:
        """The leader is another, or the partition is gone: new metadata is needed."""


class QueueOutcomes(Protocol):
    """Takes the outcomes of a queue's batches."""

    def delivered(self, queued: QueuedBatch, base_offset: int, log_append_time_ms: int) -> None:
        """A broker acknowledged the batch."""

    def failed(self, queued: QueuedBatch, error: KafkaError) -> None:
        """The batch failed for good."""

    def retrying(self, queued: QueuedBatch, error: KafkaError) -> None:
        """An attempt failed, and the batch will be sent again."""


@frozen
class QueueLimits:
    """The settings that queues go by, as plain values: they are read for every batch.

    Attributes:
        linger: seconds.
        delivery_timeout: seconds.
        retries: how often a batch is sent again.
        required_acks: 0, 1 or -1.
        max_in_flight: batches of a partition that may be without an answer.
    """

    linger: float = 0.0
    delivery_timeout: float = 120.0
    retries: int = 2**31 - 1
    required_acks: int = -1
    max_in_flight: int = 5

    @classmethod
    def of(cls, settings: ProducerValues) -> QueueLimits:
        """The part of a producer's settings that is the queues'."""
        return cls(
            linger=settings.linger,
            delivery_timeout=settings.delivery_timeout,
            retries=settings.retries,
            required_acks=settings.required_acks,
            max_in_flight=settings.max_in_flight_requests_per_connection,
        )
