"""The record that removes a broker from the in-sync replicas of a partition.

Source: Kafka ``PartitionChangeBuilder.java``; KIP-966.
Tests: ``tests/unit/broker/metadata/controller/test_partition_changes.py``.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from aiokq.broker.metadata.image.topic_image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    PartitionImage,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.cluster_metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.broker.metadata.image.image import MetadataImage

__all__ = ["ElectionRules", "may_lead", "without_replica"]


class ElectionRules(NamedTuple):
    """The rules that decide which replica leads a partition.

    Attributes:
        may_lead: takes a node id; returns whether the replica on that node is alive and may lead.
        min_isr: ``min.insync.replicas``. If ``elr`` is true and fewer replicas remain in sync, a
            replica that leaves the in-sync replicas becomes eligible, and eligible replicas stay
            eligible.
        elr: whether eligible leader replicas are on.
        unclean: whether any live replica may lead if no replica can be elected cleanly.
        bumps_epoch: whether the leader epoch grows when the in-sync replicas become fewer, as it
            does below metadata.version 3.6.
    """

    may_lead: Callable[[int], bool]
    min_isr: int
    elr: bool
    unclean: bool = False
    bumps_epoch: bool = False


def may_lead(image: MetadataImage, partition: PartitionImage, node_id: int) -> bool:
    """Whether a replica is alive: its broker is active, and its log directory is online."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced or broker.in_controlled_shutdown:
        return False
    return partition.is_online(node_id, broker.log_dirs)


def without_replica(
    partition: PartitionImage, topic_id: uuid.UUID, index: int, node_id: int, rules: ElectionRules
) -> PartitionChangeRecord | None:
    """Return the record that removes a node from a partition's in-sync replicas.

    The result is None if nothing changes. If eligible leader replicas are off, the last in-sync
    replica is removed only by an unclean election. The record never completes a reassignment of
    replicas.
    """
    isr = tuple(replica for replica in partition.isr if replica != node_id)
    elr = partition.elr
    if rules.elr:
        least = len(isr) < rules.min_isr
        candidates = dict.fromkeys((*partition.elr, *partition.isr)) if least else ()
        elr = tuple(replica for replica in candidates if replica not in isr)
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    leader, unclean = _elect(partition, isr, elr, rules)
    if leader != partition.leader:
        if leader in elr:
            isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
        record.leader = leader
    if unclean and leader != partition.leader:
        isr, elr = (leader,), ()
        if partition.leader_recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING
    if not rules.elr:
        elr = ()
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    if isr != partition.isr and (isr or rules.elr):  # without ELR, the last replica stays in sync
        record.isr = list(isr)
        shrinks = not set(partition.isr) <= set(isr)
        if rules.bumps_epoch and shrinks and record.leader == NO_LEADER_CHANGE:
            record.leader = partition.leader
    if rules.elr:
        if record.leader == NO_LEADER and not partition.last_known_elr:
            record.last_known_elr = [partition.leader]
        elif record.leader >= 0 and partition.last_known_elr:
            record.last_known_elr = []
    unchanged = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    return None if record == unchanged else record


def _elect(
    partition: PartitionImage, isr: tuple[int, ...], elr: tuple[int, ...], rules: ElectionRules
) -> tuple[int, bool]:
    """Return the leader, or ``NO_LEADER``, and whether the leader was elected uncleanly.

    A clean election takes a live in-sync replica. If no replica is in sync, it takes a live
    eligible leader replica.
    """
    valid = isr or elr
    for replica in (partition.leader, *partition.replicas):
        if replica in valid and rules.may_lead(replica):
            return replica, False
    if rules.elr and not valid and len(partition.last_known_elr) == 1:
        [last] = partition.last_known_elr
        if rules.may_lead(last):
            return last, True
    if rules.unclean:
        for replica in partition.replicas:
            if rules.may_lead(replica):
                return replica, True
    return NO_LEADER, False
