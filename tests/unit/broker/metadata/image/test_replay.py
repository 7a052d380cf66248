"""Replay of encoded metadata records: transactions, and the short way of partitions."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.record_codec import UnknownMetadataRecord, encode_metadata_record
from aiokq.broker.metadata.image.records import partition_record
from aiokq.broker.metadata.image.replay import MetadataReplay
from aiokq.core.errors import CorruptRecord
from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

ID = uuid.UUID(int=1)
TOPIC = TopicRecord(name="t", topic_id=ID)


def replay(*records, versions=None) -> MetadataReplay:
    replay = MetadataReplay(MetadataImage())
    for record in records:
        replay.replay(encode_metadata_record(record))
    return replay


@pytest.mark.parametrize("version", [0, 1, 2])
def test_partitions_are_the_same_on_the_short_way(version):
    """States that were decoded before are reused, whatever the number, topic and version."""
    directory = uuid.UUID(int=500)
    records = [
        PartitionRecord(
            partition_id=index,
            topic_id=uuid.UUID(int=1 + index % 2),
            replicas=[1 + index % 3],
            isr=[1],
            leader=1,
            leader_epoch=index % 2,
            partition_epoch=0,
            directories=[directory] if version else [],
        )
        for index in (0, 0, 1, 1, 2, 2)
    ]
    for number, record in enumerate(records):
        record.topic_id = uuid.UUID(int=1 + number % 2)
    topics = [TOPIC, TopicRecord(name="u", topic_id=uuid.UUID(int=2))]
    short = MetadataReplay(MetadataImage())
    general = MetadataImage()
    for record in [*topics, *records]:
        value = encode_metadata_record(
            record, version if isinstance(record, PartitionRecord) else None
        )
        short.replay(value)
        general.replay(record)
    assert list(short.image.records()) == list(general.records())


def test_a_topic_that_was_deleted_gets_no_partition():
    """The short way remembers the last topic."""
    began = replay(
        TOPIC, partition_record(ID, 0, 1, directory=None), RemoveTopicRecord(topic_id=ID)
    )
    with pytest.raises(CorruptRecord, match="does not exist"):
        began.replay(encode_metadata_record(partition_record(ID, 1, 1, directory=None)))


def test_records_of_a_transaction_take_effect_together():
    """Kafka's controller writes the first records of a new log in a transaction."""
    began = replay(
        BeginTransactionRecord(name="x"), TOPIC, partition_record(ID, 0, 1, directory=None)
    )
    assert began.in_transaction
    assert not began.image.topics
    began.replay(encode_metadata_record(EndTransactionRecord()))
    assert not began.in_transaction
    assert len(began.image.topics["t"].partitions) == 1


def test_an_aborted_transaction_leaves_nothing():
    """A controller that took over in the middle aborts it."""
    aborted = replay(BeginTransactionRecord(), TOPIC, AbortTransactionRecord(reason="failover"))
    assert not aborted.image.topics
    assert not aborted.in_transaction


@pytest.mark.parametrize(
    "records",
    [
        [EndTransactionRecord()],
        [AbortTransactionRecord()],
        [BeginTransactionRecord(), BeginTransactionRecord()],
    ],
)
def test_transactions_that_do_not_fit_are_refused(records):
    """Kafka's controller ends with a fault."""
    with pytest.raises(CorruptRecord, match="transaction"):
        replay(*records)


@pytest.mark.parametrize(
    ("head", "error", "words"),
    [
        (b"\x01\x63\x00", UnknownMetadataRecord, "unknown type 99"),
        (b"\x01\x03\x09", UnknownMetadataRecord, "unknown version"),
        (b"\x02\x03\x00", CorruptRecord, "unknown frame version 2"),
    ],
)
def test_records_of_a_newer_kafka_are_refused_by_name(head, error, words):
    """If they were skipped, a snapshot would lose what they mean."""
    with pytest.raises(error, match=words):
        replay(TOPIC).replay(head.ljust(40, b"\0"))


@pytest.mark.parametrize("size", range(60))
def test_a_partition_record_that_is_cut_is_corrupt(size):
    """Neither way may read beyond the value."""
    value = encode_metadata_record(partition_record(ID, 0, 1, directory=None))
    with pytest.raises(CorruptRecord):
        replay(TOPIC).replay(value[: min(size, len(value) - 1)])
