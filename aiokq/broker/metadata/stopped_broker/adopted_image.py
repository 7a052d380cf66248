"""The metadata image after an adoption: this node alone, and the partitions that it can lead.

Tests: ``tests/unit/broker/metadata/stopped_broker/test_adoption.py``.
"""

from __future__ import annotations

import copy
import uuid
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.image.topic_image import NO_LEADER, PartitionImage
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage

__all__ = ["AdoptedPartitions", "drop_other_nodes", "take_partitions"]

RECOVERING: Final = 1
"""Leader recovery state of a partition whose leader was elected uncleanly."""


class AdoptedPartitions:
    """The effect of an adoption on the partitions.

    Attributes:
        led: number of partitions that the node leads.
        elsewhere: partitions without a replica on the node.
        behind: partitions whose replica on the node was neither in sync nor eligible to lead.
    """

    def __init__(self) -> None:
        self.led = 0
        self.elsewhere: list[TopicPartition] = []
        self.behind: list[TopicPartition] = []


def take_partitions(image: MetadataImage, node_id: int, unclean: bool) -> AdoptedPartitions:
    """Make the node the only replica of partitions it may lead; other partitions get no leader.

    A replica counts as in sync if it is in the in-sync replicas or is eligible to lead (KIP-966).
    If the partition has no such replica, the last leader counts as in sync.

    Args:
        unclean: whether the node may also lead partitions whose replica on it was not in sync.
    """
    result = AdoptedPartitions()
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            is_here = node_id in partition.replicas
            in_sync = is_here and _in_sync(partition, node_id)
            if in_sync or (is_here and unclean):
                changed = _alone(partition, node_id, clean=in_sync)
                result.led += 1
            elif partition.leader == NO_LEADER:
                changed = partition
            else:
                changed = partition._replace(
                    leader=NO_LEADER,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
            topic.set_partition(index, image.share(changed))
            if not is_here:
                result.elsewhere.append(TopicPartition(topic.name, index))
            elif not in_sync:
                result.behind.append(TopicPartition(topic.name, index))
    return result


def _in_sync(partition: PartitionImage, node_id: int) -> bool:
    if partition.isr or partition.elr:
        return node_id in partition.isr or node_id in partition.elr
    return partition.last_known_elr == (node_id,)


def _alone(partition: PartitionImage, node_id: int, *, clean: bool) -> PartitionImage:
    """Return the partition with the node as its only replica and leader, in a new leader epoch.

    A partition that is already in this state is returned unchanged.
    """
    if partition.replicas == partition.isr == (node_id,) and partition.leader == node_id:
        return partition
    directories: tuple[uuid.UUID, ...] = ()
    if len(partition.directories) == len(partition.replicas):
        directories = (partition.directories[partition.replicas.index(node_id)],)
    return PartitionImage(
        replicas=(node_id,),
        isr=(node_id,),
        leader=node_id,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        directories=directories,
        leader_recovery_state=partition.leader_recovery_state if clean else RECOVERING,
    )


def drop_other_nodes(image: MetadataImage, node_id: int) -> tuple[int, ...]:
    """Drop the registrations of other nodes, and fence this node; return the other nodes' ids.

    Kafka has no record that removes the registration of a controller, so a controller that stays
    registered could never be removed. Kafka would also place new replicas on other brokers that
    stay registered.
    """
    others = {*image.brokers, *image.controllers} - {node_id}
    image.brokers = {one: broker for one, broker in image.brokers.items() if one == node_id}
    image.controllers = {one: each for one, each in image.controllers.items() if one == node_id}
    own = image.brokers.get(node_id)
    if own is not None:
        own = copy.copy(own)  # other images may share it
        own.fenced, own.in_controlled_shutdown = True, False
        image.brokers[node_id] = own
    return tuple(sorted(others))
