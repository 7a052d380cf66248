"""Metadata, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

import uuid

import pytest

from aiokq import wire
from tests.unit.broker.harness import Broker


def metadata(*names, **options):
    topics = [wire.MetadataRequestTopic(name=name) for name in names]
    return wire.MetadataRequest(topics=topics, **options)


@pytest.mark.parametrize("version", range(14))
async def test_every_version_names_brokers_and_leaders(version):
    """Every client sends this request first."""
    async with Broker() as broker:
        await broker.create("orders", 3)
        response = await broker.ask(metadata("orders"), version)
        [node] = response.brokers
        assert (node.node_id, node.host) == (0, "127.0.0.1")
        [topic] = response.topics
        assert topic.error_code == 0
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        assert all(p.leader_id == 0 and p.replica_nodes == [0] for p in topic.partitions)
        if version >= 1:
            assert response.controller_id == 0
        if version >= 2:
            assert response.cluster_id
        if version >= 7:
            assert {p.leader_epoch for p in topic.partitions} == {0}


async def test_null_means_all_topics_and_empty_means_none():
    """Version 0 has no null, and its empty list means all."""
    async with Broker() as broker:
        await broker.create("a")
        await broker.create("b")
        everything = await broker.ask(wire.MetadataRequest(topics=None), 12)
        assert [topic.name for topic in everything.topics] == ["a", "b"]
        nothing = await broker.ask(wire.MetadataRequest(topics=[]), 12)
        assert nothing.topics == []
        old = await broker.ask(wire.MetadataRequest(topics=[]), 0)
        assert [topic.name for topic in old.topics] == ["a", "b"]


async def test_asking_creates_where_broker_and_request_allow_it():
    """The first response already has leaders."""
    async with Broker(num_partitions=2) as broker:
        refused = await broker.ask(metadata("t", allow_auto_topic_creation=False), 12)
        assert [t.error_code for t in refused.topics] == [3]
        created = await broker.ask(metadata("t", allow_auto_topic_creation=True), 12)
        assert [len(t.partitions) for t in created.topics] == [2]
        assert created.topics[0].topic_id.int
    async with Broker(auto_create_topics_enable=False) as broker:
        refused = await broker.ask(metadata("t", allow_auto_topic_creation=True), 12)
        assert [t.error_code for t in refused.topics] == [3]


async def test_versions_before_4_cannot_forbid_creation():
    """They have no flag for it."""
    async with Broker() as broker:
        created = await broker.ask(metadata("t"), 3)
        assert [t.error_code for t in created.topics] == [0]


async def test_asking_for_all_topics_creates_none():
    """An empty list creates none either."""
    async with Broker() as broker:
        await broker.ask(wire.MetadataRequest(topics=None), 12)
        assert len(broker.node.topics) == 0


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "__cluster_metadata"]
)
async def test_a_name_that_no_topic_can_have_is_17(name):
    """The name would also be the name of a directory."""
    async with Broker() as broker:
        response = await broker.ask(metadata(name), 12)
        assert [t.error_code for t in response.topics] == [17]
        assert len(broker.node.topics) == 0


async def test_a_name_that_collides_by_dot_and_underscore_is_17():
    """The two topics would be the same in Kafka's metrics."""
    async with Broker() as broker:
        await broker.create("a.b")
        response = await broker.ask(metadata("a_b"), 12)
        assert [t.error_code for t in response.topics] == [17]


async def test_internal_topics_are_not_made_by_asking():
    """A plain topic of that name would break its future coordinator."""
    async with Broker() as broker:
        response = await broker.ask(metadata("__consumer_offsets"), 12)
        assert [t.error_code for t in response.topics] == [3]


async def test_topics_can_be_asked_for_by_id_from_version_12_on():
    """An unknown id gets UNKNOWN_TOPIC_ID and a null name; before version 12 INVALID_REQUEST."""
    async with Broker() as broker:
        topic_id = await broker.create("t")
        by_id = [wire.MetadataRequestTopic(name=None, topic_id=topic_id)]
        response = await broker.ask(wire.MetadataRequest(topics=by_id), 12)
        assert [t.name for t in response.topics] == ["t"]
        as_java_does = [wire.MetadataRequestTopic(name="", topic_id=topic_id)]
        response = await broker.ask(wire.MetadataRequest(topics=as_java_does), 12)
        assert [t.name for t in response.topics] == ["t"]
        unknown = [wire.MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=9))]
        response = await broker.ask(wire.MetadataRequest(topics=unknown), 12)
        [topic] = response.topics
        assert (topic.error_code, topic.name, topic.topic_id) == (100, None, uuid.UUID(int=9))
        response = await broker.ask(wire.MetadataRequest(topics=unknown), 10)
        assert [t.error_code for t in response.topics] == [42]


async def test_a_name_asked_twice_is_answered_once():
    """Java's client builds a map from the response."""
    async with Broker() as broker:
        response = await broker.ask(metadata("t", "t"), 12)
        assert [t.name for t in response.topics] == ["t"]


async def test_authorized_operations_are_told_only_when_asked():
    """The default value of the bit field means that they were not requested."""
    async with Broker() as broker:
        plain = await broker.ask(metadata("t"), 10)
        assert plain.topics[0].topic_authorized_operations == -(2**31)
        assert plain.cluster_authorized_operations == -(2**31)
        asked = await broker.ask(
            metadata(
                "t",
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            ),
            10,
        )
        assert asked.topics[0].topic_authorized_operations > 0
        assert asked.cluster_authorized_operations > 0


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_names_brokers_and_controller(version):
    """This serves AdminClient.describeCluster()."""
    async with Broker(broker_rack="r1") as broker:
        response = await broker.ask(wire.DescribeClusterRequest(), version)
        assert response.error_code == 0
        assert response.cluster_id == broker.node.cluster_id
        assert response.controller_id == 0
        assert [(b.broker_id, b.rack) for b in response.brokers] == [(0, "r1")]


async def test_describe_cluster_of_controllers_is_refused_with_the_right_code():
    """MISMATCHED_ENDPOINT_TYPE for controllers, UNSUPPORTED_ENDPOINT_TYPE for an unknown type."""
    async with Broker() as broker:
        for endpoint_type, code in ((2, 114), (3, 115)):
            request = wire.DescribeClusterRequest(endpoint_type=endpoint_type)
            assert (await broker.ask(request, 1)).error_code == code


def described(response):
    return [
        (topic.name, topic.error_code, [p.partition_index for p in topic.partitions])
        for topic in response.topics
    ]


async def test_describe_topic_partitions_pages_by_its_cursor():
    """Java's Admin client reads large clusters page by page."""
    async with Broker() as broker:
        await broker.create("a", 3)
        await broker.create("b", 2)
        request = wire.DescribeTopicPartitionsRequest(response_partition_limit=2)
        first = await broker.ask(request, 0)
        assert described(first) == [("a", 0, [0, 1])]
        assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("a", 2)
        request.cursor = first.next_cursor
        second = await broker.ask(request, 0)
        assert described(second) == [("a", 0, [2]), ("b", 0, [0])]
        request.cursor = second.next_cursor
        third = await broker.ask(request, 0)
        assert described(third) == [("b", 0, [1])]
        assert third.next_cursor is None


async def test_describe_topic_partitions_sends_empty_lists_where_java_fails_on_null():
    """Java's 4.0 client throws a NullPointerException on null."""
    async with Broker() as broker:
        await broker.create("a")
        response = await broker.ask(wire.DescribeTopicPartitionsRequest(), 0)
        [partition] = response.topics[0].partitions
        assert partition.eligible_leader_replicas == []
        assert partition.last_known_elr == []
        assert partition.offline_replicas == []


async def test_describe_topic_partitions_names_unknown_topics():
    """Only topics requested by name get an error."""
    async with Broker() as broker:
        await broker.create("b")
        names = [wire.DescribeTopicPartitionsTopicRequest(name=n) for n in ("b", "a", "no good")]
        response = await broker.ask(wire.DescribeTopicPartitionsRequest(topics=names), 0)
        assert described(response) == [("a", 3, []), ("b", 0, [0]), ("no good", 17, [])]
