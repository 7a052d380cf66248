"""Membership by the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Owns what this member says next and what it owns. Sans-IO: see `membership.Membership`.

Source: Kafka's `AbstractCoordinator` and `ConsumerCoordinator`; KIP-62 (heartbeats), KIP-345
(static members), KIP-394 (member id required), KIP-429 (cooperative), KIP-814 (skip assignment).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokq.assign.assignor import Assignor, common_protocol
from aiokq.assign.model import RebalanceProtocol, Topology
from aiokq.assign.protocol import decode_assignment
from aiokq.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    NotCoordinator,
    ProtocolError,
    RebalanceInProgress,
    RequestTimeout,
    UnknownMemberId,
    error_for,
)
from aiokq.core.types import GroupMetadata, TopicPartition
from aiokq.group.actions import (
    Abandon,
    Action,
    Ask,
    Fail,
    GiveUp,
    Lose,
    NeedTopics,
    Relocate,
    Take,
)
from aiokq.group.classic_requests import (
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from aiokq.group.leadership import Leadership
from aiokq.group.membership import JOIN_SLACK, OUTSIDE, MemberConfig, MemberState
from aiokq.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokq.wire.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from aiokq.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse
from aiokq.wire.struct import Request, Response
from aiokq.wire.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from aiokq.connection.backoff import Backoff

__all__ = ["ClassicMember"]

logger = logging.getLogger("aiokq.group")

NO_MEMBER_ID: Final = ""

MOVED: Final = frozenset((CoordinatorNotAvailable.code, NotCoordinator.code, RequestTimeout.code))
"""Another node coordinates this group, or will."""

EXPELLED: Final = frozenset(error.code for error in (UnknownMemberId, IllegalGeneration))
"""This member, or its generation, is not one of the group any more."""


class ClassicMember:
    """One member of a classic group.

    Args:
        assignors: those that it offers, most preferred first; all of them go into one join.
        backoff: between attempts that failed.
    """

    def __init__(
        self, config: MemberConfig, assignors: Sequence[Assignor], backoff: Backoff
    ) -> None:
        self.state = MemberState.OUT
        self.owned: frozenset[TopicPartition] = frozenset()
        self.heartbeat_at: float | None = None
        self.error: KafkaError | None = None
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._cooperative = common_protocol(assignors) is RebalanceProtocol.COOPERATIVE
        self._backoff = backoff
        self._topics: frozenset[str] = frozenset()
        self._joined_with: frozenset[str] = frozenset()
        self._member_id = NO_MEMBER_ID
        self._generation = OUTSIDE
        self._assignor: Assignor | None = None
        self._leadership: Leadership | None = None
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._reason = "consumer starts"
        self._ticket = 0
        self._asking = False
        self._handling: GiveUp | Take | Lose | None = None
        self._after_take: frozenset[TopicPartition] | None = None
        self._rejoin = False
        self._lost: KafkaError | None = None
        self._wants_out = False
        self._not_before = 0.0
        self._next_heartbeat = 0.0
        self._actions: list[Action] = []

    @property
    def group_metadata(self) -> GroupMetadata:
        config = self._config
        return GroupMetadata(config.group_id, self._generation, self._member_id, config.instance_id)

    @property
    def busy(self) -> bool:
        return self._handling is not None

    # -- what is wanted

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        self._wants_out = False
        self._topics = topics
        if self.state is MemberState.OUT:
            self._not_before = now
            self._begin_join("consumer subscribes")
        elif topics != self._joined_with:
            self._want_rejoin("the subscription changed")

    def leave(self, now: float, *, lost: KafkaError | None = None) -> None:
        if self.state in (MemberState.OUT, MemberState.FAILED, MemberState.LEAVING):
            return
        self._wants_out = True
        self._lost = lost or self._lost
        self._reason = "consumer closes" if lost is None else str(lost)
        self._not_before = now
        if self._owes_assignments:
            return
        self._abandon()
        if self._handling is None:
            self._go_on(now)

    @property
    def _owes_assignments(self) -> bool:
        """It leads, and has partitions to commit and give up before it goes.

        Nobody else can assign, and until it has the coordinator takes no commit. Who has none goes
        at once: the others then join again, as from a Java leader that closes.
        """
        return (
            self._leadership is not None
            and self.state in (MemberState.ASSIGNING, MemberState.SYNCING)
            and bool(self.owned)
            and self._lost is None
        )

    # -- what comes back

    def received(self, ticket: int, response: Response, now: float) -> None:
        if not self._asking or ticket != self._ticket:
            return
        self._asking = False
        match response:
            case JoinGroupResponse():
                self._joined(response, now)
            case SyncGroupResponse():
                self._synced(response, now)
            case HeartbeatResponse():
                self._beaten(response, now)
            case LeaveGroupResponse():
                self._left()
            case _:
                raise TypeError(f"{type(response).__name__} answers nothing a member asks")

    def failed(self, ticket: int, error: KafkaError, now: float) -> None:
        if not self._asking or ticket != self._ticket:
            return
        self._asking = False
        if self.state is MemberState.LEAVING:
            self._left()  # the session timeout will do it
        elif not error.retriable:
            self._refuse(error)
        else:
            logger.warning(
                "group request failed: group=%s state=%s error=%s",
                self._config.group_id,
                self.state.name,
                error,
            )
            if self.state is MemberState.SYNCING:
                self._join_anew("the answer to a sync was lost", now)
            self._pause(now, error)

    def handled(self, now: float) -> None:
        done, self._handling = self._handling, None
        if done is None:
            return
        if isinstance(done, Take):
            self.owned |= done.partitions
        else:
            self.owned -= done.partitions
        self._go_on(now)

    def topology(self, topology: Topology, now: float) -> None:
        """How many partitions the topics of the group have; asked for by `NeedTopics`."""
        if (leadership := self._leadership) is None:
            return
        changed = leadership.sees(topology)
        if self.state is MemberState.ASSIGNING:
            self._assign(leadership, topology)
        elif changed:
            self._want_rejoin("topics changed")

    def unknown(self, error: KafkaError, now: float) -> None:
        """What was asked for by `NeedTopics` will not come."""
        if self._leadership is None:
            return
        if not self._wants_out:
            self._refuse(error)
        elif self.state is MemberState.ASSIGNING:
            self._go_on(now)

    # -- what to do

    def poll(self, now: float) -> list[Action]:
        if not self._asking and now >= self._not_before:
            self._ask_next(now)
        actions, self._actions = self._actions, []
        return actions

    def wake_at(self) -> float | None:
        if self._asking:
            return None
        if self.state in (MemberState.JOINING, MemberState.SYNCING, MemberState.LEAVING):
            return self._not_before
        if self._beating:
            return max(self._not_before, self._next_heartbeat)
        return None

    @property
    def _beating(self) -> bool:
        return self._generation != OUTSIDE and self.state in (
            MemberState.PREPARING,
            MemberState.ASSIGNING,
            MemberState.SETTLING,
            MemberState.STABLE,
        )

    def _ask_next(self, now: float) -> None:
        if self.state is MemberState.JOINING:
            self._joined_with = self._topics
            self._ask(JoinGroupRequest, self._join_request, self._join_timeout)
        elif self.state is MemberState.SYNCING:
            self._ask(SyncGroupRequest, self._sync_request, self._join_timeout)
        elif self.state is MemberState.LEAVING:
            self._ask(LeaveGroupRequest, self._leave_request, self._config.request_timeout)
        elif self._beating and now >= self._next_heartbeat:
            self._next_heartbeat = now + self._config.heartbeat_interval
            self._ask(HeartbeatRequest, self._heartbeat_request, self._config.request_timeout)

    def _ask(
        self,
        request_class: type[Request[Any]],
        make: Callable[[int], Request[Any]],
        timeout: float,
    ) -> None:
        self._ticket += 1
        self._asking = True
        self._actions.append(Ask(request_class, make, timeout, self._ticket))

    # -- requests

    @property
    def _join_timeout(self) -> float:
        config = self._config
        return max(config.request_timeout, config.rebalance_timeout + JOIN_SLACK)

    def _join_request(self, version: int) -> JoinGroupRequest:
        return join_request(
            self._config,
            self.group_metadata,
            self._assignors.values(),
            topics=self._joined_with,
            owned=self.owned,
            reason=self._reason,
        )

    def _sync_request(self, version: int) -> SyncGroupRequest:
        return sync_request(self.group_metadata, self._assignor, self._assignments)

    def _heartbeat_request(self, version: int) -> HeartbeatRequest:
        return heartbeat_request(self.group_metadata)

    def _leave_request(self, version: int) -> LeaveGroupRequest:
        return leave_request(self.group_metadata, version, self._reason)

    # -- answers

    def _joined(self, response: JoinGroupResponse, now: float) -> None:
        if response.error_code:
            if response.error_code == MemberIdRequired.code:
                self._member_id = response.member_id  # ask again at once, as this member
            else:
                self._join_refused(response.error_code, "JoinGroup", now)
            return
        # A sync that fails leads here again: the pauses grow until one has worked.
        self.heartbeat_at = now
        self.error = None
        self._next_heartbeat = now + self._config.heartbeat_interval
        self._member_id = response.member_id
        self._generation = response.generation_id
        self._leadership = None
        self._assignments = []
        leads = response.leader == response.member_id
        self._assignor = self._assignors.get(response.protocol_name or "")
        if self._assignor is None:
            self._refuse(
                InconsistentGroupProtocol(
                    f"the group chose the assignor {response.protocol_name!r}, which this member "
                    "did not offer",
                    api="JoinGroup",
                )
            )
            return
        logger.info(
            "joined: group=%s member=%s generation=%d assignor=%s leader=%s",
            self._config.group_id,
            self._member_id,
            self._generation,
            self._assignor.name,
            leads,
        )
        if leads:
            self._lead(response.members, skip=response.skip_assignment)
        else:
            self.state = MemberState.SYNCING

    def _lead(self, members: Sequence[JoinGroupResponseMember], *, skip: bool) -> None:
        try:
            leadership = self._leadership = Leadership(members)
        except ProtocolError as error:
            self._refuse(error)
            return
        # A static leader that was restarted finds the assignment as it was (KIP-814). It still
        # has to know the topics: it is who notices that they change.
        self.state = MemberState.SYNCING if skip else MemberState.ASSIGNING
        self._actions.append(NeedTopics(leadership.topics))

    def _assign(self, leadership: Leadership, topology: Topology) -> None:
        assert self._assignor is not None
        try:
            self._assignments = leadership.assign(self._assignor, topology)
        except KafkaError as error:
            self._refuse(error)
            return
        self.state = MemberState.SYNCING

    def _synced(self, response: SyncGroupResponse, now: float) -> None:
        if response.error_code:
            self._join_refused(response.error_code, "SyncGroup", now)
            return
        try:
            assignment = decode_assignment(response.assignment)
        except ProtocolError as error:
            self._refuse(error)
            return
        assert self._assignor is not None
        self._backoff.reset()
        self._assignments = []
        self.heartbeat_at = now
        self.error = None
        self._assignor.assigned(assignment, self._generation)
        if self._wants_out:
            self._go_on(now)
            return
        # A topic that is not subscribed to any more: the next join, which is due, will say so.
        assigned = frozenset(tp for tp in assignment.partitions if tp.topic in self._topics)
        revoked = self.owned - assigned
        self.state = MemberState.SETTLING
        if revoked:
            self._rejoin = True  # so that those who wait for them get them
            self._after_take = assigned - self.owned
            self._handle(GiveUp(revoked))
        else:
            self._after_take = None
            self._handle(Take(assigned - self.owned))

    def _join_refused(self, code: int, api: str, now: float) -> None:
        error = error_for(code, api=api)
        if code in EXPELLED:
            self._expelled(error, now)
        elif code == RebalanceInProgress.code or error.retriable:
            self._join_anew(f"{api} was answered with {error.name}", now)
            self._pause(now, error)
        else:
            self._refuse(error)

    def _beaten(self, response: HeartbeatResponse, now: float) -> None:
        code = response.error_code
        if code == 0 or code == RebalanceInProgress.code:
            self.heartbeat_at = now
            self.error = None
            self._backoff.reset()
            if code:
                self._want_rejoin("the group rebalances")
            return
        error = error_for(code, api="Heartbeat")
        if code in EXPELLED:
            self._expelled(error, now)
        elif error.retriable:
            self._next_heartbeat = now
            self._pause(now, error)
        else:
            self._refuse(error)

    # -- its ways

    def _begin_join(self, reason: str) -> None:
        """Join, or join again; first what has to be given up is given up."""
        self._reason = reason
        self._rejoin = False
        self._leadership = None
        going = self.owned
        if self._cooperative:
            going = frozenset(tp for tp in going if tp.topic not in self._topics)
        if going:
            self.state = MemberState.PREPARING
            self._handle(GiveUp(going))
        else:
            self.state = MemberState.JOINING

    def _join_anew(self, reason: str, now: float) -> None:
        """A join or sync did not work; who wants to go need not try again."""
        if self._wants_out:
            self._go_on(now)
        else:
            self._begin_join(reason)

    def _want_rejoin(self, reason: str) -> None:
        if self.state is MemberState.STABLE:
            self._begin_join(reason)
        elif self.state in (MemberState.ASSIGNING, MemberState.SYNCING, MemberState.SETTLING):
            self._reason = reason
            self._rejoin = True

    def _expelled(self, error: KafkaError, now: float) -> None:
        """The group goes on without this member: what it had may be another's already."""
        logger.warning(
            "expelled: group=%s member=%s generation=%d error=%s",
            self._config.group_id,
            self._member_id,
            self._generation,
            error,
        )
        if isinstance(error, UnknownMemberId):
            self._member_id = NO_MEMBER_ID
        self._generation = OUTSIDE
        self._reason = f"expelled with {error}"
        self._after_take = None
        self._leadership = None
        self._lost = error
        self.state = MemberState.PREPARING
        self._pause(now, error)
        if self._handling is None:
            self._go_on(now)

    def _refuse(self, error: KafkaError) -> None:
        self.error = error
        self.state = MemberState.FAILED
        self._leadership = None
        self._generation = OUTSIDE
        self._after_take = None
        self._lost = error
        self._actions.append(Fail(error))
        if self._handling is None:
            self._lose()

    def _go_on(self, now: float) -> None:
        """Nobody is busy with partitions: what is next?"""
        if self._lose() or self.state is MemberState.FAILED:
            return
        if self._wants_out:
            self._leadership = None
            if self.owned:
                self.state = MemberState.PREPARING
                self._handle(GiveUp(self.owned))
            elif self._member_id == NO_MEMBER_ID or self._config.instance_id is not None:
                self._left()  # a static member keeps its place until its session ends (KIP-345)
            else:
                self.state = MemberState.LEAVING
        elif self.state is MemberState.PREPARING:
            self._rejoin = False
            self.state = MemberState.JOINING
        elif self._after_take is not None:
            taking, self._after_take = self._after_take, None
            self._handle(Take(taking))
        elif self._rejoin or self._topics != self._joined_with:
            self._begin_join(self._reason)
        else:
            self.state = MemberState.STABLE

    def _lose(self) -> bool:
        """Report what was lost, if there is something to report; true if so."""
        error, self._lost = self._lost, None
        if error is None or not self.owned:
            return False
        self._handle(Lose(self.owned, error))
        return True

    def _left(self) -> None:
        self._generation = OUTSIDE
        self._member_id = NO_MEMBER_ID
        self.heartbeat_at = None
        self.state = MemberState.OUT
        if not self._wants_out:
            self._begin_join("consumer subscribes")

    def _abandon(self) -> None:
        if not self._asking:
            return
        self._asking = False
        self._ticket += 1
        if self.state in (MemberState.JOINING, MemberState.SYNCING):
            self._actions.append(Abandon())  # it would be answered when the rebalance ends

    def _handle(self, action: GiveUp | Take | Lose) -> None:
        self._handling = action
        self._actions.append(action)

    def _pause(self, now: float, error: KafkaError) -> None:
        self.error = error
        if not isinstance(error, BrokerError) or error.code in MOVED:
            self._actions.append(Relocate())
        self._not_before = now + self._backoff.next()
