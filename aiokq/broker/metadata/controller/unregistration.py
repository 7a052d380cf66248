"""The removal of a broker's registration by an UnregisterBroker request.

Source: Kafka ``ReplicationControlManager.unregisterBroker``, ``handleBrokerUnregistered``; KIP-631.
Tests: ``tests/unit/broker/metadata/controller/test_unregistration.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.broker.metadata.controller.decision import Decision
from aiokq.broker.metadata.controller.eligible_replicas import elr_is_on
from aiokq.broker.metadata.controller.partition_changes import (
    ElectionRules,
    may_lead,
    without_replica,
)
from aiokq.broker.metadata.image.features import NO_EPOCH_BUMP_ON_SHRINK
from aiokq.core.errors import BrokerIdNotRegistered, InvalidRequest
from aiokq.wire.registration_records import UnregisterBrokerRecord

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.image.topic_image import PartitionImage
    from aiokq.wire.struct import Message

__all__ = ["unregister_broker"]


def unregister_broker(
    image: MetadataImage, broker_id: int, *, node_id: int, config_of: Callable[[str], LogConfig]
) -> Decision[None]:
    """Return the records that remove a broker from the cluster.

    The broker's replicas stay assigned to it, but are removed from the in-sync replicas. The last
    in-sync replica of a partition is removed only if eligible leader replicas are on, or if another
    replica is elected uncleanly. A broker that is eligible to lead a partition, but not in sync,
    stays eligible, as in Kafka.

    Args:
        node_id: id of this node, which cannot be removed.
        config_of: returns all settings of a topic.

    Raises:
        BrokerIdNotRegistered: no broker with this id is registered.
        InvalidRequest: the id is that of this node.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
    if broker_id == node_id:
        raise InvalidRequest(
            f"Broker {broker_id} is this node, which is running and is the only controller of the "
            "cluster: it would register itself again at its next start. To end it, stop it"
        )
    records: list[Message] = []
    elr = elr_is_on(image)
    bumps_epoch = (image.metadata_version or 0) < NO_EPOCH_BUMP_ON_SHRINK
    for topic in image.topics.values():
        if not any(broker_id in partition.isr for partition in topic.partitions):
            continue
        config = config_of(topic.name)
        min_isr = min(config.min_insync_replicas, len(topic.partitions[0].replicas))
        for index, partition in enumerate(topic.partitions):
            if broker_id not in partition.isr:
                continue
            change = without_replica(
                partition,
                topic.topic_id,
                index,
                broker_id,
                ElectionRules(
                    functools.partial(_may_lead, image, partition, broker_id),
                    min_isr,
                    elr,
                    unclean=config.unclean_leader_election_enable,
                    bumps_epoch=bumps_epoch,
                ),
            )
            if change is not None:
                records.append(change)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch))
    return Decision(None, records)


def _may_lead(image: MetadataImage, partition: PartitionImage, removed: int, node_id: int) -> bool:
    return node_id != removed and may_lead(image, partition, node_id)
