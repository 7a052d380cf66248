"""aiokq's admin client on Apache Kafka, one node: typed results, and errors of single items."""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import UUID, uuid4

import pytest

import aiokq
from aiokq import errors
from aiokq.admin.config_types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from aiokq.admin.features import FeatureUpdate
from aiokq.admin.partitions import NewPartitions
from aiokq.admin.topics import NewTopic
from tests.interop.apache.support import BASE_TIME, create_topic, eventually
from tests.peers.apache_kafka import run_tool

pytestmark = pytest.mark.kafka


@pytest.fixture
async def admin(apache):
    async with aiokq.Admin(apache.bootstrap_servers) as client:
        yield client


async def test_topics_are_created_listed_described_and_deleted(apache, admin, topic):
    """In a call for many topics each has its own result, and an error affects only its topic."""
    other, bad = f"{topic}-other", f"{topic}/bad"
    created = await admin.create_topics(
        [
            NewTopic(topic, 3, 1, configs={"retention.ms": 100_000}),
            NewTopic(other, assignments={0: [1], 1: [1]}),
            NewTopic(bad, 1),
            NewTopic(f"{topic}-wide", 1, 3),
            NewTopic(f"{topic}-config", 1, configs={"no.such.config": "1"}),
        ]
    )
    assert created[topic].error is None
    assert isinstance(created[topic].topic_id, UUID)
    assert (created[topic].num_partitions, created[topic].replication_factor) == (3, 1)
    assert created[topic].configs["retention.ms"] == "100000"
    assert created[other].error is None
    assert isinstance(created[bad].error, errors.InvalidTopic)
    assert isinstance(created[f"{topic}-wide"].error, errors.InvalidReplicationFactor)
    assert isinstance(created[f"{topic}-config"].error, errors.InvalidConfiguration)
    assert "no.such.config" in str(created[f"{topic}-config"].error)
    assert not created.ok
    with pytest.raises(errors.TopicExists):
        await admin.create_topics(topic, raise_errors=True)

    async def lists_both() -> None:
        assert {topic, other} <= set(await admin.list_topics())

    await eventually(lists_both)
    listed = await admin.list_topics()
    assert (listed[topic].partitions, listed[topic].internal) == (3, False)
    assert listed[topic].topic_id == created[topic].topic_id
    assert bad not in listed

    described = await admin.describe_topics([topic, other, "nowhere"])
    assert isinstance(described["nowhere"].error, errors.UnknownTopicOrPartition)
    assert described[topic].topic_id == created[topic].topic_id
    assert [(p.partition, p.leader, p.replicas, p.isr) for p in described[topic].partitions] == [
        (n, 1, (1,), (1,)) for n in range(3)
    ]
    assert topic in await admin.describe_topics()

    printed = run_tool(
        "TopicCommand", "--bootstrap-server", apache.bootstrap_servers, "--describe",
        "--topic", topic,
    ).stdout  # fmt: skip
    assert "PartitionCount: 3" in printed
    assert "retention.ms=100000" in printed

    unknown = uuid4()
    deleted = await admin.delete_topics([topic, created[other].topic_id, "nowhere", unknown])
    assert deleted[topic].error is None
    assert deleted[created[other].topic_id].error is None
    assert isinstance(deleted["nowhere"].error, errors.UnknownTopicOrPartition)
    assert isinstance(deleted[unknown].error, errors.UnknownTopicId)

    async def lists_none() -> None:
        assert {topic, other}.isdisjoint(await admin.list_topics())

    await eventually(lists_none)


async def test_checking_alone_creates_nothing(apache, admin, topic):
    """validate_only exists for topics, partitions and configs."""
    checked = await admin.create_topics(topic, num_partitions=2, validate_only=True)
    assert checked.ok
    await create_topic(apache, topic, 2)  # it did not exist before
    assert (await admin.create_partitions({topic: 5}, validate_only=True)).ok
    change = {topic: {"retention.ms": 5}}
    assert (await admin.alter_configs(change, validate_only=True)).ok
    [described] = (await admin.describe_topics(topic)).values()
    assert len(described.partitions) == 2
    [configs] = (await admin.describe_configs(topic, names=["retention.ms"])).values()
    assert configs.entries["retention.ms"].is_default


async def test_many_partitions_are_described_whole(apache, admin, topic):
    """Topics and partitions that fill several pages of 20 partitions come complete, in order."""
    counts = {f"{topic}-{n}": 15 + n for n in range(3)}
    await admin.create_topics(
        [NewTopic(name, count, 1) for name, count in counts.items()], raise_errors=True
    )

    async def all_described() -> None:
        described = await admin.describe_topics(counts, raise_errors=True)
        assert {name: len(each.partitions) for name, each in described.items()} == counts
        for each in described.values():
            assert [p.partition for p in each.partitions] == list(range(len(each.partitions)))

    await eventually(all_described)


async def test_partitions_are_added(apache, admin, topic):
    """By count and by assignment; a count below the current one fails for that topic alone."""
    for name in (topic, f"{topic}-b", f"{topic}-c"):
        await create_topic(apache, name, 2)
    grown = await admin.create_partitions(
        {topic: 4, f"{topic}-b": NewPartitions(3, [[1]]), f"{topic}-c": 1, "nowhere": 3}
    )
    assert grown[topic].error is None
    assert grown[f"{topic}-b"].error is None
    assert isinstance(grown[f"{topic}-c"].error, errors.InvalidPartitions)
    assert isinstance(grown["nowhere"].error, errors.UnknownTopicOrPartition)

    async def all_grown() -> None:
        described = await admin.describe_topics([topic, f"{topic}-b", f"{topic}-c"])
        assert [len(each.partitions) for each in described.values()] == [4, 3, 2]

    await eventually(all_grown)


async def test_leaders_are_elected_and_partitions_reassigned(apache, admin, topic):
    """On one node no election is needed, and a partition can be reassigned to its own node."""
    await create_topic(apache, topic, 2)
    for kind in ("preferred", "unclean"):
        elected = await admin.elect_leaders([(topic, 0), (topic, 9)], election_type=kind)
        assert isinstance(elected[topic, 0].error, errors.ElectionNotNeeded)
        assert isinstance(elected[topic, 9].error, errors.UnknownTopicOrPartition)
    assert not any(tp.topic == topic for tp in await admin.elect_leaders())
    done = await admin.alter_partition_reassignments({(topic, 0): [1], (topic, 1): [9]})
    assert done[topic, 0].error is None
    assert isinstance(done[topic, 1].error, errors.InvalidReplicaAssignment)
    done = await admin.alter_partition_reassignments({(topic, 0): None})
    assert isinstance(done[topic, 0].error, errors.NoReassignmentInProgress)
    assert await admin.list_partition_reassignments([(topic, 0)]) == {}


async def test_what_has_configs_is_listed(apache, admin, topic):
    """Resources are listed by type; topics and brokers also without configs of their own."""
    await create_topic(apache, topic)

    async def listed() -> None:
        kinds = (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
        found = await admin.list_config_resources(kinds)
        assert ConfigResource(ConfigResourceType.TOPIC, topic) in found
        assert ConfigResource(ConfigResourceType.BROKER, "1") in found

    await eventually(listed)


async def test_configs_are_changed_one_by_one(apache, admin, topic):
    """Set, append, subtract and delete; other configs are kept, and sources are reported."""
    await create_topic(apache, topic, cleanup_policy="delete")
    altered = await admin.alter_configs(
        {
            topic: {"retention.ms": 5000, "cleanup.policy": ConfigChange.append("compact")},
            f"{topic}-nowhere": {"retention.ms": 1},
        }
    )
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    nowhere = ConfigResource(ConfigResourceType.TOPIC, f"{topic}-nowhere")
    assert altered[resource].error is None
    assert isinstance(altered[nowhere].error, errors.UnknownTopicOrPartition)

    async def altered_configs() -> Mapping[str, ConfigEntry]:
        described = await admin.describe_configs(
            [topic, f"{topic}-nowhere"], include_synonyms=True, include_documentation=True
        )
        assert isinstance(described[nowhere].error, errors.UnknownTopicOrPartition)
        assert described[resource].entries["retention.ms"].value == "5000"
        return described[resource].entries

    entries = await eventually(altered_configs)
    assert entries["retention.ms"].source is ConfigSource.TOPIC_CONFIG
    assert entries["retention.ms"].synonyms[0].source is ConfigSource.TOPIC_CONFIG
    assert "retention" in (entries["retention.ms"].documentation or "")
    assert entries["cleanup.policy"].value == "delete,compact"
    assert entries["segment.bytes"].is_default

    await admin.alter_configs(
        {topic: {"retention.ms": None, "cleanup.policy": ConfigChange.subtract("delete")}},
        raise_errors=True,
    )

    async def altered_again() -> None:
        described = await admin.describe_configs(topic, names=["retention.ms", "cleanup.policy"])
        entries = described[resource].entries
        assert set(entries) == {"retention.ms", "cleanup.policy"}
        assert entries["retention.ms"].is_default
        assert entries["cleanup.policy"].value == "compact"

    await eventually(altered_again)
    with pytest.raises(errors.InvalidConfiguration, match="retention"):
        await admin.alter_configs({topic: {"retention.ms": "soon"}}, raise_errors=True)


async def test_a_brokers_configs_are_asked_of_that_broker(admin):
    """Read-only and sensitive configs are marked; an unknown broker is an error."""
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    absent = ConfigResource(ConfigResourceType.BROKER, "77")
    described = await admin.describe_configs([broker, absent], timeout=1)
    assert described[absent].error is not None
    assert described[broker].entries["node.id"].value == "1"
    assert described[broker].entries["node.id"].read_only
    changed = await admin.alter_configs({broker: {"log.cleaner.threads": 2}})
    assert changed[broker].error is None

    async def altered() -> None:
        described = await admin.describe_configs(broker, names=["log.cleaner.threads"])
        entry = described[broker].entries["log.cleaner.threads"]
        assert (entry.value, entry.source) == ("2", ConfigSource.DYNAMIC_BROKER_CONFIG)

    await eventually(altered)
    await admin.alter_configs({broker: {"log.cleaner.threads": None}}, raise_errors=True)


async def test_the_cluster_is_described(apache, admin):
    """Id, controller and brokers with their racks."""
    described = await admin.describe_cluster(include_fenced_brokers=True)
    assert len(described.cluster_id or "") == 22
    assert described.controller_id == 1
    [broker] = described.brokers
    assert f"{broker.host}:{broker.port}" == apache.bootstrap_servers
    assert (broker.node_id, broker.rack, broker.fenced) == (1, "rack-1", False)


async def test_the_quorum_and_the_features_are_described(apache, admin):
    """One voter, which leads; a change of features is validated and refused in Kafka's words."""
    quorum = await admin.describe_metadata_quorum()
    [voter] = quorum.voters
    assert (quorum.leader_id, voter.replica_id, quorum.observers) == (1, 1, ())
    assert voter.log_end_offset >= quorum.high_watermark > 0
    assert voter.last_caught_up_timestamp_ms > BASE_TIME
    [endpoint] = quorum.nodes[1].endpoints
    assert (endpoint.listener, endpoint.port) == ("CONTROLLER", apache.controller_ports[1])

    features = await admin.describe_features()
    assert features == await admin.describe_features(node_id=1)
    assert features.finalized_features_epoch > 0
    level = features.finalized_features["metadata.version"].max_version_level
    assert level == features.supported_features["metadata.version"].max_version
    assert features.supported_features["group.version"].min_version == 0

    updates = {"metadata.version": level, "group.version": FeatureUpdate(0, "safe_downgrade")}
    assert (await admin.update_features(updates, validate_only=True)).ok
    refused = await admin.update_features({"metadata.version": level + 9, "group.version": 1})
    assert [type(each.error) for each in refused.values()] == [errors.InvalidUpdateVersion] * 2
    assert "metadata.version" in str(refused["group.version"].error)
    again = await admin.describe_features()
    assert again.finalized_features == features.finalized_features
    with pytest.raises(errors.BrokerIdNotRegistered, match="77"):
        await admin.unregister_broker(77)


@pytest.mark.full
async def test_a_feature_is_turned_off_and_on(apache, admin):
    """Kafka's tool shows the same levels."""

    async def off() -> None:
        assert "streams.version" not in (await admin.describe_features()).finalized_features

    update = {"streams.version": FeatureUpdate(0, "safe_downgrade")}
    await admin.update_features(update, raise_errors=True)
    try:
        await eventually(off)
        printed = run_tool(
            "FeatureCommand", "--bootstrap-server", apache.bootstrap_servers, "describe"
        ).stdout
        [line] = [line for line in printed.splitlines() if "streams.version" in line]
        assert "FinalizedVersionLevel: 0" in line
    finally:
        await admin.update_features({"streams.version": 1}, raise_errors=True)

    async def on() -> None:
        found = (await admin.describe_features()).finalized_features
        assert found["streams.version"].max_version_level == 1

    await eventually(on)


async def test_offsets_are_listed_for_every_kind_of_time(apache, admin, topic):
    """Ends, a timestamp and the maximum timestamp; an unknown partition fails alone."""
    await create_topic(apache, topic, 3)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        for n in range(10):
            await producer.send(topic, b"v", partition=0, timestamp_ms=BASE_TIME + 1000 * n)
    listed = await admin.list_offsets({(topic, 0): BASE_TIME + 4500})
    assert (listed[(topic, 0)].offset, listed[(topic, 0)].timestamp_ms) == (5, BASE_TIME + 5000)
    for spec, offset in {"earliest": 0, "latest": 10, "max_timestamp": 9}.items():
        listed = await admin.list_offsets({(topic, 0): spec}, isolation_level="read_committed")
        assert listed[(topic, 0)].offset == offset
    listed = await admin.list_offsets(
        {(topic, 0): "latest", (topic, 1): "latest", (topic, 2): 0, (topic, 9): "latest"},
        timeout=5,
    )
    assert [listed[(topic, n)].offset for n in range(3)] == [10, 0, -1]
    assert isinstance(listed[(topic, 9)].error, errors.UnknownTopicOrPartition)


async def test_records_are_deleted(apache, admin, topic):
    """The log start offset moves; records after the end cannot be deleted."""
    await create_topic(apache, topic, 3)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        for partition in range(3):
            await (await producer.send_many(topic, [(None, b"v")] * 10, partition=partition))
    deleted = await admin.delete_records({(topic, 0): 4, (topic, 1): "latest", (topic, 2): 99})
    assert deleted[(topic, 0)].low_watermark == 4
    assert deleted[(topic, 1)].low_watermark == 10
    assert isinstance(deleted[(topic, 2)].error, errors.OffsetOutOfRange)
    starts = await admin.list_offsets({(topic, n): "earliest" for n in range(3)})
    assert [starts[(topic, n)].offset for n in range(3)] == [4, 10, 0]


async def test_a_call_ends_within_its_timeout(apache):
    """No broker listens: the error comes in time and names the addresses that were tried."""
    started = time.monotonic()
    with pytest.raises(errors.BootstrapFailed, match=r"127\.0\.0\.1:1"):
        async with aiokq.Admin("127.0.0.1:1", bootstrap_timeout_ms=500):
            pass
    assert time.monotonic() - started < 2
