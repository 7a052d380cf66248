"""QueuedBatch, what a queue holds, and what a PartitionQueue wants of its owner and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.core.errors import KafkaError
    from aiokq.fastpath.produce import Batch
    from aiokq.producer.idempotence import Stamp
    from aiokq.producer.queue import PartitionQueue
    from aiokq.producer.values import ProducerValues

__all__ = ["NEVER", "QueueLimits", "QueueOutcomes", "QueueOwner", "QueueSenders", "QueuedBatch"]

NEVER: Final = float("inf")
"""A time that does not come."""


class QueuedBatch:
    """One batch that takes no more records, on its way.

    Attributes:
        batch: the native batch with its Deliveries.
        deadline: monotonic seconds at which it fails if it is not acknowledged.
        sealed: compressed, if it is to be; `size` is final.
        sealing: its compression runs outside of the event loop.
        size: bytes as it is sent.
        stamp: its numbers; they stay while it may have been written.
        attempts: how often it was handed to a connection.
        in_flight: the answer to its newest attempt is due.
        node_id: broker of that attempt.
        uncertain: an attempt may have written it without our hearing of it.
        torn: it is a part of a batch that may have been written whole: a broker would not
            recognize it as a repetition, but refuse it as out of order.
        expired: failed already; the answer still tells whether its numbers were used.
        done: completed or failed, and not to be sent any more.
        error: of the newest attempt that was refused.
    """

    __slots__ = (
        "attempts",
        "batch",
        "deadline",
        "done",
        "error",
        "expired",
        "in_flight",
        "node_id",
        "queue",
        "sealed",
        "sealing",
        "size",
        "stamp",
        "torn",
        "uncertain",
    )

    def __init__(self, queue: PartitionQueue, batch: Batch, deadline: float) -> None:
        self.queue = queue
        self.batch = batch
        self.deadline = deadline
        self.sealed = False
        self.sealing = False
        self.size = batch.size
        self.stamp: Stamp | None = None
        self.attempts = 0
        self.in_flight = False
        self.node_id = -1
        self.uncertain = False
        self.torn = False
        self.expired = False
        self.done = False
        self.error: KafkaError | None = None


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
