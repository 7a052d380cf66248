"""The controller decides for an error or for Kafka's records, without I/O or event loop."""

from __future__ import annotations

import itertools
import uuid

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.metadata.controller.controller import Controller
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.core.errors import (
    InvalidConfiguration,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopic,
    TopicExists,
    UnknownTopicOrPartition,
)
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from aiokq.wire.registration_records import RegisterBrokerRecord

NODE = 3


@pytest.fixture
def image() -> MetadataImage:
    return MetadataImage()


@pytest.fixture
def controller() -> Controller:
    numbers = itertools.count(1)
    return Controller(broker_settings({}), NODE, lambda: uuid.UUID(int=next(numbers)))


def created(controller: Controller, image: MetadataImage, spec: TopicSpec) -> uuid.UUID:
    decision = controller.create_topic(image, spec)
    for record in decision.records:
        image.replay(record)
    return decision.answer.topic_id


def test_a_topic_is_kafkas_records(controller: Controller, image: MetadataImage):
    """Topic, configs, partitions: the order in which Kafka's controller writes the records."""
    spec = TopicSpec("t", 2, configs={"retention.ms": "5"})
    answer, records = controller.create_topic(image, spec)
    assert records == [
        TopicRecord(name="t", topic_id=answer.topic_id),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=answer.topic_id,
                replicas=[NODE],
                isr=[NODE],
                leader=NODE,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(2)
        ),
    ]


def test_a_decision_changes_nothing(controller: Controller, image: MetadataImage):
    """A decision takes effect only when its records are written."""
    image.replay(RegisterBrokerRecord(broker_id=NODE))
    topic_id = created(controller, image, TopicSpec("t", 1))
    before = list(image.records())
    controller.create_topic(image, TopicSpec("u"))
    controller.delete_topic(image, "t", topic_id)
    controller.delete_all_topics(image)
    controller.create_partitions(image, "t", topic_id, 4)
    controller.alter_topic_configs(image, "t", topic_id, lambda _: {"retention.ms": "5"})
    controller.alter_group_configs(image, "g", lambda _: {"consumer.session.timeout.ms": "50000"})
    controller.allocate_producer_ids(image)
    controller.assign_directories(image, {(topic_id, 0): uuid.UUID(int=500)})
    assert list(image.records()) == before


def test_looking_only_gives_no_records(controller: Controller, image: MetadataImage):
    """With validate_only tools find out whether a change would be accepted."""
    topic_id = created(controller, image, TopicSpec("t", 1))
    decisions = [
        controller.create_topic(image, TopicSpec("u"), validate_only=True),
        controller.create_partitions(image, "t", topic_id, 4, validate_only=True),
        controller.alter_topic_configs(
            image, "t", topic_id, lambda _: {"retention.ms": "5"}, validate_only=True
        ),
        controller.alter_group_configs(
            image, "g", lambda _: {"consumer.session.timeout.ms": "50000"}, validate_only=True
        ),
    ]
    assert [list(decision.records) for decision in decisions] == [[], [], [], []]


def test_names_are_refused_as_in_kafka(controller: Controller, image: MetadataImage):
    """Also rejected are names that metrics cannot tell from an existing name."""
    created(controller, image, TopicSpec("a.b"))
    with pytest.raises(TopicExists):
        controller.create_topic(image, TopicSpec("a.b"))
    with pytest.raises(InvalidTopic, match=r"collides with existing topic: a\.b"):
        controller.create_topic(image, TopicSpec("a_b"))
    with pytest.raises(InvalidTopic):
        controller.create_topic(image, TopicSpec("a b"))


def test_only_new_partitions_have_records(controller: Controller, image: MetadataImage):
    """Existing partitions keep their leaders and epochs."""
    topic_id = created(controller, image, TopicSpec("t", 2))
    records = controller.create_partitions(image, "t", topic_id, 4).records
    assert [record.partition_id for record in records] == [2, 3]
    with pytest.raises(InvalidPartitions):
        controller.create_partitions(image, "t", topic_id, 2)
    with pytest.raises(InvalidReplicaAssignment):
        controller.create_partitions(image, "t", topic_id, 3, [[9]])
    with pytest.raises(UnknownTopicOrPartition):
        controller.create_partitions(image, "t", uuid.UUID(int=99), 4)


def test_only_settings_that_change_have_records(controller: Controller, image: MetadataImage):
    """Kafka's controller does the same; records of equal values would only make the log longer."""
    spec = TopicSpec("t", configs={"retention.ms": "5", "cleanup.policy": "compact"})
    topic_id = created(controller, image, spec)
    wanted = {"retention.ms": "5", "max.message.bytes": "9"}
    decision = controller.alter_topic_configs(image, "t", topic_id, lambda _: wanted)
    assert [(record.name, record.value) for record in decision.records] == [
        ("max.message.bytes", "9"),
        ("cleanup.policy", None),
    ]
    assert decision.answer == wanted
    with pytest.raises(InvalidConfiguration):
        controller.alter_topic_configs(image, "t", topic_id, lambda _: {"no.such": "1"})


@pytest.mark.parametrize("resource", ["", str(NODE)])
def test_topics_are_checked_with_the_settings_in_effect(
    controller: Controller, image: MetadataImage, resource: str
):
    """A dynamic setting of the broker is the default of the setting that is not given."""
    topic_id = created(controller, image, TopicSpec("t"))
    configs = {"min.compaction.lag.ms": "20"}
    controller.create_topic(image, TopicSpec("u", configs=configs))
    controller.alter_topic_configs(image, "t", topic_id, lambda _: configs)
    name = "log.cleaner.max.compaction.lag.ms"
    image.replay(ConfigRecord(resource_type=4, resource_name=resource, name=name, value="10"))
    with pytest.raises(InvalidConfiguration):
        controller.create_topic(image, TopicSpec("u", configs=configs))
    with pytest.raises(InvalidConfiguration):
        controller.alter_topic_configs(image, "t", topic_id, lambda _: configs)


def test_a_deletion_is_one_record_for_each_topic(controller: Controller, image: MetadataImage):
    """The record also removes the topic's partitions and configs."""
    ids = [created(controller, image, TopicSpec(name)) for name in "ab"]
    assert controller.delete_topic(image, "a", ids[0]).records == [
        RemoveTopicRecord(topic_id=ids[0])
    ]
    answer, records = controller.delete_all_topics(image)
    assert answer == 2
    assert records == [RemoveTopicRecord(topic_id=topic_id) for topic_id in ids]


def test_blocks_of_producer_ids_follow_each_other(controller: Controller, image: MetadataImage):
    """If an id were issued twice, the broker would take two producers for one."""
    image.replay(RegisterBrokerRecord(broker_id=NODE, broker_epoch=17))
    block, records = controller.allocate_producer_ids(image)
    assert block == range(1000)
    record = ProducerIdsRecord(broker_id=NODE, broker_epoch=17, next_producer_id=1000)
    assert records == [record]
    image.replay(record)
    assert controller.allocate_producer_ids(image).answer == range(1000, 2000)


def test_a_topic_with_the_id_of_another_topic_cannot_be_changed(
    controller: Controller, image: MetadataImage
):
    """A record names its topic by id, so the other topic would be changed or deleted."""
    topic_id = created(controller, image, TopicSpec("a"))
    image.replay(TopicRecord(name="b", topic_id=topic_id))
    for change in (
        lambda name: controller.delete_topic(image, name, topic_id),
        lambda name: controller.create_partitions(image, name, topic_id, 4),
        lambda name: controller.alter_topic_configs(image, name, topic_id, lambda _: {}),
    ):
        with pytest.raises(InvalidTopic, match=r"same topic id as topic 'b'.*delete 'b' first"):
            change("a")
        change("b")
    for record in controller.delete_topic(image, "b", topic_id).records:
        image.replay(record)
    assert controller.delete_topic(image, "a", topic_id).records
