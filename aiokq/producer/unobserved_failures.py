"""UnobservedFailures: collects failures for flush() and `async with`, which raise them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aiokq.core.errors import DeliveryFailed, KafkaError, copy_error
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.fastpath.produce import Batch

__all__ = ["UnobservedFailures"]

MAX_BATCHES = 1_000
"""Maximum number of failed batches that are kept. For older batches, only the partitions and the
number of unobserved records are kept.
"""

MAX_DETAILS = 100
"""Maximum number of errors in the DeliveryFailed that `take` returns.

The DeliveryFailed of `send_many` has the outcomes of all records.
"""


class UnobservedFailures:
    """The batches that failed since the last call of `take`.

    `take` checks which failures were observed. At the time of the failure, the check would be too
    early: a task that awaits a Delivery gets the error later.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[Batch, KafkaError]] = deque()
        self._older = 0
        self._older_partitions: set[TopicPartition] = set()

    def add(self, batch: Batch, error: KafkaError) -> None:
        self._batches.append((batch, error))
        if len(self._batches) > MAX_BATCHES:
            oldest, _ = self._batches.popleft()
            if oldest.unobserved:
                self._older += oldest.unobserved
                self._older_partitions.add(TopicPartition(oldest.topic, oldest.partition))

    def take(self) -> DeliveryFailed | None:
        """Return one error for all unobserved failures, or None; forget all failures."""
        if not self._batches and not self._older:
            return None
        count = self._older
        partitions = dict.fromkeys(sorted(self._older_partitions))
        errors: list[KafkaError] = []
        for batch, error in self._batches:
            unobserved = batch.unobserved
            if not unobserved:
                continue
            count += unobserved
            partitions[TopicPartition(batch.topic, batch.partition)] = None
            details = min(unobserved, MAX_DETAILS - len(errors))
            errors.extend(copy_error(error) for _ in range(details))
        self._batches.clear()
        self._older = 0
        self._older_partitions.clear()
        if not count:
            return None
        failed = DeliveryFailed(count, errors, list(partitions))
        if errors:
            failed.__cause__ = errors[0]
        return failed
