"""BatchCompletion: completes, fails and counts batches, and reports their outcomes.

Only this module counts delivered and failed records, calls the hooks `on_ack` and `on_error`, and
collects the failures that `flush()` raises.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import InternalError, KafkaError, RequestTimeout, TransactionAborted
from aiokq.producer.interceptors import BatchInfo, Interceptors, batch_info
from aiokq.producer.unobserved_failures import UnobservedFailures

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.fastpath.produce import Batch, QueuedBatch
    from aiokq.producer.incomplete_batches import IncompleteBatches

__all__ = ["BatchCompletion"]

logger = logging.getLogger("aiokq.producer")

_REPORTED: Final = (InternalError, TransactionAborted)
"""Errors that `failed` logs at DEBUG only, because they are reported elsewhere.

An InternalError is logged where the bug occurs. A TransactionAborted is raised by the calls of the
transaction.
"""

RETRYING: Final = "records are sent again"
EXPIRED: Final = "records are given up"
"""RETRYING and EXPIRED name the two kinds of outage that the producer logs."""


class BatchCompletion:
    """Completes and fails batches, and reports each outcome.

    Attributes:
        delivered_records: number of records delivered since the start.
        failed_records: number of records that failed since the start.
        on_failed: called with the error of each failed batch, before the batch's Deliveries raise
            the error.
        failures: the batches that failed since `failures.take` was last called. `flush()` and the
            end of `async with` raise or log the failures that no caller has observed. The end of a
            transaction forgets all failures.
    """

    def __init__(
        self, engine: ClusterEngine, interceptors: Interceptors, incomplete: IncompleteBatches
    ) -> None:
        self._clock = engine.environment.clock
        self._counters = engine.counters
        self._outages = engine.outages
        # None if there are no interceptors, because `is not None` is the fastest test per batch.
        self._interceptors = interceptors or None
        self._incomplete = incomplete
        self.failures = UnobservedFailures()
        self.on_failed: Callable[[KafkaError], None] | None = None
        self.delivered_records = 0
        self.failed_records = 0

    # Hot path, once per batch; measured by benchmarks/micro/producer.py.
    def delivered(self, queued: QueuedBatch, base_offset: int, log_append_time_ms: int) -> None:
        batch = queued.batch
        count = batch.count
        counters = self._counters
        counters.records_sent += count
        counters.record_bytes_sent += batch.size
        counters.batches_sent += 1
        counters.batch_bytes_sent += queued.size
        counters.delivery_seconds.observe(self._clock.monotonic() - batch.created)
        self.delivered_records += count
        if self._outages.troubled:
            place = queued.queue.topic_partition
            self._outages.recovered(RETRYING, place)
            self._outages.recovered(EXPIRED, place)
        batch.complete(base_offset, log_append_time_ms)
        self._incomplete.remove(batch)
        if self._interceptors is not None:
            self._interceptors.ack(batch_info(queued, base_offset))

    def failed(self, queued: QueuedBatch, error: KafkaError) -> None:
        """Fail a batch of a queue for good, and log its failure.

        A batch that already has an outcome is only removed from the incomplete batches.
        """
        batch = queued.batch
        if batch.done:
            self._incomplete.remove(batch)
            return
        if isinstance(error, RequestTimeout) and error.origin == "client":
            # In an outage all batches expire one after the other; they share one log line.
            place = queued.queue.topic_partition
            self._outages.lost(EXPIRED, place, error, records=batch.count)
        else:
            logger.log(
                logging.DEBUG if isinstance(error, _REPORTED) else logging.ERROR,
                "batch failed: topic=%s partition=%s records=%s attempts=%s error=%s",
                batch.topic,
                batch.partition,
                batch.count,
                queued.attempts,
                error,
            )
        self._fail(batch, error)
        if self._interceptors is not None:
            self._interceptors.error(batch_info(queued), error)

    def failed_unqueued(self, batch: Batch, error: KafkaError) -> None:
        """Fail a batch that is in no queue, or whose queue does not report the failure."""
        self._fail(batch, error)
        if self._interceptors is not None:
            info = BatchInfo(batch.topic, batch.partition, batch.count, batch.size, attempt=0)
            self._interceptors.error(info, error)

    def retrying(self, queued: QueuedBatch, error: KafkaError) -> None:
        """Count and log an attempt that failed and will be repeated."""
        self._counters.batches_retried += 1
        self._counters.retries["Produce"] += 1
        place = queued.queue.topic_partition
        where = {"node": queued.node_id, "partition": place}
        self._outages.failed(RETRYING, queued.node_id, error, where=where, member=place)

    def _fail(self, batch: Batch, error: KafkaError) -> None:
        if self.on_failed is not None:
            self.on_failed(error)
        self._counters.records_failed += batch.count
        self.failed_records += batch.count
        self.failures.add(batch, error)
        batch.fail(error)
        self._incomplete.remove(batch)
