"""Decisions about EndTxn: whether a transaction ends, and the response to a repeated request.

Source: KIP-98, KIP-890, Kafka ``TransactionCoordinator.scala``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.transaction.decisions import Decision, fenced, known, needed
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import (
    LAST_EPOCH,
)
from aiokq.core.errors import ConcurrentTransactions, InvalidPidMapping, InvalidTxnState
from aiokq.records.header import EPOCH_BUMP_VERSION, NO_PRODUCER_ID

if TYPE_CHECKING:
    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata

__all__ = ["ended"]


def ended(
    current: TransactionMetadata | None,
    transactional_id: str,
    producer: TransactionalProducer,
    *,
    committed: bool,
    client_version: int,
    spare_id: int | None,
    now_ms: int,
) -> Decision:
    """Decide about EndTxn; the decision has the producer of the next transaction.

    Args:
        current: the metadata of the transactional id; None if it is unknown.
        client_version: the ``transaction.version`` that the request implies.

    Raises:
        NeedsProducerId, InvalidPidMapping, ProducerFenced, ConcurrentTransactions, InvalidTxnState:
            see `TransactionShard.end`.
    """
    if client_version < EPOCH_BUMP_VERSION:
        return _without_bump(
            known(current, transactional_id, producer.producer_id), producer, committed, now_ms
        )
    if current is None:
        raise InvalidPidMapping(f"{transactional_id} has no producer id")
    return _with_bump(current, producer, committed, client_version, spare_id, now_ms)


def _without_bump(
    current: TransactionMetadata, producer: TransactionalProducer, committed: bool, now_ms: int
) -> Decision:
    if current.producer_epoch != producer.producer_epoch:
        raise fenced(producer, current)
    if current.state is TransactionState.ONGOING:
        after = current.prepared(
            committed=committed,
            client_version=0,
            next_producer_id=NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        return Decision(after, after.producer)
    if current.state in _outcomes(committed):
        if current.state.is_prepared:
            raise ConcurrentTransactions()
        return Decision(None, current.producer)
    raise _wrong_state(current, committed)


def _with_bump(
    current: TransactionMetadata,
    producer: TransactionalProducer,
    committed: bool,
    client_version: int,
    spare_id: int | None,
    now_ms: int,
) -> Decision:
    """End a transaction of version 2, in which each end bumps the producer epoch.

    The epoch shows whether a request is a repetition: a repetition has the epoch before the last
    bump. An abort bumps the epoch even if no transaction is open. The producer may have sent a
    batch that has not arrived yet, and that batch must not begin a transaction after the abort.
    """
    state = current.state
    after_rotation = (
        current.previous_producer_id == producer.producer_id
        and current.producer_id != producer.producer_id
        and producer.producer_epoch == LAST_EPOCH
        and current.producer_epoch == 0
    )
    if state.is_prepared and (
        producer == current.producer or producer.producer_id == current.next_producer_id
    ):
        raise ConcurrentTransactions()  # the request ends a later transaction
    if current.producer_id != producer.producer_id and not after_rotation:
        raise InvalidPidMapping(
            f"the producer id of {current.transactional_id} is {current.producer_id}, not "
            f"{producer.producer_id}"
        )
    decided = state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    repeated = decided and (after_rotation or current.producer_epoch == producer.producer_epoch + 1)
    is_current = not after_rotation and current.producer_epoch == producer.producer_epoch
    if not repeated and (not is_current or state.is_prepared):
        raise fenced(producer, current)
    if repeated:
        if state not in _outcomes(committed):
            raise _wrong_state(current, committed)
        if state.is_prepared:
            raise ConcurrentTransactions()
        if current.producer_epoch > LAST_EPOCH:
            # The coordinator has aborted the transaction, for example after a timeout, and fenced
            # the producer by the current epoch. No producer may get this epoch, because no later
            # epoch could fence it. The producer, which now aborts, gets a new producer id instead.
            after = current.id_replaced(needed(spare_id), now_ms)
            return Decision(after, after.producer)
        return Decision(None, current.producer)
    if state is not TransactionState.ONGOING and committed:
        raise _wrong_state(current, committed)
    next_id = needed(spare_id) if current.is_epoch_exhausted else NO_PRODUCER_ID
    after = current.prepared(
        committed=committed,
        client_version=client_version,
        next_producer_id=next_id,
        now_ms=now_ms,
    )
    return Decision(after, after.next_producer)


def _outcomes(committed: bool) -> tuple[TransactionState, TransactionState]:
    """Return the PREPARE and the COMPLETE state of a commit, or else of an abort."""
    if committed:
        return TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
    return TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT


def _wrong_state(current: TransactionMetadata, committed: bool) -> InvalidTxnState:
    verb = "commit" if committed else "abort"
    return InvalidTxnState(
        f"cannot {verb} the transaction of {current.transactional_id}: its state is "
        f"{current.state.kafka_name}"
    )
