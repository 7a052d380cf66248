"""A member of the consumer group protocol, heartbeat by heartbeat (KIP-848)."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    ConnectionLost,
    FencedMemberEpoch,
    GroupIdNotFound,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from aiokq.core.types import TopicPartition
from aiokq.group.actions import Action, Ask, Fail, GiveUp, Lose, NeedNames, Relocate, Take
from aiokq.group.consumer_member import ConsumerMember
from aiokq.group.member_state import MemberConfig, MemberState
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

T, U = UUID(int=1), UUID(int=2)
NAMES = {T: "t", U: "u"}
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Play:
    """A member driven by the responses of a test."""

    def __init__(self, instance_id: str | None = None) -> None:
        self.now = 100.0
        config = MemberConfig(
            group_id="g",
            instance_id=instance_id,
            session_timeout=45.0,
            rebalance_timeout=60.0,
            heartbeat_interval=3.0,
            request_timeout=30.0,
            rack="r1",
            remote_assignor="range",
        )
        self.member = ConsumerMember(config, "aiokq-1", Backoff(0.1, 1.0, random.Random(1)))
        self.asked: Ask | None = None

    def poll(self) -> list[Action]:
        actions = self.member.poll(self.now)
        for action in actions:
            if isinstance(action, Ask):
                self.asked = action
        return actions

    def request(self, version: int = 1) -> ConsumerGroupHeartbeatRequest:
        assert self.asked is not None
        request = self.asked.make(version)
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return request

    def answer(
        self,
        epoch: int = 1,
        assigned: dict[UUID, list[int]] | None = None,
        error: int = 0,
        member_id: str | None = "aiokq-1",
    ) -> list[Action]:
        assert self.asked is not None
        self.request()  # the driver encodes the request before there can be a response
        assignment = None
        if assigned is not None:
            assignment = ConsumerGroupHeartbeatAssignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatTopicPartitions(topic_id=topic, partitions=numbers)
                    for topic, numbers in assigned.items()
                ]
            )
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=error,
            member_id=member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=5000,
            assignment=assignment,
        )
        self.member.received(self.asked.ticket, response, self.now)
        return self.poll()

    def fail(self, error: Exception) -> list[Action]:
        assert self.asked is not None
        self.request()
        self.member.failed(self.asked.ticket, error, self.now)  # type: ignore[arg-type]
        return self.poll()

    def handled(self) -> list[Action]:
        self.member.handled(self.now)
        return self.poll()

    def wait(self) -> list[Action]:
        when = self.member.wake_at()
        assert when is not None
        self.now = max(self.now, when)
        return self.poll()

    def expect(self, actions: list[Action], *kinds: type[Action]) -> None:
        assert [type(action) for action in actions] == list(kinds), actions

    def owned_as_told(self) -> dict[UUID, list[int]] | None:
        told = self.request().topic_partitions
        return None if told is None else {t.topic_id: t.partitions for t in told}

    def stable(self, **assigned: list[int]) -> None:
        """Let the member own these partitions and have acknowledged them."""
        ids = {name: topic_id for topic_id, name in NAMES.items()}
        self.member.named(NAMES, self.now)
        self.member.subscribe(frozenset(NAMES.values()), self.now)
        self.poll()
        self.expect(self.answer(1, {ids[name]: n for name, n in assigned.items()}), Take)
        self.expect(self.handled(), Ask)
        self.expect(self.answer(1))
        assert self.member.state is MemberState.STABLE


def test_a_member_joins_with_all_fields_and_then_sends_changes() -> None:
    """Epoch 0 needs all fields; a heartbeat without changes is nearly empty."""
    play = Play()
    play.member.named(NAMES, play.now)
    play.member.subscribe(frozenset({"t"}), play.now)
    play.expect(play.poll(), Ask)
    join = play.request()
    assert (join.member_id, join.member_epoch, join.rack_id) == ("aiokq-1", 0, "r1")
    assert (join.rebalance_timeout_ms, join.server_assignor) == (60_000, "range")
    assert (join.subscribed_topic_names, join.topic_partitions) == (["t"], [])
    assert play.answer(1, {T: [0, 1]}) == [Take(frozenset({T0, T1}))]
    play.expect(play.handled(), Ask)  # without a delay: others may wait for it
    assert play.owned_as_told() == {T: [0, 1]}
    assert play.request().subscribed_topic_names is None
    play.expect(play.answer(1))
    play.expect(play.wait(), Ask)
    assert play.now == 105.0
    quiet = play.request()
    assert quiet.topic_partitions is None
    assert quiet.rebalance_timeout_ms == -1
    assert (quiet.member_epoch, quiet.rack_id, quiet.server_assignor) == (1, None, None)


def test_revoked_partitions_are_given_up_before_new_ones_are_taken() -> None:
    """The revocation is acknowledged only after user code has released the partitions."""
    play = Play()
    play.stable(t=[0, 1])
    play.wait()
    assert play.answer(2, {T: [0], U: [0]}) == [GiveUp(frozenset({T1}))]
    play.expect(play.wait(), Ask)  # heartbeats continue while user code runs
    assert play.owned_as_told() == {T: [0, 1]}
    play.expect(play.answer(2))
    assert play.handled() == [Take(frozenset({U0}))]
    play.expect(play.handled(), Ask)
    assert play.owned_as_told() == {T: [0], U: [0]}
    assert play.member.group_metadata.generation == 2


def test_the_latest_of_two_assignments_is_applied() -> None:
    """After two rebalances in a row, no partition is taken that is no longer assigned."""
    play = Play()
    play.stable(t=[0, 1])
    play.wait()
    play.answer(2, {T: [0], U: [0]})
    play.wait()
    play.expect(play.answer(3, {T: [0]}))
    play.expect(play.handled(), Ask)
    assert play.owned_as_told() == {T: [0]}


def test_only_topics_without_a_known_name_wait_for_metadata() -> None:
    """The response has topic ids; the metadata with their names may come a moment later."""
    play = Play()
    play.member.named({T: "t"}, play.now)
    play.member.subscribe(frozenset({"t", "u"}), play.now)
    play.poll()
    assert play.answer(1, {T: [0], U: [0]}) == [NeedNames(frozenset({U})), Take(frozenset({T0}))]
    need, ask = play.handled()
    assert isinstance(need, NeedNames)
    assert isinstance(ask, Ask)
    assert play.owned_as_told() == {T: [0]}
    play.answer(1)
    play.member.named({U: "u"}, play.now)
    assert play.poll() == [Take(frozenset({U0}))]
    play.expect(play.handled(), Ask)
    assert play.owned_as_told() == {T: [0], U: [0]}


def test_after_a_lost_response_all_fields_are_sent_again() -> None:
    """The broker may not have received the last heartbeat."""
    play = Play()
    play.stable(t=[0])
    play.wait()
    play.expect(play.fail(ConnectionLost("gone")), Relocate)
    play.expect(play.wait(), Ask)
    again = play.request()
    assert (again.member_epoch, again.rebalance_timeout_ms) == (1, 60_000)
    assert play.owned_as_told() == {T: [0]}
    play.expect(play.answer(1))
    assert play.member.owned == {T0}


@pytest.mark.parametrize("code", [25, 110, 69])
def test_a_fenced_member_loses_its_partitions_and_joins_at_epoch_zero(code: int) -> None:
    """Other members own its partitions already; its member id stays the same.

    69 (GROUP_ID_NOT_FOUND): the group became a classic one, which the join may upgrade.
    """
    play = Play()
    play.stable(t=[0])
    play.wait()
    (lose,) = play.answer(0, error=code)
    assert isinstance(lose, Lose)
    assert lose.partitions == {T0}
    if code == 110:
        assert isinstance(lose.error, FencedMemberEpoch)
    assert play.member.group_metadata.generation == -1
    assert play.member.wake_at() is None  # the user is notified first
    play.handled()
    play.expect(play.wait(), Ask)
    join = play.request()
    assert (join.member_id, join.member_epoch, join.topic_partitions) == ("aiokq-1", 0, [])
    assert join.subscribed_topic_names == ["t", "u"]


def test_a_heartbeat_to_a_coordinator_that_moves_or_loads_is_retried() -> None:
    """No partition is given up."""
    play = Play()
    play.stable(t=[0])
    play.wait()
    play.expect(play.answer(0, error=16), Relocate)
    play.expect(play.wait(), Ask)
    play.expect(play.answer(0, error=14))
    play.expect(play.wait(), Ask)
    play.expect(play.answer(1))
    assert play.member.owned == {T0}


@pytest.mark.parametrize(("code", "kind"), [(69, GroupIdNotFound), (42, None), (112, None)])
def test_an_error_that_is_not_retriable_ends_membership(code: int, kind: type | None) -> None:
    """With 69 (GROUP_ID_NOT_FOUND) the group is a classic one; the driver may fall back."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    (fail,) = play.answer(0, error=code)
    assert isinstance(fail, Fail)
    assert kind is None or isinstance(fail.error, kind)
    assert play.member.wake_at() is None


def test_a_restarted_static_member_waits_until_its_instance_id_is_free() -> None:
    """The broker frees the id after the session timeout; after that, another member has it."""
    play = Play(instance_id="i1")
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    began = play.now
    while play.now < began + 50.0:
        play.expect(play.answer(0, error=111))
        play.expect(play.wait(), Ask)
        assert play.request().member_epoch == 0
    (fail,) = play.answer(0, error=111)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, UnreleasedInstanceId)


def test_group_id_not_found_at_the_first_join_ends_membership() -> None:
    """The driver falls back on this error; only a former member joins again by itself."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    (fail,) = play.answer(0, error=69)
    assert isinstance(fail, Fail)


def test_a_broker_without_the_protocol_ends_membership() -> None:
    """The driver falls back on this error."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    (fail,) = play.fail(UnsupportedVersion("no ConsumerGroupHeartbeat"))
    assert isinstance(fail, Fail)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i1", -2)])
def test_leaving_gives_up_partitions_then_sends_a_last_heartbeat(
    instance_id: str | None, epoch: int
) -> None:
    """The epoch of a static member says that it will be back."""
    play = Play(instance_id)
    play.stable(t=[0])
    play.member.leave(play.now)
    assert play.poll() == [GiveUp(frozenset({T0}))]
    play.expect(play.handled(), Ask)
    leave = play.request()
    assert (leave.member_epoch, leave.instance_id) == (epoch, instance_id)
    play.expect(play.answer(epoch))
    assert play.member.state is MemberState.OUT


def test_a_failed_last_heartbeat_is_not_retried() -> None:
    """close() has a time limit; without the heartbeat the session expires."""
    play = Play()
    play.stable()
    play.member.leave(play.now)
    play.expect(play.poll(), Ask)
    play.fail(ConnectionLost("gone"))
    assert play.member.state is MemberState.OUT


def test_with_heartbeat_version_0_the_broker_assigns_the_member_id() -> None:
    play = Play()
    play.member.named(NAMES, play.now)
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    play.answer(1, {T: [0]}, member_id="named-by-broker")
    play.handled()
    assert play.request(0).member_id == "named-by-broker"
    assert play.member.group_metadata.member_id == "named-by-broker"


def test_a_member_that_leaves_during_its_first_join_sends_its_id_on_any_version() -> None:
    """With version 0 it sent no id, and stayed in the group until its session expired."""
    play = Play()
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    assert play.request(0).member_id == "aiokq-1"
    play.member.leave(play.now)
    play.expect(play.poll(), Ask)
    assert play.request(0).member_epoch == -1
    assert play.request(0).member_id == "aiokq-1"


def test_a_changed_subscription_is_sent_at_once() -> None:
    """Names and regular expression; a dropped expression is sent as an empty string."""
    play = Play()
    play.stable(t=[0])
    play.member.subscribe(frozenset(), play.now, regex="t.*")
    play.expect(play.poll(), Ask)
    told = play.request()
    assert (told.subscribed_topic_names, told.subscribed_topic_regex) == ([], "t.*")
    play.answer(1)
    play.member.subscribe(frozenset({"t"}), play.now)
    play.expect(play.poll(), Ask)
    told = play.request()
    assert (told.subscribed_topic_names, told.subscribed_topic_regex) == (["t"], "")


def test_a_late_heartbeat_response_does_not_stop_a_member_from_leaving() -> None:
    play = Play()
    play.stable(t=[0])
    play.wait()
    late = play.asked
    assert late is not None
    play.member.leave(play.now)
    play.member.received(
        late.ticket,
        ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=0, member_epoch=9, heartbeat_interval_ms=1
        ),
        play.now,
    )
    assert play.poll() == [GiveUp(frozenset({T0}))]
    assert play.member.state is MemberState.PREPARING


def test_a_member_that_leaves_with_a_heartbeat_in_flight_commits_at_the_new_epoch() -> None:
    """Without that response's epoch the last commit is stale and the next heartbeat is fenced."""
    play = Play()
    play.stable(t=[0])
    play.wait()
    play.member.leave(play.now)
    assert play.poll() == [GiveUp(frozenset({T0}))]
    play.expect(play.answer(2))
    assert play.member.group_metadata.generation == 2
    play.expect(play.handled(), Ask)
    assert play.request().member_epoch == -1


def test_the_last_heartbeat_does_not_wait_for_the_one_in_flight() -> None:
    """The response to the earlier heartbeat must not be taken for that of the last one."""
    play = Play()
    play.stable(t=[0])
    play.wait()
    earlier = play.asked
    play.member.leave(play.now)
    play.poll()
    play.expect(play.handled(), Ask)
    assert play.request().member_epoch == -1
    goodbye, play.asked = play.asked, earlier
    play.expect(play.answer(2))
    assert play.member.state is MemberState.LEAVING
    play.asked = goodbye
    play.answer(-1)
    assert play.member.state is MemberState.OUT


def test_a_member_that_waits_for_its_instance_id_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The wait may take a session timeout, in which nothing is read."""
    play = Play(instance_id="i1")
    play.member.subscribe(frozenset({"t"}), play.now)
    play.poll()
    for _ in range(3):
        play.expect(play.answer(0, error=111))
        play.expect(play.wait(), Ask)
    waits = [r for r in caplog.records if "waiting for the previous session" in r.message]
    assert len(waits) == 1
    assert "instance=i1" in waits[0].message


def test_an_assignment_received_while_leaving_applies_if_the_member_stays() -> None:
    """Unsubscribing and subscribing in one handler took back a partition of another member."""
    play = Play()
    play.stable(t=[0, 1])
    play.member.leave(play.now)
    assert play.poll() == [GiveUp(frozenset({T0, T1}))]
    play.wait()
    play.answer(2, {T: [0]})
    play.member.subscribe(frozenset(NAMES.values()), play.now)
    play.expect(play.handled(), Ask)
    everything = play.request()
    assert (everything.member_epoch, everything.rebalance_timeout_ms) == (2, 60_000)
    assert play.owned_as_told() == {}
    assert play.answer(2, {T: [0]}) == [Take(frozenset({T0}))]


def test_a_subscription_while_partitions_are_lost_joins_without_them() -> None:
    """The member kept partitions that no consumer read."""
    play = Play()
    play.stable(t=[0])
    play.member.leave(play.now, lost=ConnectionLost("too slow"))
    play.expect(play.poll(), Lose)
    play.member.subscribe(frozenset(NAMES.values()), play.now)
    play.expect(play.poll())
    play.expect(play.handled(), Ask)
    assert play.owned_as_told() == {}
    assert play.answer(1, {T: [0]}) == [Take(frozenset({T0}))]
