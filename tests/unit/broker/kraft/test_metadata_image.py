"""Replay of Kafka's metadata records."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.kraft.metadata_image import KafkaMetadata, KafkaPartition
from aiokq.broker.metadata.record_codec import UnknownMetadataRecord, encode_metadata_record
from aiokq.core.errors import CorruptRecord
from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    ZkMigrationStateRecord,
)
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from aiokq.wire.registration_records import RegisterBrokerRecord
from aiokq.wire.struct import Message
from tests.unit.broker.kraft.kafka_log import ORDERS, OTHER, config, partition, topic


def replayed(*records: Message | bytes) -> KafkaMetadata:
    metadata = KafkaMetadata()
    for record in records:
        metadata.replay(record if isinstance(record, bytes) else encode_metadata_record(record))
    return metadata


def test_topics_have_partitions_settings_and_leaders() -> None:
    """A change of leader, also to none, begins a new epoch; other changes do not."""
    metadata = replayed(
        topic(),
        partition(0),
        partition(1, replicas=[4, 5], leader=4, epoch=2),
        config("retention.ms", "1000"),
        config("segment.ms", "7"),
        config("segment.ms", None),
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        ProducerIdsRecord(next_producer_id=4000),
        PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[3]),
        PartitionChangeRecord(partition_id=1, topic_id=ORDERS, leader=-1),
        PartitionChangeRecord(partition_id=1, topic_id=ORDERS, leader=5, replicas=[5]),
    )
    found = metadata.topics["orders"]
    assert found.topic_id == ORDERS
    assert found.partitions == {0: KafkaPartition((3,), 3, 0), 1: KafkaPartition((5,), 5, 4)}
    assert metadata.topic_configs("orders") == {"retention.ms": "1000"}
    assert metadata.features == {"metadata.version": 25}
    assert metadata.next_producer_id == 4000


def test_the_next_epoch_follows_from_the_leader() -> None:
    """A node that was shut down gave up its leadership; one that was killed is still the leader."""
    assert KafkaPartition((3,), 3, 6).next_epoch == 6
    assert KafkaPartition((3,), -1, 7).next_epoch == 8


def test_the_directory_of_a_replica_is_its_nodes() -> None:
    """Ids below 100 mean that the replica has no directory yet or has lost it."""
    here, there = uuid.UUID(int=1000), uuid.UUID(int=1001)
    record = partition(replicas=[3, 4])
    record.directories = [here, uuid.UUID(int=2)]
    metadata = replayed(topic(), record)
    found = metadata.topics["orders"].partitions[0]
    assert [found.directory_of(node) for node in (3, 4, 5)] == [here, None, None]
    change = PartitionChangeRecord(partition_id=0, topic_id=ORDERS, directories=[there, here])
    metadata.replay(encode_metadata_record(change))
    assert metadata.topics["orders"].partitions[0].directory_of(3) == there


def test_a_removed_topic_takes_its_settings_along() -> None:
    """A new topic of the same name begins without them."""
    metadata = replayed(
        topic(),
        partition(),
        config("retention.ms", "1"),
        RemoveTopicRecord(topic_id=ORDERS),
        topic(topic_id=OTHER),
    )
    assert metadata.topics["orders"].topic_id == OTHER
    assert metadata.topic_configs("orders") == {}


def test_records_of_a_transaction_count_when_it_ends() -> None:
    """A transaction that was not ended because the controller failed has no effect (KIP-868)."""
    begin, end = BeginTransactionRecord(name="x"), EndTransactionRecord()
    assert replayed(begin, topic()).topics == {}
    assert replayed(begin, topic(), AbortTransactionRecord(reason="y")).topics == {}
    assert set(replayed(begin, topic(), partition(), end, config("a", "b")).topics) == {"orders"}


def test_settings_of_a_node_win_over_those_of_all() -> None:
    """Dynamic broker configs name a node by its id, and all nodes by the empty name."""
    metadata = replayed(
        config("log.retention.ms", "1", "", 4),
        config("log.segment.bytes", "2", "", 4),
        config("log.retention.ms", "3", "7", 4),
    )
    assert metadata.broker_configs(7) == {"log.retention.ms": "3", "log.segment.bytes": "2"}
    assert metadata.broker_configs(1) == {"log.retention.ms": "1", "log.segment.bytes": "2"}


def test_what_has_no_meaning_here_is_counted() -> None:
    """Records of brokers are ignored silently; records with a protective purpose are counted."""
    acl, taken_back = AccessControlEntryRecord(), RemoveAccessControlEntryRecord()
    metadata = replayed(acl, acl, RegisterBrokerRecord(), taken_back, topic())
    assert metadata.left_out == {"ACLs": 1}
    assert "orders" in metadata.topics


def test_tokens_and_credentials_are_counted_by_their_own_records() -> None:
    """Removals of tokens were counted as tokens, and removed credentials were never taken off."""
    metadata = replayed(
        DelegationTokenRecord(),
        DelegationTokenRecord(),
        DelegationTokenRecord(),
        RemoveDelegationTokenRecord(),
        UserScramCredentialRecord(),
        UserScramCredentialRecord(),
        UserScramCredentialRecord(),
        RemoveUserScramCredentialRecord(),
        RemoveUserScramCredentialRecord(),
        ZkMigrationStateRecord(),
    )
    assert metadata.left_out == {"delegation tokens": 2, "SCRAM credentials": 1}


def test_records_of_a_newer_kafka_that_are_not_needed_are_ignored() -> None:
    """A new type, or a new version of a broker's registration, says nothing about topics."""
    newer = b"\x01\x32\x00...", b"\x01\x00\x09...", b"\x01\x12\x09..."
    metadata = replayed(*newer, topic())
    assert metadata.left_out == {"ACLs": 1}
    assert "orders" in metadata.topics


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, CorruptRecord),
        (b"", CorruptRecord),
        (b"\x02\x02\x00", CorruptRecord),
        (b"\x01\x02", CorruptRecord),
        (b"\x01\x02\x09", UnknownMetadataRecord),
        (b"\x01\x02\x00\x07ord", CorruptRecord),
        (encode_metadata_record(partition()), CorruptRecord),
        (encode_metadata_record(RemoveTopicRecord(topic_id=OTHER)), CorruptRecord),
    ],
)
def test_what_cannot_be_understood_is_an_error(value: bytes | None, error: type) -> None:
    """Skipping a record could lose a topic."""
    with pytest.raises(error):
        KafkaMetadata().replay(value)
