"""Admission of transactional batches: the partition must be in the producer's transaction.

Only the first batch of a transaction in a partition asks the transaction coordinator. From then on
the log knows that the transaction is open.

Source: KIP-890, Kafka ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``,
``AddPartitionsToTxnManager.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.core.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Configs, Transactions
    from aiokq.broker.replica.partition import Partition
    from aiokq.records.header import BatchHeader

__all__ = ["join_transaction"]

FIRST_WITH_TRANSACTION_ABORTABLE: Final = 11
FIRST_THAT_ADDS: Final = 12
"""The first version of Produce by which a producer adds a partition to its transaction."""


async def join_transaction(
    transactions: Transactions,
    configs: Configs,
    partition: Partition,
    header: BatchHeader,
    transactional_id: str,
    version: int,
) -> None:
    """Ensure that the partition is in the transaction of a batch.

    On return this is so, and nothing was awaited since it was found.

    Args:
        version: the version of the Produce request.

    Raises:
        InvalidTxnState, TransactionAbortable: the partition is not in the transaction.
        InvalidPidMapping: the transactional id has another producer id.
        InvalidProducerEpoch: the producer id has another epoch.
        NotEnoughReplicas: the coordinator cannot be asked now, or, before version 12, the markers
            of the transaction before are being written. Old clients retry after this error.
        ConcurrentTransactions: from version 12 on, the markers of the transaction before are being
            written.
        OutOfOrderSequence: from version 12 on, see `ProducerState.check_start`.
    """
    adds = version >= FIRST_THAT_ADDS
    producers = partition.log.producers
    if producers.in_transaction(header.producer_id, header.producer_epoch):
        return
    if not adds and not configs.settings.transaction_partition_verification_enable:
        return
    try:
        await transactions.ensure(
            transactional_id,
            TransactionalProducer(header.producer_id, header.producer_epoch),
            partition.name,
            add=adds,
        )
    except TransactionAbortable as error:
        if version >= FIRST_WITH_TRANSACTION_ABORTABLE:
            raise
        raise InvalidTxnState(error.message) from error
    except ProducerFenced as error:
        raise InvalidProducerEpoch(error.message) from error
    except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator) as error:
        raise NotEnoughReplicas(f"the transaction cannot be checked: {error.message}") from error
    except ConcurrentTransactions as error:
        if adds:
            raise
        raise NotEnoughReplicas("the transaction before is being ended") from error
    if adds:
        partition.log.producers.check_start(header)
