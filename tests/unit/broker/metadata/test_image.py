"""Replay of metadata records: the resulting image, and the delta of an append."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.image import MetadataDelta, MetadataImage, PartitionImage
from aiokq.broker.metadata.records import (
    GROUP_CONFIG,
    TOPIC_CONFIG,
    TopicTakenOver,
    config_records,
    partition_record,
)
from aiokq.core.errors import CorruptRecord
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

ID = uuid.UUID(int=1)
CREATED = [
    TopicRecord(name="t", topic_id=ID),
    *config_records(TOPIC_CONFIG, "t", {}, {"a": "1", "b": "2"}),
    partition_record(ID, 0, 3),
    partition_record(ID, 1, 3),
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
    image.replay(PartitionRecord(partition_id=1, topic_id=ID, replicas=[4, 3], isr=[4], leader=4))
    assert image.topics["t"].partitions[1] == PartitionImage((4, 3), (4,), 4, -1)


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
        partition_record(uuid.UUID(int=9), 0, 0),
        partition_record(ID, 5, 0),
        TopicTakenOver(uuid.UUID(int=9)),
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
        partition_record(ID, 2, 3),
        ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="t", name="a", value="9"),
        ConfigRecord(resource_type=GROUP_CONFIG, resource_name="g", name="x", value="1"),
        TopicRecord(name="gone", topic_id=uuid.UUID(int=2)),
        RemoveTopicRecord(topic_id=uuid.UUID(int=2)),
    ]
    image.replay_append(records)
    delta = MetadataDelta.of(records, image)
    [topic] = delta.topics
    assert (topic.name, len(topic.partitions), topic.configs["a"]) == ("t", 3, "9")
    assert delta.deleted == [uuid.UUID(int=2)]
    assert delta.groups == {"g": {"x": "1"}}
    image.replay(RemoveTopicRecord(topic_id=ID))
    assert len(topic.partitions) == 3, "a delta does not change any more"
