"""Replay of metadata records: the resulting image, and the delta of an append."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.metadata_delta import MetadataDelta
from aiokq.broker.metadata.image.records import (
    GROUP_CONFIG,
    TOPIC_CONFIG,
    config_records,
    partition_record,
)
from aiokq.broker.metadata.image.topic_image import PartitionImage, TopicImage
from aiokq.core.errors import CorruptRecord
from aiokq.wire.cluster_metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    ClientQuotaEntityData,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from aiokq.wire.registration_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

ID = uuid.UUID(int=1)
DIRECTORY = uuid.UUID(int=1000)
CREATED = [
    TopicRecord(name="t", topic_id=ID),
    *config_records(TOPIC_CONFIG, "t", {}, {"a": "1", "b": "2"}),
    partition_record(ID, 0, 3, directory=None),
    partition_record(ID, 1, 3, directory=None),
]


def image_of(*records) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def test_a_topic_is_its_records():
    """Name, id, configs, and partitions with their replicas."""
    image = image_of(*CREATED)
    assert image.topics["t"] is image.topics_by_id[ID]
    assert image.topics["t"].partitions == [PartitionImage((3,), (3,), 3, 0)] * 2
    assert image.topic_configs("t") == {"a": "1", "b": "2"}
    record = PartitionRecord(
        partition_id=1, topic_id=ID, replicas=[4, 3], isr=[4], leader=4, partition_epoch=7
    )
    image.replay(record)
    assert image.topics["t"].partitions[1] == PartitionImage((4, 3), (4,), 4, -1, 7)


def test_settings_go_with_their_topic():
    """A new topic of the same name must not inherit them."""
    image = image_of(*CREATED, RemoveTopicRecord(topic_id=ID))
    assert not image.topics
    assert not image.topics_by_id
    assert not image.configs


def test_only_settings_that_change_have_a_record():
    """A config that is taken back has a record without a value."""
    records = list(config_records(TOPIC_CONFIG, "t", {"a": "1", "b": "2"}, {"b": "2", "c": "3"}))
    assert [(record.name, record.value) for record in records] == [("c", "3"), ("a", None)]
    image = image_of(*CREATED, *records)
    assert image.topic_configs("t") == {"b": "2", "c": "3"}


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopicRecord(topic_id=uuid.UUID(int=9)),
        partition_record(uuid.UUID(int=9), 0, 0, directory=None),
        partition_record(ID, 5, 0, directory=None),
        TopicRecord(name="t", topic_id=uuid.UUID(int=8)),
        PartitionChangeRecord(partition_id=2, topic_id=ID, leader=3),
        ClearElrRecord(topic_name="u"),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=0),
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=4, fenced=1),
        RemoveAccessControlEntryRecord(id=uuid.UUID(int=9)),
        RemoveUserScramCredentialRecord(name="u", mechanism=1),
    ],
)
def test_a_record_that_fits_nothing_before_it_is_refused(record):
    """If it were skipped, missing records would go unnoticed."""
    with pytest.raises(CorruptRecord):
        image_of(*CREATED).replay(record)


def test_a_delta_is_what_a_node_has_to_do():
    """The delta has each topic once, in its final state; a topic deleted again is only deleted."""
    image = image_of(*CREATED)
    records = [
        partition_record(ID, 2, 3, directory=None),
        ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="t", name="a", value="9"),
        ConfigRecord(resource_type=GROUP_CONFIG, resource_name="g", name="x", value="1"),
        TopicRecord(name="gone", topic_id=uuid.UUID(int=2)),
        RemoveTopicRecord(topic_id=uuid.UUID(int=2)),
    ]
    for record in records:
        image.replay(record)
    delta = MetadataDelta.of(records, image, end_offset=9)
    [topic] = delta.topics
    assert (topic.name, len(topic.partitions), topic.configs["a"]) == ("t", 3, "9")
    assert delta.deleted == [uuid.UUID(int=2)]
    assert delta.groups == {"g": {"x": "1"}}
    assert delta.end_offset == 9
    image.replay(RemoveTopicRecord(topic_id=ID))
    assert len(topic.partitions) == 3, "a delta does not change any more"


def test_a_change_sets_the_fields_that_it_has():
    """A named leader raises the leader epoch; each change raises the partition epoch."""
    image = image_of(*CREATED)
    before = image.topics["t"].partitions[1]
    change = PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[], leader=-1)
    change.eligible_leader_replicas = change.last_known_elr = [3]
    image.replay(change)
    after = image.topics["t"].partitions[1]
    assert after == before._replace(
        isr=(), leader=-1, leader_epoch=1, partition_epoch=1, elr=(3,), last_known_elr=(3,)
    )
    image.replay(PartitionChangeRecord(partition_id=1, topic_id=ID, directories=[DIRECTORY]))
    changed = image.topics["t"].partitions[1]
    assert changed == after._replace(partition_epoch=2, directories=(DIRECTORY,))
    assert changed.directory_of(3) == DIRECTORY
    assert image.topics["t"].partitions[0] == before


def test_the_directory_of_a_replica_is_its_nodes():
    """Ids below 100 mean that the replica has no directory yet or has lost it."""
    record = partition_record(ID, 2, 3, directory=None)
    record.replicas = [3, 4]
    record.directories = [DIRECTORY, uuid.UUID(int=2)]
    found = image_of(*CREATED, record).topics["t"].partitions[2]
    assert [found.directory_of(node) for node in (3, 4, 5)] == [DIRECTORY, None, None]


def test_settings_of_a_node_win_over_those_of_all():
    """Dynamic broker configs name a node by its id, and all nodes by the empty name."""
    image = image_of(
        *(
            ConfigRecord(resource_type=4, resource_name=node, name=name, value=value)
            for name, value, node in (
                ("log.retention.ms", "1", ""),
                ("log.segment.bytes", "2", ""),
                ("log.retention.ms", "3", "7"),
            )
        )
    )
    assert image.broker_configs(7) == {"log.retention.ms": "3", "log.segment.bytes": "2"}
    assert image.broker_configs(1) == {"log.retention.ms": "1", "log.segment.bytes": "2"}


@pytest.mark.parametrize("name", ["t", ""])
def test_cleared_eligible_replicas_are_a_change_of_the_partitions_that_had_some(name):
    """Kafka writes one record for a topic, or for all topics, and raises their epochs."""
    change = PartitionChangeRecord(partition_id=1, topic_id=ID)
    change.eligible_leader_replicas = [3]
    image = image_of(*CREATED, change, ClearElrRecord(topic_name=name))
    [first, second] = image.topics["t"].partitions
    assert (first.partition_epoch, second.partition_epoch) == (0, 2)
    assert second.elr == ()


def test_equal_partitions_share_their_state():
    """With a tuple of its own, each of 10,000 partitions would cost 300 bytes."""
    image = image_of(*CREATED)
    first, second = image.topics["t"].partitions
    assert first is second


def broker(node_id=1, epoch=5) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id, incarnation_id=uuid.UUID(int=7), broker_epoch=epoch
    )


def test_a_registration_follows_its_changes():
    """Fenced and unfenced by both kinds of records, in shutdown, and with other directories."""
    image = image_of(broker())
    before = image.copy()
    image.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    image.replay(
        BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=5, in_controlled_shutdown=1, log_dirs=[DIRECTORY]
        )
    )
    found = image.brokers[1]
    assert (found.fenced, found.in_controlled_shutdown) == (False, True)
    assert found.log_dirs == [DIRECTORY]
    image.replay(FenceBrokerRecord(id=1, epoch=5))
    assert image.brokers[1].fenced
    image.replay(UnfenceBrokerRecord(id=1, epoch=5))
    assert not image.brokers[1].fenced
    assert before.brokers[1].fenced, "a copy does not change with the image"
    image.replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert not image.brokers


def quota(value: float | None, **entity: str | None) -> ClientQuotaRecord:
    parts = [
        ClientQuotaEntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    return ClientQuotaRecord(
        entity=parts, key="producer_byte_rate", value=value or 0.0, remove=value is None
    )


def test_a_quota_is_the_same_in_any_order_of_its_entity():
    """Kafka writes the parts of an entity in the order of a hash table."""
    image = image_of(quota(1.5, user="u", client_id=None), quota(2.5, client_id=None, user="u"))
    assert image.principals.quotas == {
        (("client-id", None), ("user", "u")): {"producer_byte_rate": 2.5}
    }
    image.replay(quota(None, user="u", client_id=None))
    assert not image.principals.quotas
    image.replay(quota(None, user="u", client_id=None))  # a second removal changes nothing


ALL = [
    FeatureLevelRecord(name="metadata.version", feature_level=25),
    FeatureLevelRecord(name="group.version", feature_level=1),
    broker(),
    RegisterControllerRecord(controller_id=1, incarnation_id=uuid.UUID(int=8)),
    *CREATED,
    ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="1"),
    quota(1.5, user=None),
    ProducerIdsRecord(broker_id=-1, next_producer_id=1000),
    AccessControlEntryRecord(id=uuid.UUID(int=3), resource_name="t", principal="User:a"),
    UserScramCredentialRecord(name="a", mechanism=2, salt=b"s", iterations=4096),
    DelegationTokenRecord(owner="User:a", token_id="x"),
]


def test_the_records_of_an_image_give_the_image_again():
    """A snapshot must lose nothing, whatever the record is about."""
    image = image_of(*ALL, NoOpRecord(), ZkMigrationStateRecord())
    again = image_of(*image.records())
    assert list(again.records()) == list(image.records())
    kinds = {type(record) for record in image.records()}
    assert kinds == {type(record) for record in ALL}
    assert image.metadata_version == 25
    image.replay(FeatureLevelRecord(name="group.version", feature_level=0))
    assert "group.version" not in image.features


def test_the_removal_of_an_unknown_token_is_ignored_as_by_kafka():
    image = image_of(*CREATED)
    before = list(image.records())
    image.replay(RemoveDelegationTokenRecord(token_id="x"))
    assert list(image.records()) == before


def in_javas_order(count: int) -> list[int]:
    """Return the numbers below `count` in the order of a HashMap of Java."""
    capacity = 1 << (count * 4 // 3).bit_length()
    return sorted(range(count), key=lambda number: (number ^ number >> 16) & (capacity - 1))


def test_more_than_65536_partitions_are_in_the_order_of_a_hash_map():
    """Regression: such a topic, written by Kafka, was refused as if a partition were missing."""
    count = (1 << 16) * 3 + 5
    order = in_javas_order(count)
    assert order[: 1 << 16] == list(range(1 << 16))
    assert order != list(range(count))
    topic = TopicImage("t", ID)
    partitions = [PartitionImage((number,), (), 0, 0) for number in range(count)]
    for number in order:
        topic.set_partition(number, partitions[number])
        if number == order[1 << 16]:
            assert topic.is_whole is (number == 1 << 16)
            assert topic.copy().is_whole is topic.is_whole
    assert topic.is_whole
    assert topic.partitions == partitions


def test_a_copy_is_independent():
    """The snapshot of a running cluster is written from a copy, while the image changes."""
    image = image_of(*ALL)
    copied = image.copy()
    before = list(copied.records())
    for record in (
        RemoveTopicRecord(topic_id=ID),
        quota(None, user=None),
        RemoveAccessControlEntryRecord(id=uuid.UUID(int=3)),
        RemoveUserScramCredentialRecord(name="a", mechanism=2),
        RemoveDelegationTokenRecord(token_id="x"),
        FeatureLevelRecord(name="group.version", feature_level=0),
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="2"),
    ):
        image.replay(record)
    assert list(copied.records()) == before
    assert len(list(image.records())) < len(before)
