"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

import pytest

from aiokq import wire
from aiokq.core.errors import KafkaStorage
from tests.unit.broker.harness import Broker

PREFERRED, UNCLEAN = range(2)


async def elect(broker, asked, *, kind=PREFERRED, version=2):
    request = wire.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if asked is None
        else [
            wire.ElectLeadersTopicPartitions(topic=topic, partitions=partitions)
            for topic, partitions in asked.items()
        ],
    )
    response = await broker.ask(request, version)
    found = {
        (result.topic, partition.partition_id): partition.error_code
        for result in response.replica_election_results
        for partition in result.partition_result
    }
    return response.error_code, found


async def reassign(broker, asked, *, version=1, allow_factor=True):
    request = wire.AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_factor,
        topics=[
            wire.ReassignableTopic(
                name=topic,
                partitions=[
                    wire.ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions.items()
                ],
            )
            for topic, partitions in asked.items()
        ],
    )
    response = await broker.ask(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    if version:
        assert response.allow_replication_factor_change is allow_factor
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.responses
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(3))
async def test_a_partition_that_has_its_leader_needs_no_election(version):
    """ELECTION_NOT_NEEDED, or UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist."""
    async with Broker() as broker:
        await broker.create("t", partitions=2)
        code, found = await elect(broker, {"t": [0, 1, 7], "absent": [0]}, version=version)
        assert code == 0
        assert found == {("t", 0): 84, ("t", 1): 84, ("t", 7): 3, ("absent", 0): 3}


async def test_all_partitions_means_those_that_need_an_election():
    """A request for all partitions returns only those with an election, but names each topic."""
    async with Broker() as broker:
        await broker.create("t", partitions=2)
        response = await broker.ask(wire.ElectLeadersRequest(topic_partitions=None), 2)
        [result] = response.replica_election_results
        assert (result.topic, result.partition_result) == ("t", [])


@pytest.mark.parametrize(("kind", "code"), [(PREFERRED, 80), (UNCLEAN, 83)])
async def test_nobody_can_lead_a_partition_whose_log_is_away(kind, code):
    """PREFERRED_ or ELIGIBLE_LEADERS_NOT_AVAILABLE, because there is no other replica."""
    async with Broker() as broker:
        await broker.create("t", partitions=2)
        broker.node.topics.get("t").partitions[1].take_offline(KafkaStorage("the disk is gone"))
        assert await elect(broker, {"t": [0, 1]}, kind=kind) == (0, {("t", 0): 84, ("t", 1): code})
        assert await elect(broker, None, kind=kind) == (0, {("t", 1): code})


async def test_an_unknown_kind_of_election_is_refused_as_a_whole():
    """INVALID_REQUEST for the request and each partition, as in Kafka."""
    async with Broker() as broker:
        await broker.create("t")
        assert await elect(broker, {"t": [0]}, kind=2) == (42, {("t", 0): 42})
        assert await elect(broker, None, kind=-1) == (42, {})


@pytest.mark.parametrize("version", range(2))
async def test_a_partition_may_be_assigned_to_where_it_is(version):
    """INVALID_REPLICA_ASSIGNMENT for other brokers; a cancellation finds no reassignment."""
    async with Broker() as broker:
        await broker.create("t", partitions=6)
        asked = {
            "t": {0: [0], 1: [9], 2: None, 3: [], 4: [0, 0], 5: [0, 9], 8: [0]},
            "absent": {0: [0]},
        }
        assert await reassign(broker, asked, version=version) == {
            ("t", 0): 0,
            ("t", 1): 39,
            ("t", 2): 85,
            ("t", 3): 39,
            ("t", 4): 39,
            ("t", 5): 39,
            ("t", 8): 3,
            ("absent", 0): 3,
        }


async def test_the_number_of_replicas_cannot_change():
    """With one broker there can be no more replicas, even if the request allows a change."""
    async with Broker() as broker:
        await broker.create("t")
        for allowed in (True, False):
            assert await reassign(broker, {"t": {0: [0]}}, allow_factor=allowed) == {("t", 0): 0}
            assert await reassign(broker, {"t": {0: [0, 1]}}, allow_factor=allowed) == {
                ("t", 0): 39
            }


@pytest.mark.parametrize("topics", [None, [], ["t", "absent"]])
async def test_no_reassignment_is_ever_under_way(topics):
    """Requested for all topics, for none, and with an unknown topic."""
    async with Broker() as broker:
        await broker.create("t")
        await reassign(broker, {"t": {0: [0]}})
        asked = topics and [
            wire.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0])
            for name in topics
        ]
        response = await broker.ask(wire.ListPartitionReassignmentsRequest(topics=asked), 0)
        assert (response.error_code, response.error_message, response.topics) == (0, None, [])
