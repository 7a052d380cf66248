"""Admission of transactional batches: the partition must be in the producer's transaction.

Only the first batch of a transaction in a partition asks the transaction coordinator. From then on
the log knows that the transaction is open. Produce and TxnOffsetCommit share these rules; on its
fast path, Produce adds partitions by `TransactionCoordinator.add_now`.

Source: KIP-890, Kafka ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``,
``UnifiedLog.maybeStartTransactionVerification``, ``AddPartitionsToTxnManager.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.handlers.areas import Admission, Configs
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.types import TopicPartition

__all__ = ["TransactionRules", "join_transaction"]


class TransactionRules(NamedTuple):
    """What the version of a request implies."""

    adds: bool
    """Whether the partition is added to the transaction, as from ``transaction.version`` 2 on."""
    knows_abortable: bool
    """Whether the client knows TRANSACTION_ABORTABLE."""


async def join_transaction(
    admission: Admission,
    configs: Configs,
    partition: Partition,
    transactional_id: str,
    producer: TransactionalProducer,
    rules: TransactionRules,
    also: Collection[TopicPartition] = (),
) -> None:
    """Ensure that the partition is in the producer's transaction.

    On return this is so, and nothing was awaited since it was found.

    Args:
        also: other partitions of the request, which are added to the transaction together with this
            one if it has to be added.

    Raises:
        InvalidTxnState, TransactionAbortable: the partition is not in the transaction.
        InvalidPidMapping: the transactional id has another producer id.
        InvalidProducerEpoch: the producer id has another epoch, or a newer epoch has written to
            the partition, which is found without the coordinator.
        NotEnoughReplicas: the coordinator cannot be asked now; a transaction that was open before
            an unclean shutdown is not verified yet; or the partition is not to be added,
            and the markers of the transaction before are being written. Old clients retry after
            this error.
        ConcurrentTransactions: the partition is to be added, and the markers of the transaction
            before are being written.
        KafkaStorage, NotLeaderOrFollower, UnknownTopicOrPartition: see `Partition.log`.
    """
    producers = partition.log.producers
    if producers.in_transaction(*producer):
        return
    producers.check_epoch(*producer)
    if producers.is_unverified(producer.producer_id):
        raise NotEnoughReplicas(
            "the open transaction is being compared with the transaction coordinator"
        )
    if not rules.adds and not configs.settings.transaction_partition_verification_enable:
        return
    try:
        added = (partition.name, *also) if rules.adds else ()
        await admission.ensure(transactional_id, producer, partition.name, add=added)
    except TransactionAbortable as error:
        if rules.knows_abortable:
            raise
        raise InvalidTxnState(error.message) from error
    except ProducerFenced as error:
        raise InvalidProducerEpoch(error.message) from error
    except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator) as error:
        raise NotEnoughReplicas(f"the transaction cannot be checked: {error.message}") from error
    except ConcurrentTransactions as error:
        if rules.adds:
            raise
        raise NotEnoughReplicas("the transaction before is being ended") from error
