"""A replica leaves a partition: ISR, ELR and leader become those of Kafka's controller."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.controller.partition_changes import (
    ElectionRules,
    may_lead,
    without_replica,
)
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.topic_image import PartitionImage
from aiokq.wire.registration_records import RegisterBrokerRecord
from tests.unit.broker.metadata.kafka_decisions import DECISIONS

TOPIC = uuid.UUID(int=9)
HERE, THERE = uuid.UUID(int=7001), uuid.UUID(int=7002)


def partition(**fields: object) -> PartitionImage:
    known = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, "leader_epoch": 7}
    return PartitionImage(**known | fields)  # type: ignore[arg-type]  # the values of a test


@pytest.mark.parametrize("case", DECISIONS["replicas"], ids=range(len(DECISIONS["replicas"])))
def test_a_replica_leaves_as_in_kafka(case: dict) -> None:
    """A wrong leader loses records, and a wrong list of eligible replicas does so later."""
    before = partition(
        isr=tuple(case["isr"]),
        elr=tuple(case["elr"]),
        last_known_elr=tuple(case["last"]),
        leader=case["leader"],
        leader_recovery_state=int(case["recovers"]),
    )
    alive = set(case["alive"]) - {case["removed"]}
    rules = ElectionRules(
        alive.__contains__, case["min_isr"], case["on"], case["unclean"], case["bumps"]
    )
    change = without_replica(before, TOPIC, 4, case["removed"], rules)
    kafka = case["record"]
    if change is None:
        assert kafka is None
        return
    assert (change.topic_id, change.partition_id) == (TOPIC, 4)
    found = {name: getattr(change, name) for name in kafka or {}}
    if found["eligible_leader_replicas"] is not None:
        found["eligible_leader_replicas"] = sorted(found["eligible_leader_replicas"])
    assert found == kafka
    assert (change.replicas, change.directories) == (None, None)


def test_a_replica_is_alive_with_its_broker_and_its_directory() -> None:
    """A broker that is registered but stopped, or whose disk failed, has nothing to serve."""
    image = MetadataImage()
    known = partition(replicas=(1, 2, 3), directories=(HERE, THERE, uuid.UUID(int=1)))
    for node_id, fields in {
        1: {"log_dirs": [HERE]},
        2: {"log_dirs": [HERE]},
        3: {"fenced": True},
    }.items():
        fields = {"fenced": False, **fields}
        image.brokers[node_id] = RegisterBrokerRecord(broker_id=node_id, **fields)
    assert [may_lead(image, known, node_id) for node_id in (1, 2, 3, 4)] == [
        True,  # its directory is online
        False,  # its directory is not
        False,  # it is fenced
        False,  # it is not registered
    ]
    image.brokers[3].fenced = False
    assert may_lead(image, known, 3)  # the directory is not chosen yet
    assert not may_lead(image, partition(directories=(HERE, THERE, uuid.UUID(int=2))), 3)  # lost
    image.brokers[1].in_controlled_shutdown = True
    assert not may_lead(image, known, 1)
    assert may_lead(image, partition(), 2)  # before metadata.version 3.7-IV2
