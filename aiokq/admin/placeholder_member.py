"""PlaceholderMember: keeps a classic group non-empty until its members are back.

The placeholder joins the group, removes the other members, and leads the group without assigning
any partition. The placeholder then holds the group: the coordinator refuses the commits of removed
members, and the caller commits offsets as the placeholder (docs/adr/0007-rewind.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Final, TypeVar, cast

from aiokq.admin.deadline import Deadline
from aiokq.admin.group_members import take_out
from aiokq.admin.group_types import GroupDescription, GroupType
from aiokq.admin.groups import describe_groups
from aiokq.assign.assignor import ASSIGNORS
from aiokq.assign.model import Assignment, Subscription
from aiokq.assign.protocol import PROTOCOL_TYPE, encode_assignment, encode_subscription
from aiokq.cluster.denials import name_denial
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    RequestTimeout,
    UnknownMemberId,
    UnsupportedVersion,
    error_for,
)
from aiokq.core.types import GroupMetadata
from aiokq.group.actions import Ask
from aiokq.group.classic_requests import heartbeat_request, leave_request
from aiokq.group.coordinator_connection import CoordinatorConnection
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from aiokq.wire.leave_group import LeaveGroupRequest
from aiokq.wire.struct import Request, Response
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

__all__ = ["REASON", "PlaceholderMember", "PlaceholderRemoved"]

R = TypeVar("R", bound=Response)

logger = logging.getLogger("aiokq.admin")

REASON: Final = "the group is rewound"
SESSION: Final = 10.0
"""Session timeout in seconds, after which the placeholder is removed if its process has died."""

BEAT: Final = 0.25
"""Seconds between heartbeats, whose responses show when another member has rejoined."""

LOOK: Final = 0.02
"""Seconds between checks whether the coordinator has processed the join."""

GOODBYE: Final = 2.0
"""Timeout of the LeaveGroup request in seconds.

If the request fails, the coordinator removes the member when its session expires.
"""

NAMED_SINCE: Final = 4
"""First version of JoinGroup that returns a member id before the join (KIP-394)."""

GONE: Final = (UnknownMemberId, FencedInstanceId)
"""Errors of members that left, or rejoined with another id, since they were described."""


LOST: Final = (UnknownMemberId, IllegalGeneration, GroupIdNotFound)


class PlaceholderRemoved(Exception):
    """The placeholder does not lead its group, for example because the placeholder was removed."""


class PlaceholderMember:
    """A group member that owns no partitions. The end of `async with` leaves the group.

    Attributes:
        member: member id and generation to commit with, after `take` has made this member the
            leader of the group.
        others_back: whether any other member has joined since the members were removed.

    Args:
        group: the description of a stable group of the classic protocol, with members.
        topics: topics whose offsets are committed or will be committed. The placeholder subscribes
            to these topics, because offsets of other topics may expire (KIP-211) or be deleted by
            OffsetDelete.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        group: GroupDescription,
        topics: Iterable[str],
        deadline: Deadline,
    ) -> None:
        self._engine = engine
        self._group = group
        self._deadline = deadline
        self._coordinator = CoordinatorConnection(engine, group.group_id)
        subscribed = {name for member in group.members for name in member.subscription}
        self._metadata = b""
        if group.protocol_type == PROTOCOL_TYPE:
            wanted = Subscription(tuple(sorted(subscribed.union(topics))))
            self._metadata = encode_subscription(wanted)
        # All current members support the group's strategy. Kafka's other strategies are offered for
        # members that join later and do not support that strategy.
        self._protocols = [name for name in (group.assignor,) if name]
        if group.protocol_type == PROTOCOL_TYPE:
            self._protocols += [name for name in ASSIGNORS if name not in self._protocols]
        self.member = GroupMetadata(group.group_id)
        self.others_back = False

    async def __aenter__(self) -> PlaceholderMember:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the group; after a cancellation, only the session timeout removes this member."""
        try:
            if self.member.member_id and (kind is None or issubclass(kind, Exception)):
                await self._leave()
        finally:
            await self._coordinator.close()

    async def take(self) -> None:
        """Join, remove all other members, and become the leader of the group.

        A member that rejoins after its removal has a new member id and owns no partition, so it
        cannot commit records that it read before. The group is held when this member leads a
        generation in which no removed member takes part with its old id; otherwise this member
        joins again. This member assigns no partitions.

        Raises:
            PlaceholderRemoved: the group is not held, because this member was removed, the
                coordinator moved, the group changed its protocol, or the deadline passed.
            KafkaError: the group cannot be joined, or a member cannot be removed, and no retry can
                help.
        """
        try:
            await self._introduce()
            # Members are removed before the join, because a cooperative member that is removed
            # while it rejoins keeps its partitions and positions (Java, kafka-python).
            await self._take_out(self._group)
            while not await self._round():
                if self._deadline.left() <= 0:
                    raise RequestTimeout("the group rebalances continually", api="JoinGroup")
        except KafkaError as error:
            if not (isinstance(error, LOST) or error.retriable):
                raise
            self._coordinator.relocate()
            raise PlaceholderRemoved(str(error)) from error

    async def _introduce(self) -> None:
        """Obtain a member id, by which this member is recognized among the members of the group."""
        answer = await self._join()
        if answer.error_code != MemberIdRequired.code:
            self._check(answer.error_code, "JoinGroup")
        self.member = GroupMetadata(self._group.group_id, -1, answer.member_id)

    async def _round(self) -> bool:
        """Join once and remove the other members.

        Returns:
            Whether this member leads a generation in which no removed member takes part.
        """
        joining = self._engine.supervisor.spawn(self._join_or_fail(), name="hold a group")
        try:
            out = await self._take_others_out(joining)
            joined = await joining
        finally:
            joining.cancel()
        if isinstance(joined, KafkaError):
            raise joined
        self._check(joined.error_code, "JoinGroup")
        self.member = GroupMetadata(self._group.group_id, joined.generation_id, joined.member_id)
        present = {member.member_id for member in joined.members}
        if joined.leader != joined.member_id or present & out:
            return False  # another member leads, or removed members are in the generation
        self.others_back = len(present) > 1
        nothing = encode_assignment(Assignment(()))
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self._group.group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=name, assignment=nothing)
                    for name in sorted(present)
                ],
            )
        )
        if synced.error_code == RebalanceInProgress.code:
            return False
        self._check(synced.error_code, "SyncGroup")
        return True

    async def _join_or_fail(self) -> JoinGroupResponse | KafkaError:
        try:
            return await self._join()
        except KafkaError as error:
            return error

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group.group_id,
            session_timeout_ms=round(SESSION * 1000),
            rebalance_timeout_ms=round(SESSION * 1000),
            member_id=self.member.member_id,
            protocol_type=self._group.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._metadata)
                for name in self._protocols
            ],
            reason=REASON,
        )
        return await self._ask(request, since=NAMED_SINCE)

    async def _take_others_out(
        self, joining: asyncio.Task[JoinGroupResponse | KafkaError]
    ) -> set[str]:
        """Remove the other members as soon as this member is in the group.

        Returns:
            The ids of the removed members; empty if the join ended before this member was seen in
            the group.
        """
        while True:
            others = await self._others()
            if others is not None or joining.done():
                break
            await asyncio.wait([joining], timeout=LOOK)
        if others is None:
            return set()
        await self._take_out(others)
        return {member.member_id for member in others.members}

    async def _take_out(self, group: GroupDescription) -> None:
        removed = await take_out(self._engine, group, reason=REASON, timeout=self._deadline.left())
        for error in removed.errors.values():
            if not isinstance(error, GONE):
                raise error

    async def _others(self) -> GroupDescription | None:
        """Return the group without this member; None if this member is not in it.

        Raises:
            PlaceholderRemoved: the group changed its protocol.
        """
        described = await describe_groups(
            self._engine,
            [self._group.group_id],
            include_authorized_operations=False,
            timeout=self._deadline.left(),
        )
        group = described.raise_for_errors()[self._group.group_id]
        others = tuple(m for m in group.members if m.member_id != self.member.member_id)
        if len(others) == len(group.members):
            return None
        if group.type is not GroupType.CLASSIC:
            raise PlaceholderRemoved("the group changed its protocol")
        return replace(group, members=others)

    async def until_back(self, seconds: float) -> bool:
        """Wait up to `seconds` for another member to join the group; return whether that happened.

        Raises:
            PlaceholderRemoved: this member was removed, so that another client may have committed.
            KafkaError: a heartbeat failed, and no retry can help.
        """
        end = self._engine.now() + seconds
        while not self.others_back and self._engine.now() < end:
            await asyncio.sleep(min(BEAT, max(0.0, end - self._engine.now())))
            try:
                beaten = await self._ask(heartbeat_request(self.member))
                if beaten.error_code == RebalanceInProgress.code:
                    self.others_back = True
                else:
                    self._check(beaten.error_code, "Heartbeat")
            except LOST as error:
                raise PlaceholderRemoved(str(error)) from error
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._coordinator.relocate()
        return self.others_back

    async def _leave(self) -> None:
        try:
            await self._coordinator.drop()  # a pending join would delay LeaveGroup
            async with asyncio.timeout(GOODBYE):
                await self._coordinator.ask(
                    Ask(
                        LeaveGroupRequest,
                        lambda version: leave_request(self.member, version, REASON),
                        GOODBYE,
                        0,
                    )
                )
        except (KafkaError, TimeoutError) as error:
            logger.info(
                "group not left, the member remains until its session expires: group=%s error=%s",
                self._group.group_id,
                error,
            )

    async def _ask(self, message: Request[R], *, since: int = 0) -> R:
        def make(version: int) -> Request[R]:
            if version < since:
                raise UnsupportedVersion(
                    "the broker is older than 2.4: it cannot remove members on request",
                    api=message.NAME,
                )
            return message

        timeout = min(self._deadline.left(), self._engine.settings.request_timeout)
        ask = Ask(type(message), make, timeout, 0)
        return cast("R", await self._coordinator.ask(ask))

    def _check(self, code: int, api: str) -> None:
        if code:
            error = error_for(code, api=api)
            name_denial(self._engine, error, self._group.group_id)
            raise error
