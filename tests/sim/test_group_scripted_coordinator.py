"""A coordinator that moves, loads, or dies at each step of a classic member's life, on two nodes.

The nodes are scripted to behave like real ones towards a member, one step at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokq import wire
from aiokq.client.cluster import Cluster
from aiokq.core.types import TopicPartition
from aiokq.wire.fetch import FetchRequest
from aiokq.wire.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aiokq.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from aiokq.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse
from aiokq.wire.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokq.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.peers.scripted import Call, ScriptedCluster, ScriptedTopic, Silence
from tests.sim.group_world import until
from tests.sim.harness.simulation import Simulation, run

HOST = "10.0.9.1"
T0 = TopicPartition("t", 0)
LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
MEMBER = "member-1"


class Group:
    """A group with one member; one node is its coordinator, and the other returns NOT_COORDINATOR.

    Attributes:
        node_id: the current coordinator.
        refuse: error code by API that the coordinator returns while it is set.
        offset: the committed offset.
        answered: the APIs that the coordinator granted, in order, with its node id.
    """

    def __init__(self, kafka: ScriptedCluster) -> None:
        self.kafka = kafka
        self.node_id = 1
        self.generation = 0
        self.offset = -1
        self.refuse: dict[type[Any], int] = {}
        self.before: Callable[[type[Any]], None] = lambda kind: None
        self.answered: list[tuple[int, str]] = []
        self._assignment = b""
        kafka.on(FindCoordinatorRequest, self._found)
        kafka.on(FetchRequest, Silence())
        kafka.on(ListOffsetsRequest, self._listed)
        for kind, grant in (
            (JoinGroupRequest, self._joined),
            (SyncGroupRequest, self._synced),
            (HeartbeatRequest, lambda request, code: HeartbeatResponse(error_code=code)),
            (LeaveGroupRequest, lambda request, code: LeaveGroupResponse(error_code=code)),
            (OffsetFetchRequest, self._fetched),
            (OffsetCommitRequest, self._committed),
        ):
            kafka.on(kind, self._asked(kind, grant))

    def move(self) -> None:
        """Move the coordinator to the other node."""
        self.node_id = 3 - self.node_id

    def _asked(self, kind: type[Any], grant: Callable[[Any, int], Any]) -> Any:
        def answer(request: Any, call: Call) -> Any:
            self.before(kind)
            code = 0 if call.node.node_id == self.node_id else NOT_COORDINATOR
            code = code or self.refuse.get(kind, 0)
            if not code:
                self.answered.append((call.node.node_id, kind.NAME))
            return grant(request, code)

        return answer

    def _found(self, request: Any, call: Call) -> FindCoordinatorResponse:
        port = self.kafka[self.node_id].port
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=self.node_id, host=self.kafka.host, port=port)
                for key in request.coordinator_keys
            ]
        )

    def _joined(self, request: JoinGroupRequest, code: int) -> JoinGroupResponse:
        if code:
            return JoinGroupResponse(error_code=code, protocol_name=None, member_id="")
        self.generation += 1
        protocol = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=MEMBER,
            member_id=MEMBER,
            members=[JoinGroupResponseMember(member_id=MEMBER, metadata=protocol.metadata)],
        )

    def _synced(self, request: SyncGroupRequest, code: int) -> SyncGroupResponse:
        if code:
            return SyncGroupResponse(error_code=code, assignment=b"")
        (assignment,) = request.assignments
        return SyncGroupResponse(
            protocol_type="consumer",
            protocol_name=request.protocol_name,
            assignment=assignment.assignment,
        )

    def _fetched(self, request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=code,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                OffsetFetchResponsePartitions(
                                    partition_index=p, committed_offset=self.offset, metadata=""
                                )
                                for p in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or ()
                        if not code
                    ],
                )
                for group in request.groups
            ]
        )

    def _committed(self, request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
        if not code:
            self.offset = request.topics[0].partitions[0].committed_offset
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=p.partition_index, error_code=code
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _listed(self, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, timestamp=-1, offset=0
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def simulate(body: Callable[[Group, Any], Any]) -> None:
    """Run `body(group, consumer)` with a consumer that has not started."""

    async def main(world: Simulation) -> None:
        async with ScriptedCluster(2, environment=world.environment(HOST), host=HOST) as kafka:
            kafka.topics["t"] = ScriptedTopic(leaders=[1])
            group = Group(kafka)
            cluster = Cluster(kafka.bootstrap_servers, _environment=world.environment("10.0.0.7"))
            async with cluster:
                consumer = cluster.consumer(
                    "t",
                    group_id="g",
                    session_timeout_ms=10_000,
                    heartbeat_interval_ms=1_000,
                    enable_auto_commit=False,
                )
                await body(group, consumer)
                await consumer.close(timeout=3)

    run(1, main, limit=600)


STEPS: list[type[wire.Request[Any]]] = [
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    OffsetFetchRequest,
    OffsetCommitRequest,
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.NAME)
def test_a_member_follows_a_coordinator_that_moves_before_its_response(
    step: type[wire.Request[Any]],
) -> None:
    """NOT_COORDINATOR at any step: the new coordinator is found, and the member continues there."""

    async def body(group: Group, consumer: Any) -> None:
        moved: list[float] = []

        def before(kind: type[Any]) -> None:
            if kind is step and not moved:
                moved.append(asyncio.get_running_loop().time())
                group.move()

        group.before = before
        await consumer.start()
        await until(lambda: consumer.assignment() == {T0}, 20)
        await consumer.commit({T0: 7})
        assert group.offset == 7
        await until(lambda: (2, "Heartbeat") in group.answered, 20)
        assert moved
        assert group.node_id == 2
        after = [name for node, name in group.answered if node == 2]
        assert step is HeartbeatRequest or step.NAME in after
        assert consumer.assignment() == {T0}
        joins = [name for _, name in group.answered if name == "JoinGroup"]
        expected = 2 if step is SyncGroupRequest else 1
        assert len(joins) == expected, "a move alone is no reason to join again"

    simulate(body)


@pytest.mark.parametrize("code", [LOAD_IN_PROGRESS, NOT_AVAILABLE])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.NAME)
def test_requests_to_a_loading_coordinator_are_retried(
    step: type[wire.Request[Any]], code: int
) -> None:
    """14 and 15 for three seconds: nothing is lost or raised, and there is no hot loop."""

    async def body(group: Group, consumer: Any) -> None:
        group.refuse[step] = code
        loop = asyncio.get_running_loop()
        loop.call_later(3, group.refuse.clear)
        await consumer.start()
        await until(lambda: consumer.assignment() == {T0}, 20)
        await consumer.commit({T0: 7})
        assert group.offset == 7
        await until(lambda: (1, "Heartbeat") in group.answered, 20)
        assert loop.time() >= 1
        assert len(group.kafka[1].seen_of(step)) <= 12, "each pause is longer than the last"
        assert consumer.assignment() == {T0}

    simulate(body)


@pytest.mark.parametrize("step", [JoinGroupRequest, SyncGroupRequest], ids=lambda step: step.NAME)
def test_a_member_follows_a_coordinator_that_dies_before_its_response(
    step: type[wire.Request[Any]],
) -> None:
    """The connection is lost during a join or sync, and the other node is the coordinator then."""

    async def body(group: Group, consumer: Any) -> None:
        dying: list[asyncio.Task[None]] = []

        def before(kind: type[Any]) -> None:
            if kind is step and not dying:
                group.move()
                dying.append(asyncio.create_task(group.kafka[1].stop()))

        group.before = before
        group.kafka.topics["t"].leaders[0] = 2
        await consumer.start()
        await until(lambda: consumer.assignment() == {T0}, 30)
        await consumer.commit({T0: 7})
        assert group.offset == 7
        await until(lambda: (2, "Heartbeat") in group.answered, 20)
        await asyncio.gather(*dying)

    simulate(body)
