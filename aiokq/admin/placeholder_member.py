"""PlaceholderMember: a seat in a classic group, so that it is not empty until its members are back.

Owns taking the group over and giving it back (docs/adr/0007-rewind.md); what is done meanwhile is
the caller's. Who holds a group leads it, and assigns nothing to anybody.
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
"""Seconds after which a group is free again whose holder died."""

BEAT: Final = 0.25
"""Seconds between looks whether a member is back: so much longer it waits for its partitions."""

LOOK: Final = 0.02
"""Seconds between looks whether the coordinator has taken the join in."""

GOODBYE: Final = 2.0
"""Seconds that leaving may take; who cannot leave is forgotten at the end of the session."""

NAMED_SINCE: Final = 4
"""JoinGroup version in which who joins first gets an id (KIP-394)."""

GONE: Final = (UnknownMemberId, FencedInstanceId)
"""Since it was described the member went, or came back as another."""


LOST: Final = (UnknownMemberId, IllegalGeneration, GroupIdNotFound)


class PlaceholderRemoved(Exception):
    """Whoever held the group is not in it: its coordinator forgot it, or somebody removed it."""


class PlaceholderMember:
    """One seat in one group; a context manager that leaves it.

    Attributes:
        member: whose commits the group takes while it is held.
        others_back: some of the members that were taken out, or others, have joined.

    Args:
        group: as described: of the classic protocol, stable, with members.
        topics: that the group has offsets of. They stay subscribed to: the coordinator drops old
            offsets of others (KIP-211), and lets anybody delete them.
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
        # All members have the one that was chosen; a new one may have another of the usual ones.
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
        """Leave; who is cancelled does not wait for it: then the session's end does it."""
        try:
            if self.member.member_id and (kind is None or issubclass(kind, Exception)):
                await self._leave()
        finally:
            await self._coordinator.close()

    # -- taking the group over

    async def take(self) -> None:
        """Join, take all others out, and lead the group.

        Who comes (back) after that has a new member id, and owns nothing: it cannot commit what it
        read before. Whoever is in the generation that this leads, and was not taken out, is such a
        one: no member is assigned anything between this one's join and its own generation.

        Raises:
            PlaceholderRemoved: it was removed, or the coordinator moved, before the group was held.
            RequestTimeout: it was not done in time.
            KafkaError: the group cannot be joined, or a member of it cannot be taken out.
        """
        try:
            await self._introduce()
            # Before it joins: a cooperative member that is taken out while it joins again keeps
            # what it has, and where it was (Java, kafka-python).
            await self._take_out(self._group)
            while not await self._round():
                if self._deadline.left() <= 0:
                    raise RequestTimeout("the group rebalances all the time", api="JoinGroup")
        except KafkaError as error:
            if not (isinstance(error, LOST) or error.retriable):
                raise
            self._coordinator.relocate()
            raise PlaceholderRemoved(str(error)) from error

    async def _introduce(self) -> None:
        """Get a member id: by it this one is found among those who join."""
        answer = await self._join()
        if answer.error_code != MemberIdRequired.code:
            self._check(answer.error_code, "JoinGroup")
        self.member = GroupMetadata(self._group.group_id, -1, answer.member_id)

    async def _round(self) -> bool:
        """Whether the group is held after it."""
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
            return False  # they joined before they were taken out, and now join once more
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
        """All that are members at a time when this is one already; gives their ids."""
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
        """The group without this member; None if it is not in it."""
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

    # -- holding it, giving it back

    async def until_back(self, seconds: float) -> bool:
        """Wait until another member is in the group; False if none is after so long.

        Raises:
            PlaceholderRemoved: it is not known that nobody committed anything from outside.
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
            await self._coordinator.drop()  # a join may be in the way
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
                "group could not be left, until the session ends: group=%s error=%s",
                self._group.group_id,
                error,
            )

    # -- requests

    async def _ask(self, message: Request[R], *, since: int = 0) -> R:
        def make(version: int) -> Request[R]:
            if version < since:
                raise UnsupportedVersion(
                    "the broker is older than 2.4: it removes no members for others",
                    api=message.NAME,
                )
            return message

        timeout = min(self._deadline.left(), self._engine.settings.request_timeout)
        ask = Ask(type(message), make, timeout, 0)
        return cast("R", await self._coordinator.ask(ask))

    def _check(self, code: int, api: str) -> None:
        if code:
            raise error_for(code, api=api)
