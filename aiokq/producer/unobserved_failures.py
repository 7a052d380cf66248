"""Owns the failed batches that nobody may have looked at, until flush or close reports them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aiokq.core.errors import DeliveryFailed, KafkaError, copy_error
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.fastpath.produce import Batch

__all__ = ["UnobservedFailures"]

MAX_BATCHES = 1_000
"""So many failed batches are remembered; of older ones only the numbers."""

MAX_DETAILS = 100
"""So many errors are in the DeliveryFailed of a flush; that of `send_many` has all outcomes."""


class UnobservedFailures:
    """Failed batches since the last report.

    Whether a failure was observed is asked when it is reported, not when it happens: the task
    that awaits a Delivery looks at it after the batch has failed.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[Batch, KafkaError]] = deque()
        self._older = 0
        self._older_partitions: set[TopicPartition] = set()

    def add(self, batch: Batch, error: KafkaError) -> None:
        """A batch failed."""
        self._batches.append((batch, error))
        if len(self._batches) > MAX_BATCHES:
            oldest, _ = self._batches.popleft()
            if oldest.unobserved:
                self._older += oldest.unobserved
                self._older_partitions.add(TopicPartition(oldest.topic, oldest.partition))

    def take(self) -> DeliveryFailed | None:
        """One error for all that was not observed; None if there is nothing. Forgets it."""
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
