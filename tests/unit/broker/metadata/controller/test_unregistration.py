"""UnregisterBroker: what becomes of a broker's replicas, and which brokers stay."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.log.config import LogConfig
from aiokq.broker.metadata.controller.unregistration import unregister_broker
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.topic_image import PartitionImage
from aiokq.core.errors import BrokerIdNotRegistered, InvalidRequest
from aiokq.wire.cluster_metadata_records import PartitionChangeRecord, TopicRecord
from aiokq.wire.registration_records import RegisterBrokerRecord, UnregisterBrokerRecord
from aiokq.wire.struct import Message
from tests.unit.broker.metadata.kafka_decisions import image_of

NODE, OTHER = 3, 4
TOPIC = uuid.UUID(int=9)


def image_with(*partitions: PartitionImage, level: int = 25, elr: int = 1) -> MetadataImage:
    image = image_of({"metadata.version": level, "eligible.leader.replicas.version": elr})
    for node_id, epoch in ((NODE, 11), (OTHER, 12)):
        image.replay(
            RegisterBrokerRecord(
                broker_id=node_id, broker_epoch=epoch, fenced=node_id == OTHER, log_dirs=[]
            )
        )
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    for index, partition in enumerate(partitions):
        image.replay(partition.record(TOPIC, index))
    return image


def unregister(
    image: MetadataImage, broker_id: int = OTHER, config: LogConfig | None = None
) -> list[Message]:
    decision = unregister_broker(
        image, broker_id, node_id=NODE, config_of=lambda name: config or LogConfig()
    )
    return list(decision.records)


def test_an_unknown_broker_is_told_so() -> None:
    """Error 102 tells tools that there is nothing to do."""
    with pytest.raises(BrokerIdNotRegistered, match=r"Broker ID 5 is not currently registered$"):
        unregister(image_with(), 5)


def test_a_node_does_not_remove_itself() -> None:
    """It would go on serving, and register again at its next start."""
    with pytest.raises(InvalidRequest, match="Broker 3 is this node"):
        unregister(image_with(), NODE)


def test_a_broker_leaves_the_replicas_in_sync() -> None:
    """Otherwise acks=all would wait for it forever."""
    image = image_with(
        PartitionImage((NODE, OTHER), (NODE, OTHER), NODE, 7),
        PartitionImage((NODE,), (NODE,), NODE, 7),
        PartitionImage((OTHER,), (OTHER,), -1, 7),
    )
    records = unregister(image)
    assert records == [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[NODE]),
        PartitionChangeRecord(
            partition_id=2, topic_id=TOPIC, isr=[], eligible_leader_replicas=[OTHER]
        ),
        UnregisterBrokerRecord(broker_id=OTHER, broker_epoch=12),
    ]
    for record in records:
        image.replay(record)
    assert list(image.brokers) == [NODE]
    assert not any(OTHER in partition.isr for partition in image.topics["t"].partitions)


def test_it_stays_eligible_where_too_few_are_in_sync() -> None:
    """Its replica has every committed record: min.insync.replicas counts at most all replicas."""
    image = image_with(PartitionImage((NODE, OTHER), (NODE, OTHER), NODE, 7))
    [change, _] = unregister(image, config=LogConfig(min_insync_replicas=5))
    assert isinstance(change, PartitionChangeRecord)
    assert (change.isr, change.eligible_leader_replicas) == ([NODE], [OTHER])


def test_a_broker_that_is_only_eligible_stays_so() -> None:
    """As in Kafka."""
    image = image_with(PartitionImage((NODE, OTHER), (), -1, 7, elr=(OTHER,)))
    assert [type(record) for record in unregister(image)] == [UnregisterBrokerRecord]


@pytest.mark.parametrize(("level", "epoch"), [(11, 8), (12, 7)])
def test_old_metadata_gets_a_new_leader_epoch(level: int, epoch: int) -> None:
    """Brokers of those versions need it (KAFKA-15021)."""
    image = image_with(PartitionImage((NODE, OTHER), (NODE, OTHER), NODE, 7), level=level, elr=0)
    for record in unregister(image):
        image.replay(record)
    [partition] = image.topics["t"].partitions
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((NODE,), NODE, epoch)
