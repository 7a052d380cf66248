"""Calls on groups of which a part cannot be had: the rest is done, and each error is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.group_reset import ResetTo
from aiokq.core.errors import (
    ConfigError,
    CoordinatorLoadInProgress,
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
    """Topic t, whose partitions have the offsets 0 to `end`."""
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
    """Answers to OffsetFetch: 7 for a partition, or its error code."""

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
    """No group g yet: it may be given offsets."""
    groups.coordinators["g"] = 1
    groups.types["g"] = "none"


def test_a_group_whose_coordinator_loads_takes_no_time_from_the_others() -> None:
    """`groups describe a b` said "no answer within 0 s" of the one that was well."""

    async def main(groups: Groups, admin: Admin) -> None:
        with_log(groups, [1])
        groups.add("well", 1, t=8)
        groups.add("loads", 2, t=8)
        groups.loading["loads"] = 10**6
        found = await admin.group_lag(["loads", "well"], timeout=4)
        assert isinstance(found["loads"].error, CoordinatorLoadInProgress)
        assert found["well"].error is None
        assert found["well"].total == 42

    with_groups(main)


@pytest.mark.parametrize("rewind", [False, True])
def test_a_partition_without_leader_keeps_no_other_from_its_offset(rewind: bool) -> None:
    """All of the time went to the one that hangs, and none was reset."""

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


def test_an_offset_that_is_not_known_is_not_guessed() -> None:
    """ "current" of a partition with an open transaction went to the end of the log."""

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


def test_a_partition_that_does_not_exist_is_told_at_once() -> None:
    """It was asked about until the time was over, and the whole group with it."""

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
    """Group g speaks the consumer protocol; one of its members still speaks the classic one."""
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


def test_each_member_of_a_group_that_was_converted_leaves_by_its_own_protocol() -> None:
    """A heartbeat for a classic member, or a LeaveGroup for another, is refused by the broker."""

    async def main(groups: Groups, admin: Admin) -> None:
        mixed(groups)
        removed = await admin.remove_members("g", None, raise_errors=True)
        assert set(removed) == {"aiokq-m", "librdkafka-m"}
        (leaving,) = groups.cluster.requests(wire.LeaveGroupRequest)
        assert [m.member_id for m in leaving.members] == ["librdkafka-m"]
        assert groups.count("heartbeat aiokq-m -1") == 1
        assert groups.count("heartbeat librdkafka-m -1") == 0

    with_groups(main)


def test_a_classic_member_of_a_group_that_was_converted_is_no_foreign_one() -> None:
    """It joins again, as its protocol says, whoever made it."""

    async def main(groups: Groups, admin: Admin) -> None:
        mixed(groups)
        with_log(groups, [1])
        fetch_codes(groups, {T0: 0})
        rewound = await admin.rewind_group("g", {T0: 3}, raise_errors=True)
        assert rewound[T0].offset == 3

    with_groups(main)


@pytest.mark.parametrize("code", [25, 82])
def test_a_member_that_came_back_as_another_does_not_end_a_rewind(code: int) -> None:
    """A static member restarted between the question who is there and its removal."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1)
        with_log(groups, [1])
        fetch_codes(groups, {T0: 0})
        leaving = 0

        def leave(broker: ScriptedBroker, request: Any, version: int) -> Any:
            nonlocal leaving
            leaving += 1
            groups.commit_code = 25 if leaving == 1 else 0
            return wire.LeaveGroupResponse(
                members=[
                    wire.MemberResponse(
                        member_id=m.member_id, error_code=code if leaving == 1 else 0
                    )
                    for m in request.members
                ]
            )

        groups.cluster.handlers[wire.LeaveGroupRequest] = leave
        rewound = await admin.rewind_group("g", {T0: 3}, raise_errors=True)
        assert (rewound[T0].offset, leaving) == (3, 2)

    with_groups(main)


def test_a_commit_for_a_topic_that_is_gone_is_told_at_once_and_the_others_are_done() -> None:
    """As Java's alterConsumerGroupOffsets: asking again for a minute brings no topic back."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1)
        began = asyncio.get_running_loop().time()
        altered = await admin.alter_group_offsets("g", {T0: 1, ("gone", 0): 2})
        assert asyncio.get_running_loop().time() - began < 1
        assert altered[T0].error is None
        assert isinstance(altered["gone", 0].error, UnknownTopicOrPartition)
        assert isinstance(altered["gone", 0].error, KafkaError)

    with_groups(main)


def test_what_is_no_offset_or_time_is_refused_before_anything_is_asked() -> None:
    """They were errors of the encoder, or of Python, in the middle of the call."""

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
def test_what_was_done_without_an_answer_was_done(api: str) -> None:
    """The connection stands, the answer does not come; asked again, the broker knows none such."""

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
