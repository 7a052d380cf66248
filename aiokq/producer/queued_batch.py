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
    """A closed batch and the state of its delivery.

    Attributes:
        batch: the native batch with its Deliveries.
        deadline: monotonic seconds at which it fails if it is not acknowledged.
        sealed: whether it is compressed, if it has a codec, and `size` is final.
        sealing: whether it is being compressed outside of the event loop.
        size: bytes as sent; before compression until it is `sealed`.
        stamp: its producer id, epoch and first sequence number, or None; kept while it may have
            been written.
        attempts: how often it was sent.
        in_flight: whether the response to the newest attempt is outstanding.
        node_id: broker of the newest attempt.
        uncertain: whether an attempt without a known result may have written it.
        torn: whether it is part of a split batch that may have been written whole: a broker
            would refuse it as out of order instead of recognizing a duplicate.
        expired: whether it has failed although it is in flight; the response still tells whether
            its sequence numbers were used.
        done: whether it was completed or failed, and will not be sent again.
        error: error of the newest attempt that was refused.
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
