"""ClassicMember: a group member that uses the classic protocol (JoinGroup, SyncGroup, Heartbeat).

Sans-IO: see `group_member.GroupMember`.

Source: Kafka's `AbstractCoordinator` and `ConsumerCoordinator`; KIP-62 (heartbeats), KIP-345
(static members), KIP-394 (member id required), KIP-429 (cooperative), KIP-814 (skip assignment).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiokq.assign.assignor import Assignor, common_protocol
from aiokq.assign.model import RebalanceProtocol, Topology
from aiokq.assign.protocol import decode_assignment
from aiokq.core.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
    error_for,
)
from aiokq.core.types import GroupMetadata, TopicPartition
from aiokq.core.user_errors import INTERRUPTS
from aiokq.group.actions import Abandon, GiveUp, NeedTopics, Take
from aiokq.group.classic_requests import (
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from aiokq.group.group_leader import GroupLeader, assignor_failed
from aiokq.group.group_member import GroupMember
from aiokq.group.member_state import JOIN_SLACK, OUTSIDE, MemberConfig, MemberState
from aiokq.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokq.wire.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from aiokq.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse
from aiokq.wire.struct import Response
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

EXPELLED: Final = frozenset(error.code for error in (UnknownMemberId, IllegalGeneration))
"""Error codes: the group does not contain this member, or is in another generation."""


class ClassicMember(GroupMember):
    """A member of a classic group.

    Args:
        assignors: the supported assignors, most preferred first.
        backoff: the backoff between failed attempts.
    """

    def __init__(
        self, config: MemberConfig, assignors: Sequence[Assignor], backoff: Backoff
    ) -> None:
        super().__init__(config, backoff)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._user_data: dict[str, bytes | None] = {}
        self._cooperative = common_protocol(assignors) is RebalanceProtocol.COOPERATIVE
        self._joined_with: frozenset[str] = frozenset()
        self._member_id = NO_MEMBER_ID
        self._generation = OUTSIDE
        self._assignor: Assignor | None = None
        self._group_leader: GroupLeader | None = None
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._reason = "consumer starts"
        self._after_take: frozenset[TopicPartition] | None = None
        self._rejoin = False

    @property
    def group_metadata(self) -> GroupMetadata:
        config = self._config
        return GroupMetadata(config.group_id, self._generation, self._member_id, config.instance_id)

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        """Subscribe to these topics; join the group if the member is not in it."""
        self._wants_out = False
        self._topics = topics
        if self.state is MemberState.OUT:
            self._not_before = now
            self._begin_join("consumer subscribes")
        elif topics != self._joined_with:
            self._want_restart_join("the subscription changed")

    def leave(self, now: float, *, lost: KafkaError | None = None) -> None:
        self._reason = "consumer closes" if lost is None else str(lost)
        super().leave(now, lost=lost)

    def _begin_to_leave(self, now: float) -> None:
        if self._owes_assignments:
            return
        self._abandon()
        super()._begin_to_leave(now)

    @property
    def _owes_assignments(self) -> bool:
        """Whether this member is the leader, and must send the assignments before it leaves.

        A leader that owns partitions may have to commit before it leaves, and the coordinator
        accepts no commits before the assignment.
        """
        return (
            self._group_leader is not None
            and self.state in (MemberState.ASSIGNING, MemberState.SYNCING)
            and bool(self.owned)
            and self._lost is None
        )

    def received(self, ticket: int, response: Response, now: float) -> None:
        if not self._answers(ticket):
            return
        match response:
            case JoinGroupResponse():
                self._joined(response, now)
            case SyncGroupResponse():
                self._synced(response, now)
            case HeartbeatResponse():
                self._beaten(response, now)
            case LeaveGroupResponse():
                self._left(now)
            case _:
                raise TypeError(
                    f"{type(response).__name__} is not a response to a request of a member"
                )

    def _unanswered(self, error: KafkaError, now: float) -> None:
        if self.state is MemberState.SYNCING:
            self._restart_join("the response to SyncGroup was lost", now)
        self._pause(now, error)

    def topology(self, topology: Topology, now: float) -> None:
        """Handle the result of the action `NeedTopics`: the partitions of the group's topics."""
        if (group_leader := self._group_leader) is None:
            return
        changed = group_leader.sees(topology)
        if self.state is MemberState.ASSIGNING:
            self._assign(group_leader, topology)
        elif changed:
            self._want_restart_join("topics changed")

    def replaced(self, topic: str) -> None:
        """Rejoin if the deletion or recreation of a topic affects this member.

        A stable member rejoins if it owns partitions of the topic. A member that waits for its
        assignment, or takes or revokes partitions, rejoins if it subscribes to the topic. The
        leader rejoins when `topology` reports the change.
        """
        if self._group_leader is not None:
            return
        if self.state is MemberState.STABLE:
            concerned = any(tp.topic == topic for tp in self.owned)
        else:
            concerned = topic in self._topics  # the assignment may belong to the old topic
        if concerned:
            self._want_restart_join(f"{topic} was deleted or recreated")

    def unknown(self, error: KafkaError, now: float) -> None:
        """Handle the failure of `NeedTopics`."""
        if self._group_leader is None:
            return
        if not self._wants_out:
            self._refuse(error)
        elif self.state is MemberState.ASSIGNING:
            self._go_on(now)

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
            if not self._ask_assignors():
                return
            self._ask(JoinGroupRequest, self._join_request, self._join_timeout)
        elif self.state is MemberState.SYNCING:
            self._ask(SyncGroupRequest, self._sync_request, self._join_timeout)
        elif self.state is MemberState.LEAVING:
            self._ask(LeaveGroupRequest, self._leave_request, self._config.request_timeout)
        elif self._beating and now >= self._next_heartbeat:
            self._next_heartbeat = now + self._config.heartbeat_interval
            self._ask(HeartbeatRequest, self._heartbeat_request, self._config.request_timeout)

    def _ask_assignors(self) -> bool:
        """Get the assignors' user data for a join; return whether all of them succeeded."""
        wanted = tuple(sorted(self._joined_with))
        for name, assignor in self._assignors.items():
            try:
                self._user_data[name] = assignor.user_data(wanted)
            except INTERRUPTS:
                raise
            except BaseException as error:  # noqa: BLE001  ends the membership
                self._refuse(assignor_failed(assignor, error))
                return False
        return True

    @property
    def _join_timeout(self) -> float:
        config = self._config
        return max(config.request_timeout, config.rebalance_timeout + JOIN_SLACK)

    def _join_request(self, version: int) -> JoinGroupRequest:
        return join_request(
            self._config,
            self.group_metadata,
            self._user_data,
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

    def _joined(self, response: JoinGroupResponse, now: float) -> None:
        if response.error_code:
            if response.error_code == MemberIdRequired.code:
                self._member_id = response.member_id  # the member joins again with the new id
            else:
                self._join_refused(response.error_code, "JoinGroup", now)
            return
        # The backoff is not reset here, because the member joins again after a failed sync.
        self.heartbeat_at = now
        self.error = None
        self._next_heartbeat = now + self._config.heartbeat_interval
        self._member_id = response.member_id
        self._generation = response.generation_id
        self._group_leader = None
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
            group_leader = self._group_leader = GroupLeader(members)
        except ProtocolError as error:
            self._refuse(error)
            return
        # A restarted static leader keeps the existing assignment (KIP-814). It still needs the
        # topics, because it rejoins when they change.
        self.state = MemberState.SYNCING if skip else MemberState.ASSIGNING
        self._actions.append(NeedTopics(group_leader.topics))

    def _assign(self, group_leader: GroupLeader, topology: Topology) -> None:
        assert self._assignor is not None
        try:
            self._assignments = group_leader.assign(self._assignor, topology)
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
        try:
            self._assignor.assigned(assignment, self._generation)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001  ends the membership
            self._refuse(assignor_failed(self._assignor, error))
            return
        if self._wants_out:
            self._go_on(now)
            return
        # Partitions of topics that are not subscribed to any more are left out; the next join
        # reports the changed subscription.
        assigned = frozenset(tp for tp in assignment.partitions if tp.topic in self._topics)
        revoked = self.owned - assigned
        self.state = MemberState.SETTLING
        if revoked:
            self._rejoin = True  # the next generation assigns the revoked partitions
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
            self._restart_join(f"{api} failed with {error.name}", now)
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
                self._want_restart_join("the group rebalances")
            return
        error = error_for(code, api="Heartbeat")
        if code in EXPELLED:
            self._expelled(error, now)
        elif error.retriable:
            self._next_heartbeat = now
            self._pause(now, error)
        else:
            self._refuse(error)

    def _begin_join(self, reason: str) -> None:
        """Join or rejoin, after revoking partitions as the protocol requires."""
        self._reason = reason
        self._rejoin = False
        self._group_leader = None
        going = self.owned
        if self._cooperative:
            going = frozenset(tp for tp in going if tp.topic not in self._topics)
        if going:
            self.state = MemberState.PREPARING
            self._handle(GiveUp(going))
        else:
            self.state = MemberState.JOINING

    def _restart_join(self, reason: str, now: float) -> None:
        """Rejoin after a failed join or sync, unless the member is to leave."""
        if self._wants_out:
            self._go_on(now)
        else:
            self._begin_join(reason)

    def _want_restart_join(self, reason: str) -> None:
        if self.state is MemberState.STABLE:
            self._begin_join(reason)
        elif self.state in (MemberState.ASSIGNING, MemberState.SYNCING, MemberState.SETTLING):
            self._reason = reason
            self._rejoin = True

    def _forget(self, error: KafkaError) -> None:
        if isinstance(error, UnknownMemberId):
            self._member_id = NO_MEMBER_ID
        self._generation = OUTSIDE
        self._reason = f"removed from the group: {error}"
        self._after_take = None
        self._group_leader = None

    def _stay(self, now: float) -> None:
        if self.state is MemberState.PREPARING:
            self._rejoin = False
            self._group_leader = None
            self.state = MemberState.JOINING
        elif self._after_take is not None:
            taking, self._after_take = self._after_take, None
            self._handle(Take(taking))
        elif self._rejoin or self._topics != self._joined_with:
            self._begin_join(self._reason)
        else:
            self.state = MemberState.STABLE

    def _send_leave(self, now: float) -> None:
        if self._member_id == NO_MEMBER_ID or self._config.instance_id is not None:
            self._left(now)  # a static member stays until its session expires (KIP-345)
        else:
            self.state = MemberState.LEAVING

    def _left(self, now: float) -> None:
        self._generation = OUTSIDE
        self._member_id = NO_MEMBER_ID
        self.heartbeat_at = None
        self.state = MemberState.OUT
        if not self._wants_out:
            self._begin_join("consumer subscribes")

    def _abandon(self) -> None:
        if not self._asking:
            return
        self._disregard()
        if self.state in (MemberState.JOINING, MemberState.SYNCING):
            self._actions.append(Abandon())  # the response would come only after the rebalance
