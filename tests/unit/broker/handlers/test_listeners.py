"""Responses with addresses have the address of the listener that received the request.

The responses on a listener without advertised address were compared with Apache Kafka 4.2.
"""

from __future__ import annotations

import pytest

from aiokq import wire
from aiokq.connection.request_context import RequestContext
from tests.unit.broker.harness import Broker

OUTER = RequestContext(1, "10.0.0.9:5000", "10.0.0.9", "PLAINTEXT")
INNER = RequestContext(2, "10.0.0.9:5001", "10.0.0.9", "INNER")
SETTINGS = {
    "listeners": "PLAINTEXT://10.0.0.1:9092,INNER://10.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://outer.example:19092,INNER://[fd00::1]:9094",
}
HIDDEN = {**SETTINGS, "advertised.listeners": "PLAINTEXT://outer.example:19092"}
ADDRESSES = [(OUTER, ("outer.example", 19092)), (INNER, ("fd00::1", 9094))]


@pytest.mark.parametrize(("client", "address"), ADDRESSES)
async def test_metadata_has_the_address_of_the_listener_that_was_asked(client, address):
    """In all versions; a client continues with the address it gets."""
    async with Broker(**SETTINGS) as broker:
        for version in (0, 1, 8, 12, 13):
            response = await broker.ask(wire.MetadataRequest(topics=[]), version, client=client)
            assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(0, *address)]


@pytest.mark.parametrize(("client", "address"), ADDRESSES)
async def test_the_coordinator_is_found_on_the_listener_that_was_asked(client, address):
    """With one key and with several."""
    async with Broker(**SETTINGS) as broker:
        one = await broker.ask(wire.FindCoordinatorRequest(key="g"), 3, client=client)
        assert (one.error_code, one.host, one.port) == (0, *address)
        request = wire.FindCoordinatorRequest(coordinator_keys=["g", "h"])
        several = await broker.ask(request, 4, client=client)
        assert [(c.host, c.port) for c in several.coordinators] == [address, address]


@pytest.mark.parametrize(("client", "address"), ADDRESSES)
async def test_the_cluster_is_described_by_the_listener_that_was_asked(client, address):
    """The address is the one in Metadata."""
    async with Broker(**SETTINGS) as broker:
        response = await broker.ask(wire.DescribeClusterRequest(), 1, client=client)
        assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(0, *address)]


@pytest.mark.parametrize(("version", "code"), [(0, 5), (1, 5), (5, 5), (6, 72), (12, 72)])
async def test_on_a_listener_that_is_not_advertised_there_is_no_broker(version, code):
    """LISTENER_NOT_FOUND, or LEADER_NOT_AVAILABLE for older clients."""
    async with Broker(**HIDDEN) as broker:
        await broker.create("t")
        asked = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="t")])
        response = await broker.ask(asked, version, client=INNER)
        (partition,) = response.topics[0].partitions
        assert response.brokers == []
        assert (response.topics[0].error_code, partition.error_code) == (0, code)
        assert partition.leader_id == -1
        assert partition.replica_nodes == partition.isr_nodes == ([] if version == 0 else [0])
        assert partition.offline_replicas == ([0] if version >= 5 else [])
        seen = await broker.ask(asked, version, client=OUTER)
        assert [p.leader_id for p in seen.topics[0].partitions] == [0]


async def test_the_other_answers_of_a_listener_that_is_not_advertised():
    """DescribeTopicPartitions has no leader and no error, FindCoordinator no coordinator."""
    async with Broker(**HIDDEN) as broker:
        await broker.create("t")
        topics = [wire.DescribeTopicPartitionsTopicRequest(name="t")]
        described = await broker.ask(
            wire.DescribeTopicPartitionsRequest(topics=topics), 0, client=INNER
        )
        (partition,) = described.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (0, -1)
        assert (partition.replica_nodes, partition.offline_replicas) == ([0], [0])
        found = await broker.ask(
            wire.FindCoordinatorRequest(coordinator_keys=["g"]), 4, client=INNER
        )
        (coordinator,) = found.coordinators
        assert (coordinator.error_code, coordinator.node_id, coordinator.host) == (15, -1, "")
        cluster = await broker.ask(wire.DescribeClusterRequest(), 0, client=INNER)
        assert (cluster.error_code, cluster.brokers) == (0, [])


async def test_the_settings_of_the_node_have_all_listeners():
    """DescribeConfigs of Kafka shows all of them too."""
    given = {
        "listeners": f"{SETTINGS['listeners']},CONTROLLER://:9093",
        "listener.security.protocol.map": (
            f"{SETTINGS['listener.security.protocol.map']},CONTROLLER:PLAINTEXT"
        ),
        "controller.listener.names": "CONTROLLER",
    }
    async with Broker(**{**SETTINGS, **given}) as broker:
        request = wire.DescribeConfigsRequest(
            resources=[wire.DescribeConfigsResource(resource_type=4, resource_name="0")]
        )
        response = await broker.ask(request, 4)
        values = {config.name: config.value for config in response.results[0].configs}
        for name, value in given.items():
            assert values[name] == value
        assert values["advertised.listeners"] == SETTINGS["advertised.listeners"]
