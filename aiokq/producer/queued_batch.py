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
        batch: the batch of the accumulator, with its records and Deliveries.
        deadline: monotonic seconds at which the batch fails if it is not acknowledged.
        sealed: whether the batch is ready to be sent: it is compressed, or has no codec.
        sealing: whether the batch is being compressed outside of the event loop.
        size: size of the batch in bytes as it is sent; before `sealed`, the uncompressed size.
        codec: id of the codec that the batch is compressed with; 0 before `sealed`, and if the
            batch is sent uncompressed.
        stamp: producer id, epoch and first sequence number of the batch, or None. A batch that may
            have been written keeps its stamp.
        attempts: number of times that the batch was sent.
        in_flight: whether the response to the newest attempt is outstanding.
        node_id: id of the broker of the newest attempt.
        uncertain: whether an attempt without a known result may have written the batch.
        torn: whether the batch is a part of a split batch that may have been written before the
            split. A broker would refuse the part as out of order instead of recognizing a
            duplicate.
        expired: whether the batch has failed although it is in flight. The response still shows
            whether the batch's sequence numbers were used.
        done: whether the batch was removed from its queue, because it was delivered, has failed, or
            was replaced by its parts. An expired batch in flight is not done.
        error: error of the newest attempt that failed; None if no attempt has failed.
    """

    __slots__ = (
        "attempts",
        "batch",
        "codec",
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
        self.codec = 0
        self.stamp: Stamp | None = None
        self.attempts = 0
        self.in_flight = False
        self.node_id = -1
        self.uncertain = False
        self.torn = False
        self.expired = False
        self.done = False
        self.error: KafkaError | None = None
