"""Decisions about InitProducerId: the returned id and epoch, which fence earlier producers.

Source: KIP-98, KIP-360, KIP-890, Kafka ``TransactionCoordinator.scala``.
"""

from __future__ import annotations

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.coordinator.transaction.decisions import Decision, needed
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import (
    LAST_EPOCH,
    TransactionMetadata,
)
from aiokq.core.errors import ConcurrentTransactions, ProducerFenced
from aiokq.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

__all__ = ["initialized"]


def initialized(
    current: TransactionMetadata | None,
    transactional_id: str,
    expected: TransactionalProducer | None,
    *,
    timeout_ms: int,
    server_version: int,
    spare_id: int | None,
    now_ms: int,
) -> Decision:
    """Decide the producer id and epoch to return; abort an open transaction first.

    Args:
        current: the metadata of the transactional id; None for a new transactional id.
        expected: the id and epoch that the producer has; None for a new producer.
        server_version: the finalized level of ``transaction.version``.

    Returns:
        The decision. If a transaction is aborted, the decision has the producer id
        `NO_PRODUCER_ID` and epoch -1.

    Raises:
        NeedsProducerId, ConcurrentTransactions, ProducerFenced: see `TransactionShard.initialize`.
    """
    if current is None:
        producer_id = needed(spare_id)
        current = TransactionMetadata.new(transactional_id, producer_id, timeout_ms, now_ms)
    elif current.state.is_prepared:
        raise ConcurrentTransactions()
    elif expected is not None and not _may_be_current(expected, current):
        raise ProducerFenced(f"{transactional_id} has another producer now")
    if current.state is TransactionState.ONGOING:
        aborted = current.fenced(server_version, now_ms)
        return Decision(aborted, TransactionalProducer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
    expected_epoch = None if expected is None else expected.producer_epoch
    known: tuple[int | None, ...] = (None, current.producer_epoch)
    if current.producer_epoch > LAST_EPOCH:  # this epoch only fences a producer
        known = (*known, current.last_epoch)
    if current.is_epoch_exhausted and expected_epoch in known:
        after = current.id_rotated(
            needed(spare_id),
            timeout_ms,
            keep_last_epoch=expected is not None,
            now_ms=now_ms,
        )
    else:
        after = current.epoch_bumped(timeout_ms, expected_epoch, now_ms)
    return Decision(after, after.producer)


def _may_be_current(expected: TransactionalProducer, current: TransactionMetadata) -> bool:
    """Whether a producer that requests a new epoch may be the current producer (KIP-360).

    The current producer may still send its previous id, if the response with the new id was lost.
    """
    return expected.producer_id == current.producer_id or (
        expected.producer_id == current.previous_producer_id
        and expected.producer_epoch >= LAST_EPOCH
    )
