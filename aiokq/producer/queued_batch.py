"""QueuedBatch: a closed batch in its partition's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.core.errors import KafkaError
    from aiokq.fastpath.produce import Batch
    from aiokq.producer.idempotence import Stamp
    from aiokq.producer.partition_queue import PartitionQueue

__all__ = ["QueuedBatch"]


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
