"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import uuid

import pytest

from aiokq import wire
from tests.unit.broker.harness import Broker, batch, until


def creatable(name, partitions=1, factor=1, *, configs=None, assignments=None):
    return wire.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            wire.CreatableTopicConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ],
        assignments=[
            wire.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or [])
        ],
    )


async def create(broker, *topics, version=7, validate_only=False):
    response = await broker.ask(
        wire.CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version
    )
    return response.topics


async def create_one(broker, *args, version=7, validate_only=False, **kwargs):
    [result] = await create(
        broker, creatable(*args, **kwargs), version=version, validate_only=validate_only
    )
    return result


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_version_creates(version):
    """Later versions return more about the topic."""
    async with Broker() as broker:
        result = await create_one(broker, "t", 3, configs={"retention.ms": "1000"}, version=version)
        assert result.error_code == 0
        topic = broker.node.topics.get("t")
        assert len(topic.partitions) == 3
        assert topic.config.retention_ms == 1000
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            told = {config.name: config for config in result.configs}
            assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("1000", 1)
            assert told["cleanup.policy"].config_source == 5
        if version >= 7:
            assert result.topic_id == topic.topic_id


async def test_minus_one_takes_the_brokers_defaults():
    """num.partitions and default.replication.factor, from version 4 on."""
    async with Broker(num_partitions=5) as broker:
        result = await create_one(broker, "t", -1, -1)
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 5, 1)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (creatable("a/b"), 17),
        (creatable(""), 17),
        (creatable("x" * 250), 17),
        (creatable("t", 0), 37),
        (creatable("t", -2), 37),
        (creatable("t", 10_001), 44),
        (creatable("t", 1, 0), 38),
        (creatable("t", 1, 2), 38),
        (creatable("t", configs={"retention.mz": "1"}), 40),
        (creatable("t", configs={"retention.ms": "soon"}), 40),
        (creatable("t", configs={"retention.ms": None}), 40),
        (creatable("t", 1, -1, assignments=[(0, [0])]), 42),
        (creatable("t", -1, -1, assignments=[(1, [0])]), 39),
        (creatable("t", -1, -1, assignments=[(0, [])]), 39),
        (creatable("t", -1, -1, assignments=[(0, [9])]), 39),
        (creatable("t", -1, -1, assignments=[(0, [0, 0])]), 39),
        (creatable("t", -1, -1, assignments=[(0, [0]), (0, [0])]), 39),
    ],
)
async def test_what_cannot_be_created_is_refused_in_words(topic, code):
    """The topic does not exist afterwards, and the list in the response is never null."""
    async with Broker() as broker:
        [result] = await create(broker, topic)
        assert result.error_code == code
        assert result.error_message
        assert result.configs == []
        assert len(broker.node.topics) == 0


async def test_replicas_may_be_assigned_by_hand():
    """The only valid assignment is to this node."""
    async with Broker() as broker:
        result = await create_one(broker, "t", -1, -1, assignments=[(0, [0]), (1, [0])])
        assert (result.error_code, result.num_partitions) == (0, 2)


async def test_an_existing_topic_is_36_and_one_that_collides_17():
    """'.' and '_' are the same in metric names."""
    async with Broker() as broker:
        await broker.create("a.b")
        assert (await create_one(broker, "a.b")).error_code == 36
        assert (await create_one(broker, "a_b")).error_code == 17


async def test_a_name_given_twice_is_42_and_made_not_even_once():
    """The two entries may differ."""
    async with Broker() as broker:
        results = await create(broker, creatable("t", 1), creatable("t", 2), creatable("u"))
        assert {r.name: r.error_code for r in results} == {"t": 42, "u": 0}


async def test_validate_only_changes_nothing():
    """It reports every error."""
    async with Broker() as broker:
        result = await create_one(broker, "t", 3, validate_only=True)
        assert (result.error_code, result.num_partitions) == (0, 3)
        assert len(broker.node.topics) == 0
        assert (await create_one(broker, "t", 1, 2, validate_only=True)).error_code == 38


async def test_topics_outlive_the_node_with_ids_and_settings():
    """They are durable before the response is sent."""
    async with Broker() as broker:
        topic_id = await broker.create("t", 2, retention_ms=1000)
        files = broker.files
    async with Broker(files) as broker:
        topic = broker.node.topics.get("t")
        assert topic.topic_id == topic_id
        assert len(topic.partitions) == 2
        assert topic.config.retention_ms == 1000


async def test_a_topic_that_a_disk_refuses_is_there_when_the_disk_is_well_again():
    """KAFKA_STORAGE_ERROR at first; the recorded topic later has all of its partitions."""
    async with Broker() as broker:
        broker.files.fail("mkdirs", 28, matches=lambda path: "t-1" in path)
        broker.files.fail("open", 28, matches=lambda path: "t-1/" in path)
        assert (await create_one(broker, "t", 3)).error_code == 56
        files = broker.files
    files.heal()
    async with Broker(files) as broker:
        assert (await create_one(broker, "t", 3)).error_code == 36
        for partition in range(3):
            answer = await broker.produce("t", batch(), partition=partition)
            assert answer.error_code == 0


async def test_a_metadata_log_that_cannot_be_written_creates_nothing():
    """The response is an error, and the topic does not exist."""
    async with Broker() as broker:
        broker.files.fail("pwritev", 5, matches=lambda path: "metadata" in path)
        assert (await create_one(broker, "t")).error_code == 56
        assert len(broker.node.topics) == 0
        files = broker.files
    async with Broker(files) as broker:
        assert len(broker.node.topics) == 0


@pytest.mark.parametrize("power", [True, False])
async def test_a_metadata_log_that_cannot_be_synced_creates_nothing_until_the_next_start(power):
    """The response is an error. The record is written, so the next start may find the topic."""
    async with Broker() as broker:
        broker.files.fail("sync", 5, matches=lambda path: "metadata" in path)
        assert (await create_one(broker, "t")).error_code == 56
        assert len(broker.node.topics) == 0
        files = broker.files
    if not power:
        files.power_cut()
    async with Broker(files) as broker:
        assert len(broker.node.topics) == power
        assert (await create_one(broker, "t")).error_code == (36 if power else 0)


# DeleteTopics


async def delete(broker, *states, version=6):
    if version < 6:
        request = wire.DeleteTopicsRequest(topic_names=list(states), timeout_ms=1)
    else:
        request = wire.DeleteTopicsRequest(topics=list(states), timeout_ms=1)
    return [(r.name, r.error_code) for r in (await broker.ask(request, version)).responses]


@pytest.mark.parametrize("version", range(1, 6))
async def test_topics_are_deleted_by_name(version):
    """Their records are deleted too; an unknown name gets UNKNOWN_TOPIC_OR_PARTITION."""
    async with Broker() as broker:
        await broker.create("t")
        assert await delete(broker, "t", "absent", version=version) == [("t", 0), ("absent", 3)]
        assert len(broker.node.topics) == 0
        assert (await broker.produce("t", batch())).error_code == 3
        await broker.create("t")
        assert (await broker.produce("t", batch())).base_offset == 0


async def test_topics_are_deleted_by_id_from_version_6_on():
    """UNKNOWN_TOPIC_ID for an unknown id.

    INVALID_REQUEST for name and id together, for neither, and for a repeated id.
    """
    async with Broker() as broker:
        topic_id = await broker.create("t")
        await broker.create("u")
        states = [
            wire.DeleteTopicState(topic_id=topic_id),
            wire.DeleteTopicState(topic_id=uuid.UUID(int=4)),
            wire.DeleteTopicState(name="u", topic_id=topic_id),
            wire.DeleteTopicState(),
        ]
        assert await delete(broker, *states) == [("t", 0), (None, 100), ("u", 42), (None, 42)]
        twice = [wire.DeleteTopicState(name="u") for _ in range(2)]
        assert await delete(broker, *twice) == [("u", 42), ("u", 42)]
        assert broker.node.topics.get("u") is not None


async def test_deletion_can_be_forbidden():
    """delete.topic.enable=false gives TOPIC_DELETION_DISABLED."""
    async with Broker(delete_topic_enable=False) as broker:
        await broker.create("t")
        assert await delete(broker, "t", version=5) == [("t", 73)]
        assert broker.node.topics.get("t") is not None


async def test_files_of_deleted_topics_go_after_their_delay():
    """Responses may still be sent from them."""
    async with Broker(log_segment_delete_delay_ms=5) as broker:
        await broker.create("t")
        await delete(broker, "t", version=5)
        assert any(name.endswith("-delete") for name in broker.files.listdir("/data"))
        await until(
            lambda: not any(name.startswith("t-0") for name in broker.files.listdir("/data"))
        )


async def test_a_deletion_that_cannot_be_recorded_did_not_happen():
    """KAFKA_STORAGE_ERROR, and the topic exists unchanged when the disk works again."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch())
        broker.files.fail("pwritev", 5, matches=lambda path: "metadata" in path)
        assert await delete(broker, "t", version=5) == [("t", 56)]
        assert broker.node.topics.get("t") is not None
        files = broker.files
    async with Broker(files) as broker:
        assert (await broker.produce("t", batch())).base_offset == 1


# CreatePartitions


async def grow(broker, topic, count, *, assignments=None, version=3, validate_only=False):
    request = wire.CreatePartitionsRequest(
        topics=[
            wire.CreatePartitionsTopic(
                name=topic,
                count=count,
                assignments=None
                if assignments is None
                else [wire.CreatePartitionsAssignment(broker_ids=b) for b in assignments],
            )
        ],
        timeout_ms=1,
        validate_only=validate_only,
    )
    [result] = (await broker.ask(request, version)).results
    return result.error_code


@pytest.mark.parametrize("version", range(4))
async def test_topics_grow_to_the_count_that_is_asked_for(version):
    """The count is the new total; existing partitions keep their records."""
    async with Broker() as broker:
        await broker.create("t", 2)
        await broker.produce("t", batch(), partition=1)
        assert await grow(broker, "t", 4, version=version) == 0
        assert len(broker.node.topics.get("t").partitions) == 4
        assert (await broker.produce("t", batch(), partition=1)).base_offset == 1
        assert (await broker.produce("t", batch(), partition=3)).base_offset == 0
        files = broker.files
    async with Broker(files) as broker:
        assert len(broker.node.topics.get("t").partitions) == 4


async def test_topics_do_not_shrink_or_stay():
    """INVALID_PARTITIONS; unknown topics, bad assignments and too many partitions differ."""
    async with Broker() as broker:
        await broker.create("t", 2)
        assert await grow(broker, "t", 2) == 37
        assert await grow(broker, "t", 1) == 37
        assert await grow(broker, "absent", 3) == 3
        assert await grow(broker, "t", 4, assignments=[[0]]) == 39
        assert await grow(broker, "t", 3, assignments=[[7]]) == 39
        assert await grow(broker, "t", 20_000) == 44
        assert await grow(broker, "t", 3, validate_only=True) == 0
        assert len(broker.node.topics.get("t").partitions) == 2
        assert await grow(broker, "t", 4, assignments=[[0], [0]]) == 0


async def test_the_topic_of_the_metadata_log_cannot_be_created():
    """It is this broker's own log, and no topic of the metadata."""
    async with Broker() as broker:
        [result] = await create(broker, creatable("__cluster_metadata"))
        assert result.error_code == 17
        assert result.error_message.endswith("__cluster_metadata is reserved for the metadata log")
