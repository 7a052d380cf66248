"""Comparison of an open transaction in a partition with the coordinator's log, after a power cut.

The two are separate files, so either may have lost its last records. This module only decides;
`transaction_recovery` acts.
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
    """What the coordinator knows of a producer id."""

    metadata: TransactionMetadata
    """The metadata whose producer id it is, or was until the last transition."""
    coordinator_epoch: int
    """The coordinator epoch of the shard that has the metadata."""
    ended: frozenset[TopicPartition] | None
    """The partitions of the last transaction that ended before the start; None if not known."""


class Verdict(enum.Enum):
    """What becomes of a transaction that is open in a partition."""

    ONGOING = "ongoing"
    """The coordinator has it, too: its producer or its timeout ends it."""

    INCOMPLETE = "incomplete"
    """The coordinator has it, and lost that the partition is in it: the partition is added."""

    COMMITTED = "committed"
    """The coordinator committed it, and the partition lost the marker: it is written again."""

    ABORTED = "aborted"
    """The coordinator aborted it, and the partition lost the marker: it is written again."""

    OUTDATED = "outdated"
    """The coordinator has a newer producer epoch: it is aborted."""

    UNKNOWN = "unknown"
    """The coordinator lost it, or never had it: it is aborted, and its producer is fenced."""


def compare(entry: ProducerEntry, partition: TopicPartition, found: Found | None) -> Verdict:
    """Return the verdict on a producer's open transaction in a partition.

    Up to ``transaction.version`` 1, successive transactions have one epoch. The open one is then
    taken for the completed one, whose marker was lost, unless the partition has a marker since that
    one began, or was not in it: then it is a later one, which the coordinator lost.

    Args:
        entry: the producer in the partition.
        found: what the coordinator knows of the producer id; None if nothing.
    """
    if found is None:
        return Verdict.UNKNOWN
    current = found.metadata
    epoch, state = entry.producer_epoch, current.state
    if current.producer_id != entry.producer_id:
        # The producer id was changed since. Only the end of the last transaction of the old one
        # does so, unless the producer was initialized.
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
    """Whether a partition was in the last transaction, and has no marker since that one began.

    The marker of the transaction before may have been written in the millisecond of the begin.
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
