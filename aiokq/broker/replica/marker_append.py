"""Append of a marker that ends a transaction in a partition.

Source: Kafka ``KafkaApis.handleWriteTxnMarkersRequest``, ``ReplicaManager.appendRecords``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.log.appending import MarkerAppend
from aiokq.broker.replica.admission import admit_marker
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.broker.log.appending import AppendResult
    from aiokq.broker.replica.partition import Partition
    from aiokq.records.control import EndTransactionMarker

__all__ = ["append_marker"]


def append_marker(
    partition: Partition,
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    transaction_version: int,
    leader_epoch: int,
    now_ms: int,
) -> AppendResult:
    """Append a marker; on return it is in the log, but is not necessarily committed.

    Args:
        transaction_version: the level of `transaction.version` at which the transaction ended.
        leader_epoch: the leader epoch in which the marker is to be written.

    Raises:
        NotLeaderOrFollower, KafkaStorage, UnknownTopicOrPartition, NotEnoughReplicas: see
            `admit_marker`.
        InvalidProducerEpoch, TransactionCoordinatorFenced: see `ProducerState.check_marker`.
    """
    admit_marker(partition, leader_epoch)
    return partition.append_prepared(
        MarkerAppend(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
            now_ms=now_ms,
            crc32c=crc32c,
        )
    )
