"""Admission of transactional batches: the partition must be in the producer's transaction.

The transaction coordinator is called only before the first batch of a transaction in a partition.
After that batch, the log shows that the transaction is open. Produce and TxnOffsetCommit share
these rules. The fast path of Produce calls `TransactionCoordinator.add_now` instead.

Source: KIP-890, Kafka ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``,
``UnifiedLog.maybeStartTransactionVerification``, ``AddPartitionsToTxnManager.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.errors import (
    BrokerError,
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
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.types import TopicPartition

__all__ = ["TransactionRules", "join_transaction"]


class TransactionRules(NamedTuple):
    """The rules that depend on the version of a request."""

    adds: bool
    """Whether the request adds the partition to the transaction (``transaction.version`` 2)."""
    knows_abortable: bool
    """Whether the request version has the error TRANSACTION_ABORTABLE."""


async def join_transaction(
    admission: Admission,
    configs: Configs,
    partition: Partition,
    transactional_id: str,
    producer: TransactionalProducer,
    rules: TransactionRules,
    counters: BrokerCounters,
    also: Collection[TopicPartition] = (),
) -> None:
    """Ensure that the partition is in the producer's transaction.

    The function does not await after the last check, so the caller may append immediately. If
    `rules.adds` is False, ``transaction.partition.verification.enable=false`` disables the check by
    the transaction coordinator.

    Args:
        also: other partitions of the request. If `partition` has to be added to the transaction,
            these partitions are added together with it.

    Raises:
        InvalidTxnState, TransactionAbortable: the partition is not in the transaction.
        InvalidRequest: the transactional id is empty.
        InvalidPidMapping: the transactional id has another producer id, or none.
        InvalidProducerEpoch: the producer id has another epoch, or the partition has a batch with a
            newer epoch.
        NotEnoughReplicas: the coordinator is not available; the producer's open transaction has not
            been compared with the coordinator's log yet after an unclean shutdown; or `rules.adds`
            is False and the markers of the previous transaction are being written. Old clients
            retry after NOT_ENOUGH_REPLICAS.
        ConcurrentTransactions: `rules.adds` is True, and the markers of the previous transaction
            are being written.
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
        await _ensure(admission, transactional_id, producer, partition.name, added, counters)
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


async def _ensure(
    admission: Admission,
    transactional_id: str,
    producer: TransactionalProducer,
    partition: TopicPartition,
    added: Collection[TopicPartition],
    counters: BrokerCounters,
) -> None:
    """Let the transaction coordinator check or add partitions; count its errors."""
    try:
        await admission.ensure(transactional_id, producer, partition, add=added)
    except BrokerError as error:
        counters.transaction_verifications_failed[error.name] += 1
        raise
