"""Group members that send requests one at a time as a test says: silent, late, out of date.

Each has its own connections, because a coordinator handles the requests of a connection in order
and a join waits.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar

from aiokq import wire
from aiokq.assign.model import Assignment, Subscription
from aiokq.assign.protocol import PROTOCOL_TYPE, encode_assignment, encode_subscription
from aiokq.client.cluster import Cluster
from aiokq.core.types import TopicPartition
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from aiokq.wire.find_coordinator import FindCoordinatorRequest
from aiokq.wire.heartbeat import HeartbeatRequest
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

R = TypeVar("R", bound=wire.Response)

LOADING = frozenset((14, 15, 16))
"""Errors of a coordinator that is not available yet."""


class RawMember:
    """The common part of both protocols: a group, its coordinator, commits in any generation."""

    def __init__(
        self, servers: str, group: str, topic: str, *, instance_id: str | None = None
    ) -> None:
        self.group, self.topic, self.instance_id = group, topic, instance_id
        self.member_id = ""
        self.generation = -1
        self._cluster = Cluster(servers)
        self._node = -1

    async def __aenter__(self) -> Self:
        await self._cluster.start()
        while self._node < 0:
            found = await self._cluster.request(
                FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
            )
            (coordinator,) = found.coordinators
            assert coordinator.error_code in LOADING | {0}
            self._node = coordinator.node_id
        await self._cluster.refresh(self.topic)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._cluster.close()

    async def ask(self, request: wire.Request[R]) -> R:
        """Send a request to the coordinator; return the response."""
        return await self._cluster.request(request, node=self._node, timeout=60)

    @property
    def topic_id(self) -> uuid.UUID:
        found = self._cluster.metadata.topics[self.topic].topic_id
        assert found is not None
        return found

    async def commit(self, partition: int, offset: int, *, generation: int | None = None) -> int:
        """Commit an offset; return the error code."""
        response = await self.ask(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=(
                    self.generation if generation is None else generation
                ),
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=self.topic,
                        topic_id=self.topic_id,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_metadata="",
                            )
                        ],
                    )
                ],
            )
        )
        return response.topics[0].partitions[0].error_code


class RawClassicMember(RawMember):
    """A member of the classic protocol, with the range assignor."""

    async def ask_to_join(
        self, *, session_ms: int = 6_000, rebalance_ms: int = 30_000
    ) -> JoinGroupResponse:
        """Send one JoinGroup; the response comes when the group has joined."""
        response = await self.ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(
                        name="range", metadata=encode_subscription(Subscription((self.topic,)))
                    )
                ],
            )
        )
        self.member_id = response.member_id or self.member_id
        return response

    async def join(self, *, session_ms: int = 6_000, rebalance_ms: int = 30_000) -> None:
        """Join and sync; as the leader, assign partition 0 to this member and nothing to others."""
        response = await self.ask_to_join(session_ms=session_ms, rebalance_ms=rebalance_ms)
        while response.error_code in LOADING | {79}:  # MEMBER_ID_REQUIRED: retry with the new id
            response = await self.ask_to_join(session_ms=session_ms, rebalance_ms=rebalance_ms)
        assert response.error_code == 0
        self.generation = response.generation_id
        assignments = []
        if response.leader == self.member_id:
            mine = encode_assignment(Assignment((TopicPartition(self.topic, 0),)))
            assignments = [SyncGroupRequestAssignment(member_id=self.member_id, assignment=mine)]
        synced = await self.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name="range",
                assignments=assignments,
            )
        )
        assert synced.error_code == 0

    async def heartbeat(self) -> int:
        """Send a heartbeat; return the error code."""
        response = await self.ask(
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
        )
        return response.error_code


class RawConsumerMember(RawMember):
    """A member of the consumer protocol (KIP-848)."""

    async def join(self, *, rebalance_ms: int = 30_000) -> ConsumerGroupHeartbeatResponse:
        """Send the first heartbeat, with epoch 0."""
        self.member_id = str(uuid.uuid4())
        response = await self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=0,
                instance_id=self.instance_id,
                rebalance_timeout_ms=rebalance_ms,
                subscribed_topic_names=[self.topic],
                topic_partitions=[],
            )
        )
        if response.error_code == 0:
            self.generation = response.member_epoch
        return response

    async def heartbeat(
        self, *, owned: Iterable[int] | None = None, epoch: int | None = None, full: bool = False
    ) -> ConsumerGroupHeartbeatResponse:
        """Send the next heartbeat; an error leaves the epoch unchanged.

        Args:
            owned: owned partitions as in the protocol; None sends none.
            full: send the full state, as clients do after a lost response, so that the coordinator
                repeats the assignment.
        """
        response = await self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.generation if epoch is None else epoch,
                rebalance_timeout_ms=30_000 if full else -1,
                subscribed_topic_names=[self.topic] if full else None,
                topic_partitions=None if owned is None else self._partitions(owned),
            )
        )
        if response.error_code == 0:
            self.generation = response.member_epoch
        return response

    def _partitions(self, owned: Iterable[int]) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        partitions = sorted(owned)
        if not partitions:
            return []
        return [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=self.topic_id, partitions=partitions)
        ]


def assigned(response: ConsumerGroupHeartbeatResponse) -> set[int] | None:
    """Return a response's partitions, for a group with one topic; None without assignment."""
    if response.assignment is None:
        return None
    return {p for topic in response.assignment.topic_partitions for p in topic.partitions}
