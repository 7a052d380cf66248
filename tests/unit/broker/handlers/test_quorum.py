"""The metadata quorum, features and registrations, as clients see and change them."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aiokq import wire
from tests.unit.broker.every_request import every_request
from tests.unit.broker.harness import NOW_MS, Broker, until

METADATA = "__cluster_metadata"
CONTROLLER = {
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
DYNAMIC_QUORUM = CONTROLLER | {"controller.quorum.bootstrap.servers": "127.0.0.1:9093"}


async def quorum(broker, *partitions, version=2):
    topics = {}
    for topic, index in partitions or ((METADATA, 0),):
        topics.setdefault(topic, []).append(wire.DescribeQuorumPartitionData(partition_index=index))
    request = wire.DescribeQuorumRequest(
        topics=[
            wire.DescribeQuorumTopicData(topic_name=name, partitions=found)
            for name, found in topics.items()
        ]
    )
    return await broker.ask(request, version)


async def features(broker, version=4):
    """Return supported ranges, levels and the epoch of the features."""
    request = wire.ApiVersionsRequest(client_software_name="c", client_software_version="1")
    response = await broker.ask(request, version)
    assert response.error_code == 0
    return (
        {one.name: (one.min_version, one.max_version) for one in response.supported_features},
        {
            one.name: (one.min_version_level, one.max_version_level)
            for one in response.finalized_features
        },
        response.finalized_features_epoch,
    )


async def update(broker, *updates, version=2, validate_only=False):
    request = wire.UpdateFeaturesRequest(validate_only=validate_only)
    for name, level, kind in updates:
        key = wire.FeatureUpdateKey(feature=name, max_version_level=level)
        if version:
            key.upgrade_type = kind
        else:
            key.allow_downgrade = kind > 1
        request.feature_updates.append(key)
    response = await broker.ask(request, version)
    return response.error_code, response.error_message, [r.feature for r in response.results]


@pytest.mark.parametrize("version", range(3))
async def test_the_node_leads_the_quorum_alone(version):
    """Offsets are those of the metadata log; each start begins a new epoch."""
    async with Broker(**CONTROLLER) as broker:
        response = await quorum(broker, version=version)
        assert response.error_code == 0
        [topic] = response.topics
        [partition] = topic.partitions
        log = broker.node.storage.metadata
        assert (topic.topic_name, partition.partition_index) == (METADATA, 0)
        assert (partition.leader_id, partition.leader_epoch) == (0, 1)
        assert partition.high_watermark == log.end_offset > 0
        [voter] = partition.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (0, log.end_offset)
        assert partition.observers == []
        if version >= 1:
            assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (NOW_MS, NOW_MS)
        if version >= 2:
            assert voter.replica_directory_id == uuid.UUID(int=0)  # the voters are configured
            [node] = response.nodes
            assert node.node_id == 0
            assert [(one.name, one.host, one.port) for one in node.listeners] == [
                ("CONTROLLER", "127.0.0.1", 9093)
            ]
        await broker.create("t")
        [topic] = (await quorum(broker)).topics
        assert topic.partitions[0].high_watermark > partition.high_watermark
        files = broker.files
    async with Broker(files, **CONTROLLER) as broker:
        [topic] = (await quorum(broker)).topics
        assert topic.partitions[0].leader_epoch == 2


async def test_voters_in_the_log_have_their_directory():
    """With kraft.version 1, a voter is a node and a directory."""
    async with Broker(**DYNAMIC_QUORUM) as broker:
        [topic] = (await quorum(broker)).topics
        [voter] = topic.partitions[0].current_voters
        directory = broker.node.storage.directories.metadata.directory_id
        assert voter.replica_directory_id == directory
        assert (await features(broker))[1]["kraft.version"] == (1, 1)


@pytest.mark.parametrize(
    "partitions",
    [(("t", 0),), ((METADATA, 1),), ((METADATA, 0), (METADATA, 0)), ((METADATA, 0), ("t", 0))],
)
async def test_other_partitions_have_no_quorum(partitions):
    """As in Kafka, each partition of the request is answered with error 3."""
    async with Broker() as broker:
        response = await quorum(broker, *partitions)
        assert response.error_code == 0
        found = [(t.topic_name, p.partition_index) for t in response.topics for p in t.partitions]
        assert found == list(partitions)
        for topic in response.topics:
            for partition in topic.partitions:
                assert partition.error_code == 3
                assert partition.error_message


async def test_features_are_told_with_their_levels():
    """Only those that work here, and up to version 3 only those whose range begins above 0."""
    async with Broker() as broker:
        supported, finalized, epoch = await features(broker)
        assert supported == {
            "metadata.version": (7, 29),
            "kraft.version": (0, 1),
            "group.version": (0, 1),
            "transaction.version": (0, 2),
            "eligible.leader.replicas.version": (0, 1),
        }
        assert finalized == {
            "metadata.version": (25, 25),
            "group.version": (1, 1),
            "transaction.version": (2, 2),
            "eligible.leader.replicas.version": (1, 1),
        }
        assert epoch == broker.node.storage.metadata.end_offset - 1
        supported, same, _ = await features(broker, 3)
        assert (supported, same) == ({"metadata.version": (7, 29)}, finalized)
        for version in range(3):
            assert await features(broker, version) == ({}, {}, -1)
        await broker.create("t")
        assert (await features(broker))[2] > epoch


async def test_levels_and_their_epoch_change_together(monkeypatch):
    """A client keeps the levels with the highest epoch, so old levels must not have a new one."""
    async with Broker() as broker:
        before = await features(broker)
        publisher, seen = broker.node.storage.publisher, []
        publish = publisher.publish

        async def watched(delta):
            seen.append(await features(broker))
            return await publish(delta)

        monkeypatch.setattr(publisher, "publish", watched)
        assert (await update(broker, ("metadata.version", 27, 1)))[0] == 0
        assert seen == [before], "the change is durable, but not in effect"
        _, levels, epoch = await features(broker)
        assert levels["metadata.version"] == (27, 27)
        assert epoch == broker.node.storage.metadata.end_offset - 1 > before[2]


async def test_the_high_watermark_is_the_end_of_the_durable_records(monkeypatch):
    """Records are in the log before their sync has succeeded."""
    async with Broker() as broker:
        log, seen = broker.node.storage.metadata, []
        before = log.end_offset
        sync = log._log.sync_records

        def watched():
            seen.append(broker.node.dispatcher._areas.quorum.describe())
            sync()

        monkeypatch.setattr(log._log, "sync_records", watched)
        await broker.create("t")
        assert [(one.high_watermark, one.end_offset) for one in seen] == [(before, log.end_offset)]
        [topic] = (await quorum(broker)).topics
        assert topic.partitions[0].high_watermark == log.end_offset


@pytest.mark.parametrize("version", range(3))
async def test_levels_change_up_and_down(version):
    """The answer has a result per feature up to version 1."""
    async with Broker() as broker:
        names = ["metadata.version", "group.version"] if version < 2 else []
        changes = ("metadata.version", 27, 1), ("group.version", 1, 1)
        assert await update(broker, *changes, version=version) == (0, None, names)
        assert (await features(broker))[1]["metadata.version"] == (27, 27)
        changes = ("metadata.version", 25, 2), ("group.version", 0, 2)
        assert await update(broker, *changes, version=version) == (0, None, names)
        files = broker.files
    async with Broker(files) as broker:
        finalized = (await features(broker))[1]
        assert finalized["metadata.version"] == (25, 25)
        assert "group.version" not in finalized


async def test_an_error_is_told_and_changes_nothing():
    """The text is Kafka's."""
    async with Broker() as broker:
        before = await features(broker)
        changes = ("group.version", 0, 2), ("share.version", 1, 1)
        code, message, results = await update(broker, *changes)
        assert (code, results) == (95, [])
        assert message == (
            "The update failed for all features since the following feature had an error: Invalid "
            "update version 1 for feature share.version. Local controller 0 does not support this "
            "feature."
        )
        assert await update(broker, ("group.version", 0, 2), validate_only=True) == (0, None, [])
        assert await features(broker) == before


async def test_without_its_feature_the_consumer_protocol_is_off():
    """As in Kafka; classic groups are not concerned."""
    async with Broker() as broker:
        assert (await update(broker, ("group.version", 0, 2)))[0] == 0
        [heartbeat] = every_request(68, 1, [], {}, "g")
        assert (await broker.ask(heartbeat, 1)).error_code == 35
        [describe] = every_request(69, 1, [], {}, "g")
        groups = (await broker.ask(describe, 1)).groups
        assert {group.error_code for group in groups} == {35}


async def test_eligible_replicas_come_with_the_setting_that_they_need():
    """min.insync.replicas becomes one for the cluster."""
    async with Broker(min_insync_replicas=2) as broker:
        name = "eligible.leader.replicas.version"
        assert (await update(broker, (name, 0, 2)))[0] == 0
        settings = broker.node.dynamic_settings
        request = wire.IncrementalAlterConfigsRequest(
            resources=[
                wire.IncrementalAlterConfigsResource(
                    resource_type=4,
                    resource_name=resource,
                    configs=[
                        wire.IncrementalAlterConfigsAlterableConfig(
                            name="min.insync.replicas", config_operation=operation, value=value
                        )
                    ],
                )
                for resource, operation, value in (("", 1, None), ("0", 0, "3"))
            ]
        )
        assert [one.error_code for one in (await broker.ask(request, 1)).responses] == [0, 0]
        assert (settings.current.min_insync_replicas, settings.cluster) == (3, {})
        assert (await update(broker, (name, 1, 1)))[0] == 0
        assert settings.current.min_insync_replicas == 2
        assert (settings.cluster, settings.own) == ({"min.insync.replicas": "2"}, {})


async def test_voters_move_into_the_log_once():
    """The node goes on after a restart, and there is no way back."""
    async with Broker(**CONTROLLER) as broker:
        assert "kraft.version" not in (await features(broker))[1]
        assert await update(broker, ("kraft.version", 1, 1), validate_only=True) == (0, None, [])
        assert "kraft.version" not in (await features(broker))[1]
        assert await update(broker, ("kraft.version", 1, 1)) == (0, None, [])
        assert (await features(broker))[1]["kraft.version"] == (1, 1)
        await broker.create("t")
        files = broker.files
    async with Broker(files, **DYNAMIC_QUORUM) as broker:
        assert (await features(broker))[1]["kraft.version"] == (1, 1)
        assert broker.node.topics.get("t") is not None
        code, message, _ = await update(broker, ("kraft.version", 0, 2))
        assert code == 95
        assert message.endswith("Can't downgrade the version of this feature.")
        directory = broker.node.storage.directories.metadata.directory_id
        [topic] = (await quorum(broker)).topics
        assert topic.partitions[0].current_voters[0].replica_directory_id == directory


async def test_a_voter_needs_no_listener_for_controllers():
    """Kafka replaces the address when it starts on the log."""
    async with Broker() as broker:
        assert await update(broker, ("kraft.version", 1, 1)) == (0, None, [])
        [topic] = (await quorum(broker)).topics
        directory = broker.node.storage.directories.metadata.directory_id
        [voter] = topic.partitions[0].current_voters
        assert (voter.replica_id, voter.replica_directory_id) == (0, directory)
        [recorded] = broker.node.storage.metadata.voters_with(directory).voters
        assert [(one.host, one.port) for one in recorded.endpoints] == [("localhost", 9093)]
        files = broker.files
    async with Broker(files) as broker:
        assert (await features(broker))[1]["kraft.version"] == (1, 1)


async def test_a_new_level_lets_the_node_register_with_its_directories():
    """A directory of Kafka 3.6 has neither controllers nor directories in its metadata."""
    async with Broker() as broker:
        assert (await update(broker, ("eligible.leader.replicas.version", 0, 2)))[0] == 0
        image = broker.node.storage.metadata.image
        image.features["metadata.version"] = 14
        image.controllers.clear()
        image.brokers[0].log_dirs = []
        broker.node.storage.publisher.features = dict(image.features)
        assert (await update(broker, ("metadata.version", 25, 1)))[0] == 0
        assert list(image.controllers) == [0]
        assert image.brokers[0].log_dirs == list(broker.node.storage.directories.online_ids)
        assert not image.brokers[0].fenced
        incarnation = image.controllers[0].incarnation_id
        assert incarnation.bytes[:6] == image.brokers[0].incarnation_id.bytes[:6] == b"aiokq\0"


async def test_a_node_registers_with_its_directories_although_the_client_has_left(monkeypatch):
    """Level and registration are one change, which goes on without the client."""
    async with Broker() as broker:
        storage = broker.node.storage
        assert (await update(broker, ("eligible.leader.replicas.version", 0, 2)))[0] == 0
        image = storage.metadata.image
        image.features["metadata.version"] = 14
        image.controllers.clear()
        image.brokers[0].log_dirs = []
        storage.publisher.features = dict(image.features)
        publish, gate = storage.publisher.publish, asyncio.Event()

        async def held(delta):
            await gate.wait()
            return await publish(delta)

        monkeypatch.setattr(storage.publisher, "publish", held)
        asked = asyncio.ensure_future(update(broker, ("metadata.version", 25, 1)))
        await until(lambda: image.features["metadata.version"] == 25)
        asked.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(lambda: image.controllers)
        assert image.brokers[0].log_dirs == list(storage.directories.online_ids)


async def brokers(broker, **options):
    response = await broker.ask(wire.DescribeClusterRequest(**options), 2)
    return [(one.broker_id, one.is_fenced) for one in response.brokers]


async def test_a_broker_that_is_gone_is_unregistered():
    """It is in the metadata of a cluster that had more nodes."""
    async with Broker() as broker:
        image = broker.node.storage.metadata.image
        gone = wire.UnregisterBrokerRequest(broker_id=5)
        response = await broker.ask(gone, 0)
        assert (response.error_code, response.error_message) == (
            102,
            "Broker ID 5 is not currently registered",
        )
        own = await broker.ask(wire.UnregisterBrokerRequest(broker_id=0), 0)
        assert own.error_code == 42
        assert own.error_message.startswith("Broker 0 is this node, which is running")
        address = type(image.brokers[0].end_points[0])(name="PLAINTEXT", host="b5", port=95)
        registered = type(image.brokers[0])(broker_id=5, broker_epoch=3, end_points=[address])
        broker.node.storage.metadata.append(registered)
        assert await brokers(broker, include_fenced_brokers=False) == [(0, False)]
        assert await brokers(broker, include_fenced_brokers=True) == [(0, False), (5, True)]
        response = await broker.ask(gone, 0)
        assert (response.error_code, response.error_message) == (0, None)
        assert list(image.brokers) == [0]
        files = broker.files
    async with Broker(files) as broker:
        assert list(broker.node.storage.metadata.image.brokers) == [0]
