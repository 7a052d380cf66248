"""Admission of a batch: the checks that depend on topic, time and replica.

``admit`` is for batches of clients; the fast and the general path of Produce both call it.
``admit_own`` is for batches of the broker itself, which coordinators append. Checks of the batch
alone are made when it is read: by ``fastpath.read_produced`` on the fast path, by
``log.validation`` on the general path. Checks that need the log (sequences, segment size) are made
by the append.

Source: Kafka ``ReplicaManager.appendToLocalLog``, ``Partition.appendRecordsToLeader``.
Tests: ``tests/unit/broker/replica/test_admission.py``, ``tests/property/test_ordinary_produce.py``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from aiokq.broker.log.validation import check_size, needs_executor
from aiokq.broker.replica.commits import ALL
from aiokq.core.errors import InvalidTopic, NotEnoughReplicas

if TYPE_CHECKING:
    from aiokq.broker.replica.partition import Partition
    from aiokq.records.header import BatchHeader

__all__ = ["Preparation", "admit", "admit_marker", "admit_own"]


class Preparation(enum.Enum):
    """Where a batch is prepared for its append."""

    ON_THE_LOOP = "the batch is checked by its records or changed, which takes little time"
    OFF_THE_LOOP = "the batch is checked by its records or changed, which may take long"


def admit(
    partition: Partition, header: BatchHeader, acks: int, now_ms: int, *, by_admin: bool = False
) -> Preparation | None:
    """Check that a client's batch may be appended; return where to prepare it for the append.

    None means that the batch is stored unchanged, and that its header is enough to check it.

    Args:
        acks: the acks of the Produce request.
        now_ms: the broker's time, in milliseconds since the Unix epoch.
        by_admin: whether the client may write to internal topics, as Kafka's admin client may.

    Raises:
        InvalidTopic: the topic is internal, and ``by_admin`` is false.
        NotLeaderOrFollower, KafkaStorage: this node does not lead the partition, or cannot use its
            log.
        UnknownTopicOrPartition: the topic was deleted.
        NotEnoughReplicas: acks=all, and fewer than ``min_isr`` replicas are in sync.
        RecordTooLarge: the batch is larger than ``max.message.bytes``.
    """
    # Hot path, measured by benchmarks/micro/produce.py.
    topic = partition.topic
    is_internal, max_bytes, rules = topic.limits
    if is_internal and not by_admin:
        raise InvalidTopic(
            f"topic {topic.name} is internal: only the broker and admin clients write to it"
        )
    if partition.unavailable is not None:
        partition.log  # noqa: B018 - raises the reason
    if acks == ALL and len(partition.isr) < partition.min_isr:
        raise _too_few(partition)
    if rules.suffice_for(header, now_ms):
        return None
    check_size(header, max_bytes)
    if needs_executor(topic.config, header, now_ms):
        return Preparation.OFF_THE_LOOP
    return Preparation.ON_THE_LOOP


def admit_own(partition: Partition, header: BatchHeader, leader_epoch: int) -> None:
    """Check that a batch of the broker itself may be appended, as with acks=all.

    A batch that could not be committed at present is refused before it is appended.

    Args:
        leader_epoch: the leader epoch in which the content of the batch was decided.

    Raises:
        NotLeaderOrFollower, KafkaStorage: this node does not lead the partition in this epoch, or
            cannot use its log.
        UnknownTopicOrPartition: the topic was deleted.
        NotEnoughReplicas: fewer than ``min_isr`` replicas are in sync.
        RecordTooLarge: the batch is larger than ``max.message.bytes``.

    Source: Kafka ``TransactionLog.EnforcedRequiredAcks``. Kafka's group coordinator appends with
    acks=1 (``CoordinatorPartitionWriter``), and then waits for the commit until a timeout. Clients
    of Kafka get the same error, but only after that timeout.
    """
    admit_marker(partition, leader_epoch)
    check_size(header, partition.topic.limits.max_bytes)


def admit_marker(partition: Partition, leader_epoch: int) -> None:
    """Check that a marker that ends a transaction may be appended; markers have no size limit.

    Args:
        leader_epoch: the leader epoch in which the marker is to be written.

    Raises:
        NotLeaderOrFollower, KafkaStorage, UnknownTopicOrPartition, NotEnoughReplicas: see
            `admit_own`.
    """
    partition.log_in(leader_epoch)
    if len(partition.isr) < partition.min_isr:
        raise _too_few(partition)


def _too_few(partition: Partition) -> NotEnoughReplicas:
    return NotEnoughReplicas(f"in-sync replicas: {len(partition.isr)}, needed: {partition.min_isr}")
