"""The requests, revocations and assignments of a classic member, event by event."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from aiokq.assign.assignor import Assignor, resolve
from aiokq.assign.model import Assignment, Subscription, Topology
from aiokq.assign.protocol import decode_subscription, encode_assignment, encode_subscription
from aiokq.assign.range import RangeAssignor
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    AuthenticationFailed,
    ConnectionLost,
    FencedInstanceId,
    RequestTimeout,
    UnknownMemberId,
)
from aiokq.core.types import TopicPartition
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
from aiokq.group.classic_member import ClassicMember
from aiokq.group.member_state import MemberConfig, MemberState
from aiokq.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from aiokq.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse
from aiokq.wire.struct import Response
from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupResponse

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class Play:
    """A member driven by the events of a test."""

    def __init__(
        self, strategy: Sequence[str | Assignor] = ("range",), instance_id: str | None = None
    ) -> None:
        self.now = 100.0
        config = MemberConfig(
            group_id="g",
            instance_id=instance_id,
            session_timeout=45.0,
            rebalance_timeout=60.0,
            heartbeat_interval=3.0,
            request_timeout=30.0,
        )
        backoff = Backoff(0.1, 1.0, random.Random(1))
        self.member = ClassicMember(config, resolve(strategy), backoff)
        self.asked: Ask | None = None

    def poll(self) -> list[Action]:
        actions = self.member.poll(self.now)
        for action in actions:
            if isinstance(action, Ask):
                self.asked = action
        return actions

    def request(self, version: int = 9) -> object:
        assert self.asked is not None
        return self.asked.make(version)

    def answer(self, response: Response) -> list[Action]:
        assert self.asked is not None
        self.member.received(self.asked.ticket, response, self.now)
        return self.poll()

    def fail(self, error: Exception) -> list[Action]:
        assert self.asked is not None
        self.member.failed(self.asked.ticket, error, self.now)  # type: ignore[arg-type]
        return self.poll()

    def handled(self) -> list[Action]:
        self.member.handled(self.now)
        return self.poll()

    def wait(self) -> list[Action]:
        """Advance the time to the member's next poll."""
        when = self.member.wake_at()
        assert when is not None
        self.now = max(self.now, when)
        return self.poll()

    def expect(self, actions: list[Action], *kinds: type[Action]) -> None:
        assert [type(action) for action in actions] == list(kinds), actions

    # sequences of events

    def joined(self, *, leader: str = "other", generation: int = 1) -> list[Action]:
        members = [
            JoinGroupResponseMember(
                member_id="me",
                metadata=encode_subscription(Subscription(("t",), generation=generation)),
            )
        ]
        return self.answer(
            JoinGroupResponse(
                generation_id=generation,
                protocol_name=self.request().protocols[0].name,  # type: ignore[attr-defined]
                leader=leader,
                member_id="me",
                members=members if leader == "me" else [],
            )
        )

    def synced(self, *partitions: TopicPartition) -> list[Action]:
        return self.answer(SyncGroupResponse(assignment=encode_assignment(Assignment(partitions))))

    def stable(self, *partitions: TopicPartition) -> None:
        self.member.subscribe(frozenset({"t"}), self.now)
        self.poll()
        self.joined()
        self.expect(self.synced(*partitions), Take)
        self.handled()
        assert self.member.state is MemberState.STABLE
        assert self.member.owned == set(partitions)


def test_a_member_joins_syncs_and_sends_heartbeats() -> None:
    """The normal sequence: one JoinGroup with all assignors, one SyncGroup, then heartbeats."""
    play = Play(["range", "sticky"])
    play.member.subscribe(frozenset({"t"}), play.now)
    play.expect(play.poll(), Ask)
    join = play.request()
    assert isinstance(join, JoinGroupRequest)
    assert [protocol.name for protocol in join.protocols] == ["range", "sticky"]
    assert join.session_timeout_ms == 45_000
    play.expect(play.answer(JoinGroupResponse(error_code=79, member_id="me")), Ask)
    again = play.request()
    assert isinstance(again, JoinGroupRequest)
    assert again.member_id == "me"
    play.expect(play.joined(), Ask)
    assert isinstance(play.request(), SyncGroupRequest)
    (take,) = play.synced(T0, T1)
    assert take == Take(frozenset({T0, T1}))
    assert play.member.owned == frozenset()  # the consumer does not have them yet
    play.expect(play.handled())
    assert play.member.owned == {T0, T1}
    play.expect(play.wait(), Ask)
    assert isinstance(play.request(), HeartbeatRequest)
    assert play.now == 103.0
    play.expect(play.answer(HeartbeatResponse()))
    assert play.member.wake_at() == 106.0


def test_the_leader_assigns_for_all() -> None:
    """The leader needs all topics of the group, and sends the assignor's result."""
    play = Play(["roundrobin"])
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    members = [
        JoinGroupResponseMember(member_id=m, metadata=encode_subscription(Subscription(topics)))
        for m, topics in (("me", ("t",)), ("other", ("t", "u")))
    ]
    actions = play.answer(
        JoinGroupResponse(
            generation_id=3,
            protocol_name="roundrobin",
            leader="me",
            member_id="me",
            members=members,
        )
    )
    assert actions == [NeedTopics(frozenset({"t", "u"}))]
    play.member.topology(Topology({"t": 2, "u": 1}), play.now)
    play.expect(play.poll(), Ask)
    sync = play.request()
    assert isinstance(sync, SyncGroupRequest)
    assert {a.member_id for a in sync.assignments} == {"me", "other"}


def test_a_leader_rejoins_when_its_topics_grow() -> None:
    """Only the leader notices new partitions: without a rejoin they would never be read."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined(leader="me")
    play.member.topology(Topology({"t": 1}), play.now)
    play.poll()
    play.synced(T0)
    play.handled()
    play.member.topology(Topology({"t": 1}), play.now)  # unchanged: no action
    play.expect(play.poll())
    play.member.topology(Topology({"t": 2}), play.now)
    play.expect(play.poll(), GiveUp)
    play.expect(play.handled(), Ask)
    assert isinstance(play.request(), JoinGroupRequest)


def test_a_member_rejoins_when_a_topic_that_it_reads_is_replaced() -> None:
    """The leader may read no partition of the topic, and would not notice for minutes."""
    play = Play()
    play.stable(T0)
    play.member.replaced("other")
    play.expect(play.poll())
    play.member.replaced("t")
    play.expect(play.poll(), GiveUp)
    play.expect(play.handled(), Ask)
    assert isinstance(play.request(), JoinGroupRequest)
    play.member.replaced("t")  # the join is already under way
    play.expect(play.poll())
    play.joined(generation=2)
    play.expect(play.synced(T0), Take)
    play.expect(play.handled())
    assert play.member.state is MemberState.STABLE


def test_a_member_without_partitions_does_not_rejoin_when_a_topic_is_replaced() -> None:
    """It may notice minutes later, when the group has already handled the change."""
    play = Play()
    play.stable()
    play.member.replaced("t")
    play.expect(play.poll())


def test_a_topic_that_is_replaced_during_the_assignment_causes_a_rejoin() -> None:
    """The leader may have assigned the partitions of the old topic."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined()
    play.member.replaced("t")
    play.expect(play.synced(T0), Take)
    play.expect(play.handled(), GiveUp)


def test_a_leader_compares_topologies_when_a_topic_is_replaced() -> None:
    """A new topic with the same number of partitions needs no new assignment."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined(leader="me")
    play.member.topology(Topology({"t": 1}), play.now)
    play.poll()
    play.synced(T0)
    play.handled()
    play.member.replaced("t")
    play.member.topology(Topology({"t": 1}), play.now)
    play.expect(play.poll())


def test_eager_members_give_up_all_partitions_before_rejoining() -> None:
    """Other members may own them after the join; user code commits first, between heartbeats."""
    play = Play()
    play.stable(T0)
    play.wait()
    (give_up,) = play.answer(HeartbeatResponse(error_code=27))
    assert give_up == GiveUp(frozenset({T0}))
    play.expect(play.wait(), Ask)  # while the rebalance handler runs
    assert isinstance(play.request(), HeartbeatRequest)
    play.expect(play.answer(HeartbeatResponse(error_code=27)))
    play.expect(play.handled(), Ask)
    join = play.request()
    assert isinstance(join, JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata).owned == ()


def test_cooperative_members_keep_their_partitions_and_join_twice() -> None:
    """Only revoked partitions stop, and a second join assigns them to other members (KIP-429)."""
    play = Play(["cooperative-sticky"])
    play.stable(T0, T1)
    play.wait()
    play.expect(play.answer(HeartbeatResponse(error_code=27)), Ask)
    join = play.request()
    assert isinstance(join, JoinGroupRequest)
    told = decode_subscription(join.protocols[0].metadata)
    assert (told.owned, told.generation) == ((T0, T1), 1)
    play.joined(generation=2)
    assert play.synced(T0, T2) == [GiveUp(frozenset({T1}))]
    assert play.handled() == [Take(frozenset({T2}))]
    assert play.member.owned == {T0}
    play.expect(play.handled(), Ask)
    assert isinstance(play.request(), JoinGroupRequest)
    assert play.member.owned == {T0, T2}


def test_an_unknown_member_loses_its_partitions_and_joins_as_a_new_one() -> None:
    """The member was removed, and others read its partitions, so it must not commit."""
    play = Play()
    play.stable(T0)
    play.wait()
    (lose,) = play.answer(HeartbeatResponse(error_code=25))
    assert isinstance(lose, Lose)
    assert lose.partitions == {T0}
    assert isinstance(lose.error, UnknownMemberId)
    assert play.member.group_metadata.generation == -1
    play.handled()
    play.expect(play.wait(), Ask)
    join = play.request()
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == ""


def test_a_stale_generation_keeps_its_member_id() -> None:
    """The group has a later generation, but the coordinator still knows the member."""
    play = Play()
    play.stable(T0)
    play.wait()
    play.expect(play.answer(HeartbeatResponse(error_code=22)), Lose)
    play.handled()
    play.wait()
    join = play.request()
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == "me"


def test_removed_from_the_group_while_user_code_gives_up_partitions() -> None:
    """The handler completes; its partitions are not reported as lost as well."""
    play = Play()
    play.stable(T0)
    play.wait()
    play.answer(HeartbeatResponse(error_code=27))
    play.wait()
    play.expect(play.answer(HeartbeatResponse(error_code=25)))
    play.expect(play.handled())
    play.expect(play.wait(), Ask)
    assert isinstance(play.request(), JoinGroupRequest)


def test_after_a_coordinator_moves_the_request_is_retried() -> None:
    """The membership continues, and no partition is given up."""
    play = Play()
    play.stable(T0)
    play.wait()
    play.expect(play.answer(HeartbeatResponse(error_code=16)), Relocate)
    play.expect(play.wait(), Ask)
    play.expect(play.fail(ConnectionLost("gone")), Relocate)
    play.expect(play.wait(), Ask)
    play.expect(play.fail(RequestTimeout()), Relocate)
    play.expect(play.wait(), Ask)
    play.expect(play.answer(HeartbeatResponse(error_code=14)))  # loading: not moved
    play.expect(play.wait(), Ask)
    play.expect(play.answer(HeartbeatResponse()))
    assert play.member.state is MemberState.STABLE
    assert play.member.owned == {T0}


def test_after_a_lost_sync_response_the_member_joins_again() -> None:
    """The assignment may or may not have been distributed; the join tells."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined()
    play.expect(play.fail(ConnectionLost("gone")), Relocate)
    play.expect(play.wait(), Ask)
    join = play.request()
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == "me"


@pytest.mark.parametrize("code", [82, 24, 26, 30, 81, 23])
def test_an_error_that_is_not_retriable_ends_membership(code: int) -> None:
    """The user gets the error once, and no further request is sent."""
    play = Play()
    play.stable(T0)
    play.wait()
    actions = play.answer(HeartbeatResponse(error_code=code))
    play.expect(actions, Fail, Lose)
    play.expect(play.handled())
    assert play.member.state is MemberState.FAILED
    assert play.member.wake_at() is None
    if code == 82:
        assert isinstance(actions[0], Fail)
        assert isinstance(actions[0].error, FencedInstanceId)


def test_leaving_gives_up_partitions_then_sends_leave_group() -> None:
    """The other members take over at once, not only when the session expires."""
    play = Play()
    play.stable(T0)
    play.member.leave(play.now)
    play.expect(play.poll(), GiveUp)
    play.expect(play.handled(), Ask)
    leave = play.request(5)
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].member_id == "me"
    old = play.request(2)
    assert isinstance(old, LeaveGroupRequest)
    assert old.member_id == "me"
    play.expect(play.answer(LeaveGroupResponse()))
    assert play.member.state is MemberState.OUT


def test_leaving_does_not_wait_for_a_join_in_flight() -> None:
    """JoinGroup returns when the whole group has joined; close() must not wait for that."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.answer(JoinGroupResponse(error_code=79, member_id="me"))
    late = play.asked
    assert late is not None
    play.member.leave(play.now)
    play.expect(play.poll(), Abandon, Ask)
    assert isinstance(play.request(5), LeaveGroupRequest)
    play.member.received(late.ticket, JoinGroupResponse(member_id="me", protocol_name="range"), 0)
    assert play.member.state is MemberState.LEAVING


def test_a_failed_leave_group_is_not_retried() -> None:
    """Without it the session expires, and close() has a time limit."""
    play = Play()
    play.stable()
    play.member.leave(play.now)
    play.expect(play.poll(), Ask)
    play.fail(ConnectionLost("gone"))
    assert play.member.state is MemberState.OUT


def test_a_static_member_sends_no_leave_group() -> None:
    """Its restart must not cause a rebalance (KIP-345)."""
    play = Play(instance_id="i1")
    play.stable(T0)
    play.member.leave(play.now)
    play.expect(play.poll(), GiveUp)
    play.expect(play.handled())
    assert play.member.state is MemberState.OUT


def test_a_leader_that_skips_the_assignment_still_watches_the_topics() -> None:
    """After a restart of a static leader, a new assignment would rebalance the group (KIP-814)."""
    play = Play(instance_id="i1")
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    member = JoinGroupResponseMember(
        member_id="me", metadata=encode_subscription(Subscription(("t",)))
    )
    actions = play.answer(
        JoinGroupResponse(
            generation_id=4,
            protocol_name="range",
            leader="me",
            member_id="me",
            members=[member],
            skip_assignment=True,
        )
    )
    play.expect(actions, NeedTopics, Ask)
    sync = play.request()
    assert isinstance(sync, SyncGroupRequest)
    assert sync.assignments == []
    play.member.topology(Topology({"t": 1}), play.now)
    play.synced(T0)
    play.handled()
    play.member.topology(Topology({"t": 2}), play.now)
    play.expect(play.poll(), GiveUp)


def test_a_subscription_changed_during_a_join_takes_effect_after_it() -> None:
    """The change must neither be lost nor disturb the join."""
    play = Play(["cooperative-sticky"])
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.request()
    play.member.subscribe(frozenset({"t", "u"}), play.now)
    play.expect(play.poll())
    play.joined()
    play.synced(T0)
    play.expect(play.handled(), Ask)
    join = play.request()
    assert isinstance(join, JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata).topics == ("t", "u")


def test_topics_that_are_unsubscribed_are_given_up_before_the_join() -> None:
    """Also with a cooperative assignor, because the member itself no longer wants them."""
    play = Play(["cooperative-sticky"])
    play.stable(T0)
    play.member.subscribe(frozenset({"u"}), play.now)
    assert play.poll() == [GiveUp(frozenset({T0}))]


def test_an_assignor_that_raises_ends_membership_with_its_error() -> None:
    """Its author must see the error, and without it the group would never get an assignment."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined(leader="me")
    play.member.topology(Topology({"t": None}), play.now)  # type: ignore[dict-item]
    (fail,) = play.poll()
    assert isinstance(fail, Fail)
    assert "assignor 'range' failed" in str(fail.error)


class PanicError(BaseException):
    """A BaseException, like the panics of Rust extensions."""


@pytest.mark.parametrize("raised", [PanicError(), asyncio.CancelledError(), StopIteration()])
@pytest.mark.parametrize("method", ["user_data", "assign", "assigned"])
def test_whatever_an_assignor_raises_ends_membership_with_its_error(
    method: str, raised: BaseException
) -> None:
    """A CancelledError ended the driver silently, and readers waited forever."""

    def broken(*args: Any) -> Any:
        raise raised

    play = Play([type("Broken", (RangeAssignor,), {method: broken})()])
    play.member.subscribe(frozenset({"t"}), play.now)
    actions = play.poll()
    if method != "user_data":
        play.joined(leader="me")
        play.member.topology(Topology({"t": 1}), play.now)
        actions = play.poll()
    if method == "assigned":
        actions = play.synced(T0)
    (fail,) = actions
    assert isinstance(fail, Fail)
    assert "assignor 'range' failed" in str(fail.error)
    assert fail.error.__cause__ is raised


def test_bytes_that_are_no_subscription_or_assignment_end_membership() -> None:
    """Bytes from another member or the leader raise a typed error and do not crash the driver."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined()
    play.expect(play.answer(SyncGroupResponse(assignment=b"\x00")), Fail)


def test_leaving_after_max_poll_interval_loses_partitions_with_the_reason() -> None:
    """Owned partitions are lost, because they cannot be revoked in order."""
    play = Play()
    play.stable(T0)
    play.member.leave(play.now, lost=RequestTimeout("no record was asked for"))
    play.expect(play.poll(), Lose)
    play.expect(play.handled(), Ask)
    leave = play.request(5)
    assert isinstance(leave, LeaveGroupRequest)
    assert "no record was asked for" in (leave.members[0].reason or "")
    play.answer(LeaveGroupResponse())
    play.member.subscribe(frozenset({"t"}), play.now)
    play.expect(play.poll(), Ask)
    assert isinstance(play.request(), JoinGroupRequest)


def test_a_pending_assignment_from_before_a_leave_is_not_applied_after_it() -> None:
    """In the generation that the member joins, another member owns them."""
    play = Play(["cooperative-sticky"])
    play.stable(T0, T1)
    play.wait()
    play.answer(HeartbeatResponse(error_code=27))
    play.joined(generation=2)
    assert play.synced(T0, T2) == [GiveUp(frozenset({T1}))]
    play.member.leave(play.now)
    assert play.handled() == [GiveUp(frozenset({T0}))]
    play.member.subscribe(frozenset({"t"}), play.now)
    play.expect(play.handled(), Ask)
    play.joined(generation=3)
    assert play.synced(T0) == [Take(frozenset({T0}))]
    play.expect(play.handled())
    assert play.member.state is MemberState.STABLE
    assert play.member.owned == {T0}


def test_a_heartbeat_in_flight_at_the_start_of_a_join_causes_no_second_join() -> None:
    """Its response concerns the rebalance of this join; another join would stop the group again."""
    play = Play(["cooperative-sticky"])
    play.stable(T0)
    play.wait()
    play.member.subscribe(frozenset({"t", "u"}), play.now)
    play.expect(play.poll())
    play.expect(play.answer(HeartbeatResponse(error_code=27)), Ask)
    play.joined(generation=2)
    play.expect(play.synced(T0), Take)
    play.expect(play.handled())
    assert play.member.state is MemberState.STABLE


def leading(play: Play, *partitions: TopicPartition) -> None:
    """Let the member own `partitions` and lead the next generation."""
    play.stable(*partitions)
    play.wait()
    play.answer(HeartbeatResponse(error_code=27))
    play.expect(play.joined(leader="me", generation=2), NeedTopics)
    assert play.member.state is MemberState.ASSIGNING


def test_a_leader_that_leaves_while_assigning_sends_the_assignment_first() -> None:
    """Until the assignment arrives, the coordinator refuses the commit before the leave."""
    play = Play(["cooperative-sticky"])
    leading(play, T0)
    play.member.leave(play.now)
    play.expect(play.poll())
    play.member.topology(Topology({"t": 2}), play.now)
    play.expect(play.poll(), Ask)
    assert isinstance(play.request(), SyncGroupRequest)
    assert play.synced(T0, T1) == [GiveUp(frozenset({T0}))]
    play.expect(play.handled(), Ask)
    assert isinstance(play.request(), LeaveGroupRequest)


def test_a_leader_that_leaves_sends_leave_group_even_if_its_sync_fails() -> None:
    """By then the group is in another rebalance and needs no assignment from this member."""
    play = Play(["cooperative-sticky"])
    leading(play, T0)
    play.member.topology(Topology({"t": 2}), play.now)
    play.expect(play.poll(), Ask)
    play.member.leave(play.now)
    play.expect(play.poll())
    assert play.answer(SyncGroupResponse(error_code=27)) == [GiveUp(frozenset({T0}))]
    play.member.handled(play.now)
    play.expect(play.wait(), Ask)
    assert isinstance(play.request(), LeaveGroupRequest)


def test_a_leader_that_exceeds_max_poll_interval_does_not_wait_for_topics() -> None:
    """A member that does not read must not lead."""
    play = Play(["cooperative-sticky"])
    leading(play, T0)
    play.member.leave(play.now, lost=RequestTimeout("too slow"))
    play.expect(play.poll(), Lose)


def test_a_leader_that_cannot_fetch_metadata_fails() -> None:
    """Otherwise it would send heartbeats for ever, while the group waits for its assignment."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined(leader="me")
    play.member.unknown(AuthenticationFailed("no"), play.now)
    play.expect(play.poll(), Fail)
    assert play.member.state is MemberState.FAILED
    assert play.member.group_metadata.generation == -1


@pytest.mark.parametrize("owned", [(), (T0,)])
def test_a_failed_leader_sends_leave_group_when_it_closes(
    owned: tuple[TopicPartition, ...],
) -> None:
    """The others had to wait until its session expired, 45 s after it was closed."""
    play = Play(["cooperative-sticky"])
    leading(play, *owned)
    play.member.unknown(AuthenticationFailed("no"), play.now)
    play.expect(play.poll(), Fail, *([Lose] if owned else []))
    play.member.leave(play.now)
    play.expect(play.handled() if owned else play.poll(), Ask)
    assert isinstance(play.request(), LeaveGroupRequest)
    play.answer(LeaveGroupResponse())
    assert play.member.state is MemberState.OUT


@pytest.mark.parametrize("code", [0, 25])
def test_a_late_heartbeat_response_does_not_revive_a_failed_member(code: int) -> None:
    """The member forgot the error, or joined again although the user had received it."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.joined(leader="me")
    play.expect(play.wait(), Ask)
    play.member.unknown(AuthenticationFailed("no"), play.now)
    play.expect(play.answer(HeartbeatResponse(error_code=code)), Fail)
    assert play.member.state is MemberState.FAILED
    assert isinstance(play.member.error, AuthenticationFailed)


def test_a_leaving_leader_that_cannot_fetch_metadata_leaves() -> None:
    """The error concerns an assignment that the member no longer makes."""
    play = Play(["cooperative-sticky"])
    leading(play, T0)
    play.member.leave(play.now)
    play.member.unknown(AuthenticationFailed("no"), play.now)
    assert play.poll() == [GiveUp(frozenset({T0}))]


def test_a_former_leader_ignores_a_metadata_error() -> None:
    """The topics were requested in an earlier generation, in which the member was the leader."""
    play = Play()
    play.stable(T0)
    play.member.unknown(AuthenticationFailed("no"), play.now)
    play.expect(play.poll())
    assert play.member.state is MemberState.STABLE


def test_a_subscription_while_partitions_are_lost_joins_without_them() -> None:
    """The member kept partitions that no consumer read."""
    for topics in ({"t"}, {"t", "u"}):
        play = Play()
        play.stable(T0)
        play.member.leave(play.now, lost=RequestTimeout("too slow"))
        play.expect(play.poll(), Lose)
        play.member.subscribe(frozenset(topics), play.now)
        play.expect(play.poll())
        play.expect(play.handled(), Ask)
        assert isinstance(play.request(), JoinGroupRequest)
