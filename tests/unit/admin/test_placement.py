"""Leader elections, reassignments and config resources, against a scripted cluster."""

from __future__ import annotations

from typing import Any

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.config_types import ConfigResource, ConfigResourceType
from aiokq.admin.placement import Reassignment
from aiokq.core.errors import (
    ConfigError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from aiokq.core.types import TopicPartition
from tests.unit.admin.test_admin import with_admin
from tests.unit.cluster.scripted import ScriptedBroker, ScriptedCluster

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Elections:
    """ElectLeaders on the controller with scripted `codes`; other brokers: NOT_CONTROLLER."""

    def __init__(self, cluster: ScriptedCluster, codes: dict[TopicPartition, list[int]]) -> None:
        self.cluster = cluster
        self.codes = codes
        self.asked: list[tuple[int, Any]] = []
        cluster.handlers[wire.ElectLeadersRequest] = self.elect

    def elect(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        if broker.node_id != self.cluster.controller_id:
            return wire.ElectLeadersResponse(error_code=41)
        asked = request.topic_partitions
        named = [TopicPartition(t.topic, p) for t in asked or () for p in t.partitions]
        self.asked.append((request.election_type, named if asked is not None else None))
        wanted = named if asked is not None else list(self.codes)
        return wire.ElectLeadersResponse(
            error_code=0,
            replica_election_results=[
                wire.ReplicaElectionResult(
                    topic=tp.topic,
                    partition_result=[
                        wire.ElectLeadersPartitionResult(
                            partition_id=tp.partition, error_code=self.codes[tp].pop(0)
                        )
                    ],
                )
                for tp in wanted
            ],
        )


def test_the_outcome_of_an_election_is_not_retried():
    """Kafka marks 80, 83 and 84 as retriable, but here they are final; only 41 is retried."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        elections = Elections(cluster, {A0: [0], A1: [84], B0: [83]})
        results = await admin.elect_leaders([("a", 0), A1, B0], election_type="unclean")
        assert list(results) == [A0, A1, B0]
        assert results[A0].error is None
        assert isinstance(results[A1].error, ElectionNotNeeded)
        assert isinstance(results[B0].error, EligibleLeadersNotAvailable)
        assert elections.asked == [(1, [A0, A1, B0])]

    with_admin(main)


def test_only_partitions_with_temporary_errors_are_retried():
    """NOT_CONTROLLER (41) is temporary, UNKNOWN_TOPIC_OR_PARTITION (3) is final."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        elections = Elections(cluster, {A0: [41, 0], A1: [3]})
        results = await admin.elect_leaders([A0, A1])
        assert results[A0].error is None
        assert isinstance(results[A1].error, UnknownTopicOrPartition)
        assert elections.asked == [(0, [A0, A1]), (0, [A0])]

    with_admin(main)


def test_an_election_for_all_partitions_returns_those_that_needed_one():
    """The request has null instead of a list of all partitions."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        elections = Elections(cluster, {B0: [0]})
        results = await admin.elect_leaders()
        assert list(results) == [B0]
        assert elections.asked == [(0, None)]
        with pytest.raises(ConfigError, match="preferred, unclean"):
            await admin.elect_leaders(election_type="clean")  # type: ignore[arg-type]

    with_admin(main)


def test_reassignments_are_started_cancelled_and_listed():
    """The new replicas by partition; None cancels a reassignment."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        codes = {A0: 0, A1: 85, B0: 39}
        asked: list[Any] = []

        def alter(broker: ScriptedBroker, request: Any, version: int) -> Any:
            asked.append(
                {
                    (t.name, p.partition_index): p.replicas
                    for t in request.topics
                    for p in t.partitions
                }
            )
            return wire.AlterPartitionReassignmentsResponse(
                responses=[
                    wire.ReassignableTopicResponse(
                        name=tp.topic,
                        partitions=[
                            wire.ReassignablePartitionResponse(
                                partition_index=tp.partition, error_code=code
                            )
                        ],
                    )
                    for tp, code in codes.items()
                ]
            )

        def listed(broker: ScriptedBroker, request: Any, version: int) -> Any:
            ongoing = wire.OngoingPartitionReassignment(
                partition_index=0, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[1]
            )
            return wire.ListPartitionReassignmentsResponse(
                topics=[wire.OngoingTopicReassignment(name="a", partitions=[ongoing])]
            )

        cluster.handlers[wire.AlterPartitionReassignmentsRequest] = alter
        cluster.handlers[wire.ListPartitionReassignmentsRequest] = listed
        wanted = {("a", 0): [2, 3], ("a", 1): None, ("b", 0): (7,)}
        results = await admin.alter_partition_reassignments(wanted)
        assert asked == [{("a", 0): [2, 3], ("a", 1): None, ("b", 0): [7]}]
        assert results[A0].error is None
        assert isinstance(results[A1].error, NoReassignmentInProgress)
        assert isinstance(results[B0].error, InvalidReplicaAssignment)
        found = await admin.list_partition_reassignments([A0])
        assert found == {A0: Reassignment((1, 2, 3), (3,), (1,))}
        assert await admin.list_partition_reassignments() == found

    with_admin(main)


@pytest.mark.parametrize("newest", [0, 1])
def test_other_resources_are_not_requested_from_a_broker_with_client_metrics_only(newest: int):
    """Version 0 ignores the resource types and always lists client metrics."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        def answer(broker: ScriptedBroker, request: Any, version: int) -> Any:
            kinds = request.resource_types if version else [16]
            return wire.ListConfigResourcesResponse(
                config_resources=[
                    wire.ConfigResource(resource_name="x", resource_type=kind) for kind in kinds
                ]
            )

        cluster.handlers[wire.ListConfigResourcesRequest] = answer
        cluster.limits[wire.ListConfigResourcesRequest] = newest
        metrics = ConfigResourceType.CLIENT_METRICS
        assert await admin.list_config_resources([metrics]) == [ConfigResource(metrics, "x")]
        topic = ConfigResourceType.TOPIC
        if newest:
            assert await admin.list_config_resources([topic]) == [ConfigResource(topic, "x")]
        else:
            with pytest.raises(UnsupportedVersion, match=r"4\.1"):
                await admin.list_config_resources([topic])

    with_admin(main)
