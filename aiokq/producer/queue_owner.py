"""QueueLimits, and protocols through which a PartitionQueue calls other parts of a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.core.errors import KafkaError
    from aiokq.fastpath.produce import Batch, QueuedBatch
    from aiokq.producer.partition_queue import PartitionQueue
    from aiokq.producer.values import ProducerValues

__all__ = ["NEVER", "QueueLimits", "QueueOutcomes", "QueueOwner", "QueueSenders", "SendGate"]

NEVER: Final = float("inf")
"""A time that is never reached."""


class QueueOwner(Protocol):
    """The services and state that a queue shares with the other queues of its producer."""

    @property
    def hurried(self) -> bool:
        """Whether batches do not linger, for example because of a flush or a wait for memory."""
        ...

    def opened(self, queue: PartitionQueue, batch: Batch) -> None:
        """Register a new open batch with one record. The record is refused if the call raises."""

    def schedule(self, queue: PartitionQueue, when: float) -> None:
        """Call the queue's `on_time` at `when` (monotonic seconds) or earlier."""

    def seal(self, queued: QueuedBatch) -> bool:
        """Compress and seal a batch; return whether the batch is sealed now."""
        ...

    def producer_id_needed(self) -> None:
        """Request a producer id, because a batch waits for it."""

    def regroup(self, queued: QueuedBatch, groups: Sequence[Sequence[int]]) -> list[QueuedBatch]:
        """Split a batch by record index into one new batch per group.

        The Deliveries of the batch move to the new batches.
        """
        ...


class SendGate(Protocol):
    """The methods of a producer's transactions that its queues call."""

    @property
    def refusal(self) -> KafkaError | None:
        """The error that unsent batches fail with; None if batches may be sent."""

    def sequence_lost(self) -> None:
        """Record that a batch with sequence numbers of this epoch failed and may leave a gap."""

    def admits(self, queue: PartitionQueue) -> bool:
        """Return whether the next batch of a partition may be sent now.

        If the result is False, the queue is offered again when the batch may be sent. If batches
        must not be sent at all, the unsent batches of the queue fail soon instead.
        """
        ...


class QueueSenders(Protocol):
    """The methods of the senders that a queue calls."""

    def ready(self, queue: PartitionQueue) -> None:
        """Offer the queue to the sender of its leader, because a batch may be ready."""

    def moved(self, queue: PartitionQueue, error: KafkaError) -> None:
        """Report an error after which the leader may have changed; request new metadata."""


class QueueOutcomes(Protocol):
    """The receiver of the outcomes of a queue's batches."""

    def delivered(self, queued: QueuedBatch, base_offset: int, log_append_time_ms: int) -> None:
        """Complete a delivered batch."""

    def failed(self, queued: QueuedBatch, error: KafkaError) -> None:
        """Fail a batch for good."""

    def retrying(self, queued: QueuedBatch, error: KafkaError) -> None:
        """Count and log a failed attempt that will be retried."""


@frozen
class QueueLimits:
    """The settings of all queues as plain values, because they are read for every batch.

    Attributes:
        linger: `linger_ms` in seconds.
        delivery_timeout: `delivery_timeout_ms` in seconds.
        retries: largest number of retries of a batch.
        required_acks: the `acks` field of Produce requests: 0, 1 or -1.
        max_in_flight: largest number of batches of a partition in flight.
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
