"""Comparison of an open transaction in a partition with the coordinator's log, after a power cut.

The logs of the partition and of the coordinator are separate files, so either may have lost its
last records. This module only returns a verdict; `transaction_recovery` carries it out.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import (
    LAST_EPOCH,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import EPOCH_BUMP_VERSION

if TYPE_CHECKING:
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.broker.log.producer_state import ProducerEntry
    from aiokq.core.types import TopicPartition

__all__ = ["Found", "Verdict", "compare"]


class Found(NamedTuple):
    """The coordinator's data about a producer id."""

    metadata: TransactionMetadata
    """The metadata that has the producer id, or had this id before the last transition."""
    coordinator_epoch: int
    """The coordinator epoch of the shard that has the metadata."""
    ended: frozenset[TopicPartition] | None
    """The partitions of the last transaction that ended before the load; None if unknown."""


class Verdict(enum.Enum):
    """The verdict on a transaction that is open in a partition; the recovery carries it out."""

    ONGOING = "ongoing"
    """The coordinator has the transaction with this partition, and will end it.

    The recovery writes nothing.
    """

    INCOMPLETE = "incomplete"
    """The coordinator has the transaction without this partition: the partition is added."""

    COMMITTED = "committed"
    """The coordinator committed the transaction: the lost marker is written again."""

    ABORTED = "aborted"
    """The coordinator aborted the transaction: the lost marker is written again."""

    OUTDATED = "outdated"
    """The coordinator has a newer state of the producer: the transaction is aborted.

    The newer state is another producer id, a later epoch, or a prepared transaction without this
    partition.
    """

    UNKNOWN = "unknown"
    """The coordinator does not have the transaction: the transaction is aborted.

    If the coordinator has the producer id, and the epochs of this id are not used up, the abort
    also fences the producer.
    """


def compare(entry: ProducerEntry, partition: TopicPartition, found: Found | None) -> Verdict:
    """Return the verdict on a producer's open transaction in a partition.

    Up to ``transaction.version`` 1, successive transactions have the same epoch. If the coordinator
    has a complete transaction, there are two cases. Either the open transaction is that transaction
    and its marker was lost, or it is a later transaction that the coordinator lost. `_lacks_marker`
    distinguishes the two cases.

    Args:
        entry: the producer in the partition.
        found: the coordinator's data about the producer id; None if it does not have the id.
    """
    if found is None:
        return Verdict.UNKNOWN
    current = found.metadata
    epoch, state = entry.producer_epoch, current.state
    if current.producer_id != entry.producer_id:
        # The last transition replaced the producer id. If it was the end of this transaction, the
        # state is the outcome; if it was InitProducerId, the state is EMPTY.
        if epoch == LAST_EPOCH and current.producer_epoch == 0 and not state.is_prepared:
            return _outcome(state)
        return Verdict.OUTDATED
    if state is TransactionState.ONGOING:
        if epoch == current.producer_epoch:
            return Verdict.ONGOING if partition in current.partitions else Verdict.INCOMPLETE
    elif state is not TransactionState.EMPTY:
        bumps = current.client_version >= EPOCH_BUMP_VERSION
        if epoch == current.producer_epoch - bumps:
            if state.is_prepared:
                return Verdict.ONGOING if partition in current.partitions else Verdict.OUTDATED
            if bumps or _lacks_marker(entry, partition, found):
                return _outcome(state)
    return Verdict.OUTDATED if epoch < current.producer_epoch else Verdict.UNKNOWN


def _lacks_marker(entry: ProducerEntry, partition: TopicPartition, found: Found) -> bool:
    """Whether a partition was in the coordinator's last transaction and has no marker of it.

    If the partitions of that transaction are not known, only the time of the partition's last
    marker counts. A marker with the time at which the transaction began is a marker of the previous
    transaction, unless the transaction also ended at that time.
    """
    if found.ended is not None and partition not in found.ended:
        return False
    began, ended, marked = (
        found.metadata.started_ms,
        found.metadata.updated_ms,
        entry.last_marker_ms,
    )
    return marked < began or (marked == began and marked != ended)


def _outcome(state: TransactionState) -> Verdict:
    if state is TransactionState.COMPLETE_COMMIT:
        return Verdict.COMMITTED
    if state is TransactionState.COMPLETE_ABORT:
        return Verdict.ABORTED
    return Verdict.OUTDATED
