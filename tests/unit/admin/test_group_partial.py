"""Group calls that fail for some items: the others succeed, and each error is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.group_reset import ResetTo
from aiokq.core.errors import (
    CommitFailed,
    ConfigError,
    CoordinatorLoadInProgress,
    ForeignMembers,
    KafkaError,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from aiokq.core.types import TopicPartition
from tests.unit.admin.test_groups import T0, Groups, with_groups
from tests.unit.cluster.scripted import ScriptedBroker

T1 = TopicPartition("t", 1)


def with_log(groups: Groups, leaders: list[int], end: int = 50) -> None:
    """Create topic t, whose partitions have the offsets 0 to `end`."""
    groups.cluster.add_topic("t", leaders)

    def list_offsets(broker: ScriptedBroker, request: Any, version: int) -> Any:
        return wire.ListOffsetsResponse(
            topics=[
                wire.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        wire.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            offset=0 if p.timestamp == -2 else end,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    groups.cluster.handlers[wire.ListOffsetsRequest] = list_offsets


def fetch_codes(groups: Groups, codes: dict[tuple[str, int], int]) -> None:
    """Answer OffsetFetch with offset 7 for each partition, or with its error code."""

    def fetch(broker: ScriptedBroker, request: Any, version: int) -> Any:
        return wire.OffsetFetchResponse(
            groups=[
                wire.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        wire.OffsetFetchResponseTopics(
                            name=topic,
                            partitions=[
                                wire.OffsetFetchResponsePartitions(
                                    partition_index=number,
                                    committed_offset=-1 if code else 7,
                                    metadata="",
                                    error_code=code,
                                )
                            ],
                        )
                        for (topic, number), code in codes.items()
                    ],
                )
                for group in request.groups
            ]
        )

    groups.cluster.handlers[wire.OffsetFetchRequest] = fetch


def empty_group(groups: Groups) -> None:
    """Let group g not exist yet, so that offsets can be committed for it."""
    groups.coordinators["g"] = 1
    groups.types["g"] = "none"


def test_a_group_whose_coordinator_is_loading_does_not_delay_the_others() -> None:
    """`groups describe a b` reported "no answer within 0 s" for the other group."""

    async def main(groups: Groups, admin: Admin) -> None:
        with_log(groups, [1])
        groups.add("well", 1, t=8)
        groups.add("loads", 2, t=8)
        groups.loading["loads"] = 10**6
        found = await admin.group_lag(["loads", "well"], timeout=4)
        assert isinstance(found["loads"].error, CoordinatorLoadInProgress)
        assert found["well"].error is None
        assert [each.lag for each in found["well"].partitions.values()] == [42]

    with_groups(main)


@pytest.mark.parametrize("rewind", [False, True])
def test_a_partition_without_leader_does_not_prevent_the_others_from_being_reset(
    rewind: bool,
) -> None:
    """The whole timeout was spent on that partition, and no partition was reset."""

    async def main(groups: Groups, admin: Admin) -> None:
        with_log(groups, [1, -1])
        empty_group(groups)
        fetch_codes(groups, {T0: 0, T1: 0})
        call = admin.rewind_group if rewind else admin.reset_group_offsets
        reset = await call("g", "latest", [T0, T1], timeout=8)
        assert (reset[T0].offset, reset[T0].error) == (50, None)
        assert isinstance(reset[T1].error, RequestTimeout)
        assert groups.count("commit") == 1

    with_groups(main)


def test_an_unknown_committed_offset_is_not_replaced_by_a_default() -> None:
    """ "current" for a partition with an open transaction reset it to the log end offset."""

    async def main(groups: Groups, admin: Admin) -> None:
        with_log(groups, [1, 1])
        empty_group(groups)
        fetch_codes(groups, {T0: 0, T1: 88})
        reset = await admin.reset_group_offsets("g", "current", [T0, T1], timeout=8)
        assert (reset[T0].offset, reset[T0].error) == (7, None)
        assert isinstance(reset[T1].error, UnstableOffsetCommit)
        assert reset[T1].offset is None
        (committed,) = groups.cluster.requests(wire.OffsetCommitRequest)
        assert [p.partition_index for p in committed.topics[0].partitions] == [0]

    with_groups(main)


def test_a_missing_partition_has_its_error_at_once() -> None:
    """It was retried until the timeout, which failed the whole group."""

    async def main(groups: Groups, admin: Admin) -> None:
        empty_group(groups)
        fetch_codes(groups, {T0: 0, ("gone", 0): 3})
        began = asyncio.get_running_loop().time()
        listed = await admin.list_group_offsets("g", raise_errors=True)
        assert asyncio.get_running_loop().time() - began < 1
        assert list(listed["g"].offsets) == [T0]
        assert isinstance(listed["g"].errors["gone", 0], UnknownTopicOrPartition)

    with_groups(main)


def mixed(groups: Groups) -> None:
    """Group g uses the consumer protocol; one of its members still uses the classic protocol."""
    groups.add("g", 1, "consumer")
    left: list[str] = []

    def describe(broker: ScriptedBroker, request: Any, version: int) -> Any:
        members = {"aiokq-m": 1, "librdkafka-m": 0}
        return wire.ConsumerGroupDescribeResponse(
            groups=[
                wire.ConsumerGroupDescribedGroup(
                    group_id="g",
                    group_state="Stable",
                    members=[
                        wire.ConsumerGroupDescribeMember(member_id=name, member_type=kind)
                        for name, kind in members.items()
                        if name not in left
                    ],
                )
            ]
        )

    def leave(broker: ScriptedBroker, request: Any, version: int) -> Any:
        left.extend(m.member_id for m in request.members)
        return groups.leave(broker, request, version)

    def heartbeat(broker: ScriptedBroker, request: Any, version: int) -> Any:
        left.append(request.member_id)
        return groups.heartbeat(broker, request, version)

    groups.cluster.handlers[wire.ConsumerGroupDescribeRequest] = describe
    groups.cluster.handlers[wire.LeaveGroupRequest] = leave
    groups.cluster.handlers[wire.ConsumerGroupHeartbeatRequest] = heartbeat


def test_each_member_of_a_converted_group_leaves_by_its_own_protocol() -> None:
    """The broker refuses a heartbeat for a classic member, and a LeaveGroup for the other kind."""

    async def main(groups: Groups, admin: Admin) -> None:
        mixed(groups)
        removed = await admin.remove_members("g", None, raise_errors=True)
        assert set(removed) == {"aiokq-m", "librdkafka-m"}
        (leaving,) = groups.cluster.requests(wire.LeaveGroupRequest)
        assert [m.member_id for m in leaving.members] == ["librdkafka-m"]
        assert groups.count("heartbeat aiokq-m -1") == 1
        assert groups.count("heartbeat librdkafka-m -1") == 0

    with_groups(main)


def test_a_rewind_of_a_converted_group_with_a_classic_member_is_refused() -> None:
    """Once it is removed, the classic member could commit into the empty group."""

    async def main(groups: Groups, admin: Admin) -> None:
        mixed(groups)
        with_log(groups, [1])
        fetch_codes(groups, {T0: 0})
        with pytest.raises(ForeignMembers) as caught:
            await admin.rewind_group("g", {T0: 3})
        assert caught.value.members == ("librdkafka-m",)
        assert groups.count("leave") == groups.count("commit") == 0

    with_groups(main)


class Held:
    """Group g with one member, into which `holder` joins to hold the group during a rewind.

    Attributes:
        removing: error code of the first response to the removal of other members.
        asking: error code of joins without member id; 79 (MEMBER_ID_REQUIRED) assigns the id.
        joining: error code of the first join with a member id.
        beating: error code of heartbeats; 27 (REBALANCE_IN_PROGRESS) means a member rejoins.
        left: the members that left or were removed, in order.
    """

    def __init__(
        self,
        groups: Groups,
        *,
        removing: int = 0,
        asking: int = 79,
        joining: int = 0,
        beating: int = 27,
    ) -> None:
        groups.add("g", 1)
        with_log(groups, [1])
        fetch_codes(groups, {T0: 0})
        self.groups, self.removing, self.joining, self.beating = groups, removing, joining, beating
        self.asking = asking
        self.members = {"other"}
        self.left: list[str] = []
        for request, handler in (
            (wire.DescribeGroupsRequest, self._describe),
            (wire.JoinGroupRequest, self._join),
            (wire.SyncGroupRequest, lambda *_: wire.SyncGroupResponse(assignment=b"")),
            (wire.HeartbeatRequest, lambda *_: wire.HeartbeatResponse(error_code=self.beating)),
            (wire.LeaveGroupRequest, self._leave),
        ):
            groups.cluster.handlers[request] = handler

    def _describe(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        members = [
            wire.DescribedGroupMember(
                member_id=name,
                client_id="c",
                client_host="/10.0.0.1",
                member_metadata=b"",
                member_assignment=b"",
            )
            for name in sorted(self.members)
        ]
        group = wire.DescribedGroup(
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="custom",
            members=members,
        )
        return wire.DescribeGroupsResponse(groups=[group])

    def _join(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        assert request.protocols[0].name == "custom"
        if not request.member_id:
            id_ = "holder" if self.asking == 79 else ""
            return wire.JoinGroupResponse(error_code=self.asking, protocol_name=None, member_id=id_)
        code, self.joining = self.joining, 0
        if code:
            return wire.JoinGroupResponse(error_code=code, protocol_name=None, member_id="")
        self.members.add("holder")
        return wire.JoinGroupResponse(
            generation_id=7,
            protocol_type="consumer",
            protocol_name="custom",
            leader="holder",
            member_id="holder",
            members=[wire.JoinGroupResponseMember(member_id="holder", metadata=b"")],
        )

    def _leave(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        codes = {}
        for member in request.members:
            self.left.append(member.member_id)
            self.members.discard(member.member_id)
            codes[member.member_id], self.removing = self.removing, 0
        return wire.LeaveGroupResponse(
            members=[wire.MemberResponse(member_id=m, error_code=c) for m, c in codes.items()]
        )


@pytest.mark.parametrize("code", [25, 82])
def test_a_member_that_restarts_during_a_rewind_does_not_end_it(code: int) -> None:
    """A static member restarted after the group was described and before it was removed."""

    async def main(groups: Groups, admin: Admin) -> None:
        held = Held(groups, removing=code)
        rewound = await admin.rewind_group("g", {T0: 3}, raise_errors=True)
        assert rewound[T0].offset == 3
        assert held.left == ["other", "holder"]
        (commit,) = groups.cluster.requests(wire.OffsetCommitRequest)
        assert (commit.member_id, commit.generation_id_or_member_epoch) == ("holder", 7)

    with_groups(main)


@pytest.mark.parametrize("code", [14, 15, 16, 25])
def test_a_failed_join_of_the_holder_is_retried(code: int) -> None:
    """The coordinator moved or is loading, and does not know the member id that was assigned."""

    async def main(groups: Groups, admin: Admin) -> None:
        Held(groups, joining=code)
        rewound = await admin.rewind_group("g", {T0: 3}, raise_errors=True)
        assert rewound[T0].offset == 3

    with_groups(main)


@pytest.mark.parametrize("code", [23, 24, 81])
def test_a_group_that_cannot_be_joined_is_left_unchanged(code: int) -> None:
    """The group is full or uses another protocol; its members must not be removed then."""

    async def main(groups: Groups, admin: Admin) -> None:
        held = Held(groups, asking=code)
        with pytest.raises(KafkaError) as caught:
            await admin.rewind_group("g", {T0: 3})
        assert getattr(caught.value, "code", None) == code
        assert "other" in held.members
        assert groups.count("commit") == 0

    with_groups(main)


def test_a_rewind_fails_if_its_holder_was_removed() -> None:
    """The group was empty meanwhile and may have accepted a commit: the offset is 7, not 3."""

    async def main(groups: Groups, admin: Admin) -> None:
        Held(groups, beating=25)
        rewound = await admin.rewind_group("g", {T0: 3})
        assert rewound[T0].offset is None
        assert isinstance(rewound[T0].error, CommitFailed)
        assert "is now 7, not 3" in str(rewound[T0].error)
        # If the committed offset is the wanted one, the rewind succeeded.
        rewound = await admin.rewind_group("g", {T0: 7}, raise_errors=True)
        assert rewound[T0].offset == 7

    with_groups(main)


def test_a_rewind_whose_timeout_ends_before_a_member_rejoins_fails() -> None:
    """With a timeout below the heartbeat interval, a member's late commit may undo the rewind."""

    async def main(groups: Groups, admin: Admin) -> None:
        held = Held(groups, beating=0)
        rewound = await admin.rewind_group("g", {T0: 3}, timeout=2)
        assert isinstance(rewound[T0].error, RequestTimeout)
        assert "is committed, but no member rejoined within 2 s" in str(rewound[T0].error)
        assert held.left == ["other", "holder"]

    with_groups(main)


def test_a_rewind_ends_if_no_member_rejoins(caplog: pytest.LogCaptureFixture) -> None:
    """The members are dead: the holder waits for half a minute, not for ever."""

    async def main(groups: Groups, admin: Admin) -> None:
        held = Held(groups, beating=0)
        began = asyncio.get_running_loop().time()
        rewound = await admin.rewind_group("g", {T0: 3}, raise_errors=True)
        assert rewound[T0].offset == 3
        assert 30 <= asyncio.get_running_loop().time() - began < 32
        assert held.left == ["other", "holder"]
        assert "no member has rejoined" in caplog.text

    with_groups(main)


def test_a_commit_for_a_deleted_topic_fails_at_once_and_the_others_succeed() -> None:
    """Like Java's alterConsumerGroupOffsets; retries would not help."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1)
        began = asyncio.get_running_loop().time()
        altered = await admin.alter_group_offsets("g", {T0: 1, ("gone", 0): 2})
        assert asyncio.get_running_loop().time() - began < 1
        assert altered[T0].error is None
        assert isinstance(altered["gone", 0].error, UnknownTopicOrPartition)
        assert isinstance(altered["gone", 0].error, KafkaError)

    with_groups(main)


def test_invalid_offsets_and_times_are_refused_before_any_request() -> None:
    """They failed in the middle of the call, in the encoder or inside Python."""

    async def main(groups: Groups, admin: Admin) -> None:
        empty_group(groups)
        asked = len(groups.calls)
        for bad in (-1, 2**63, 1.5, "7"):
            with pytest.raises(ConfigError, match="t-0: "):
                await admin.alter_group_offsets("g", {T0: bad})  # type: ignore[dict-item]
        for how, value in (("timestamp", 2**63), ("timestamp", -1), ("duration", -1), ("x", 0)):
            with pytest.raises(ConfigError):
                ResetTo(how, value)  # type: ignore[arg-type]
        assert len(groups.calls) == asked

    with_groups(main)


@pytest.mark.parametrize("api", ["DeleteGroups", "LeaveGroup"])
def test_a_retried_deletion_or_removal_that_finds_nothing_succeeded(api: str) -> None:
    """The first response is lost; on the retry the broker does not know the group or member."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1)
        asked = 0

        def delete(broker: ScriptedBroker, request: Any, version: int) -> Any:
            nonlocal asked
            asked += 1
            answer = groups.delete(broker, request, version)
            return None if asked == 1 else answer

        def leave(broker: ScriptedBroker, request: Any, version: int) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                return None
            return wire.LeaveGroupResponse(
                members=[
                    wire.MemberResponse(member_id=m.member_id, error_code=25)
                    for m in request.members
                ]
            )

        groups.cluster.handlers[wire.DeleteGroupsRequest] = delete
        groups.cluster.handlers[wire.LeaveGroupRequest] = leave
        if api == "DeleteGroups":
            await admin.delete_groups("g", raise_errors=True)
        else:
            await admin.remove_members("g", "g-m", raise_errors=True)
        assert asked == 2

    with_groups(main)
