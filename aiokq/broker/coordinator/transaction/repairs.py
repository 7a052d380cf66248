"""Repairs of a transactional id whose last records were lost in a power cut.

The records that producers wrote to data partitions show which records of ``__transaction_state``
were lost; `transaction_recovery` chooses the repair.
A repair is called with the metadata for which it was chosen, the finalized level of
``transaction.version`` and the time in milliseconds. It returns the metadata to write, or None if
the repair does not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import LAST_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.core.types import TopicPartition

    Repair = Callable[[TransactionMetadata, int, int], TransactionMetadata | None]

__all__ = ["abandoning", "adding_partition", "taking_epoch"]


def adding_partition(partition: TopicPartition) -> Repair:
    """Return the repair that adds a partition to the open transaction."""

    def repaired(
        found: TransactionMetadata, server_version: int, now_ms: int
    ) -> TransactionMetadata:
        return found.partitions_added((partition,), found.client_version, now_ms)

    return repaired


def abandoning(partition: TopicPartition, seen_epoch: int) -> Repair:
    """Return the repair that aborts a transaction which is open in a partition.

    The coordinator's log has lost this transaction. The repair also fences the producer.

    Args:
        seen_epoch: the epoch of the producer in the partition.
    """

    def repaired(
        found: TransactionMetadata, server_version: int, now_ms: int
    ) -> TransactionMetadata:
        return found.abandoned((partition,), seen_epoch, server_version, now_ms)

    return repaired


def taking_epoch(seen_epoch: int) -> Repair:
    """Return the repair that takes over the epoch that a producer has in a partition.

    The coordinator's log has lost this epoch. If the coordinator has an open transaction, that
    transaction has an earlier epoch. The record of its end was lost, too, so the repair aborts the
    transaction. The repair does not apply while a transaction is prepared, or if a transaction is
    open and `seen_epoch` is after `LAST_EPOCH`.
    """

    def repaired(
        found: TransactionMetadata, server_version: int, now_ms: int
    ) -> TransactionMetadata | None:
        if found.state.is_prepared:
            return None
        if found.state is not TransactionState.ONGOING:
            return found.epoch_restored(seen_epoch, now_ms)
        if seen_epoch > LAST_EPOCH:
            return None
        return found.abandoned((), seen_epoch, server_version, now_ms)

    return repaired
