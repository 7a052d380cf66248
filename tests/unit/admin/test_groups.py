"""Admin's group calls with scripted coordinators: batches, moves, loading and lost responses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.group_types import GroupState, GroupType
from aiokq.core.errors import (
    ConfigError,
    ConnectionLost,
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    GroupNotEmpty,
    RequestTimeout,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from aiokq.core.types import OffsetAndMetadata, TopicPartition
from tests.unit.cluster.scripted import Mood, ScriptedBroker, ScriptedCluster, simulate

Main = Callable[["Groups", Admin], Coroutine[Any, Any, None]]

T0 = TopicPartition("t", 0)


class Groups:
    """Groups and their offsets; their coordinators may move, load or stop responding."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.coordinators: dict[str, int] = {}
        self.loading: Counter[str] = Counter()
        self.silent = 0
        self.types: dict[str, str] = {}
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.commit_code = 0
        self.calls: list[tuple[str, int, int]] = []
        for request, handler in (
            (wire.FindCoordinatorRequest, self.find),
            (wire.ListGroupsRequest, self.list),
            (wire.DescribeGroupsRequest, self.describe),
            (wire.ConsumerGroupDescribeRequest, self.describe_modern),
            (wire.DeleteGroupsRequest, self.delete),
            (wire.OffsetFetchRequest, self.fetch),
            (wire.OffsetCommitRequest, self.commit),
            (wire.LeaveGroupRequest, self.leave),
            (wire.ConsumerGroupHeartbeatRequest, self.heartbeat),
        ):
            cluster.handlers[request] = handler

    def add(self, group: str, node: int, kind: str = "classic", **offsets: int) -> None:
        self.coordinators[group] = node
        self.types[group] = kind
        self.offsets[group] = {(name, 0): at for name, at in offsets.items()}

    def count(self, api: str) -> int:
        return sum(1 for name, _, _ in self.calls if name == api)

    def code(self, broker: ScriptedBroker, group: str) -> int:
        if self.loading[group]:
            self.loading[group] -= 1
            return 14
        return 0 if self.coordinators.get(group, 1) == broker.node_id else 16

    def _note(self, api: str, broker: ScriptedBroker, version: int) -> None:
        self.calls.append((api, broker.node_id, version))

    def find(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("find", broker, version)
        brokers = self.cluster.brokers
        found = {key: brokers[self.coordinators.get(key, 1)] for key in request.coordinator_keys}
        return wire.FindCoordinatorResponse(
            coordinators=[
                wire.Coordinator(key=key, node_id=b.node_id, host=b.host, port=b.port)
                for key, b in found.items()
            ]
        )

    def list(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("list", broker, version)
        return wire.ListGroupsResponse(
            groups=[
                wire.ListedGroup(
                    group_id=group,
                    protocol_type="consumer",
                    group_state="Stable",
                    group_type=self.types[group],
                )
                for group, node in self.coordinators.items()
                if node == broker.node_id
            ]
        )

    def describe(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("describe", broker, version)
        groups = []
        for group in request.groups:
            code = self.code(broker, group)
            if not code and self.types.get(group) != "classic":
                if version >= 6:
                    code = 69
                groups.append(
                    wire.DescribedGroup(group_id=group, error_code=code, group_state="Dead")
                )
                continue
            members = [
                wire.DescribedGroupMember(
                    member_id=f"{group}-m",
                    client_id="c",
                    client_host="/10.0.0.1",
                    member_metadata=b"\0\1garbage",
                    member_assignment=b"\0",
                )
            ]
            groups.append(
                wire.DescribedGroup(
                    group_id=group,
                    error_code=code,
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="range",
                    members=[] if code else members,
                )
            )
        return wire.DescribeGroupsResponse(groups=groups)

    def describe_modern(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("describe modern", broker, version)
        groups = []
        for group in request.group_ids:
            code = self.code(broker, group)
            if not code and self.types.get(group) != "consumer":
                code = 69
            groups.append(
                wire.ConsumerGroupDescribedGroup(
                    group_id=group,
                    error_code=code,
                    group_state="Reconciling",
                    assignor_name="uniform",
                    members=[wire.ConsumerGroupDescribeMember(member_id=f"{group}-m")],
                )
            )
        return wire.ConsumerGroupDescribeResponse(groups=groups)

    def delete(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("delete", broker, version)
        results = []
        for group in request.groups_names:
            code = self.code(broker, group)
            if not code and self.offsets.pop(group, None) is None:
                code = 69
            results.append(wire.DeletableGroupResult(group_id=group, error_code=code))
        if self.silent:
            self.silent -= 1
            broker.die(Mood.UP)
            return None
        return wire.DeleteGroupsResponse(results=results)

    def fetch(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("fetch", broker, version)
        if version < 8:
            at = self.offsets[request.group_id]
            return wire.OffsetFetchResponse(
                error_code=self.code(broker, request.group_id),
                topics=[
                    wire.OffsetFetchResponseTopic(
                        name=name,
                        partitions=[
                            wire.OffsetFetchResponsePartition(
                                partition_index=number, committed_offset=offset, metadata=""
                            )
                        ],
                    )
                    for (name, number), offset in at.items()
                ],
            )
        groups = []
        for group in request.groups:
            groups.append(
                wire.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=self.code(broker, group.group_id),
                    topics=[
                        wire.OffsetFetchResponseTopics(
                            name=name,
                            partitions=[
                                wire.OffsetFetchResponsePartitions(
                                    partition_index=number, committed_offset=offset, metadata=""
                                )
                            ],
                        )
                        for (name, number), offset in self.offsets[group.group_id].items()
                    ],
                )
            )
        return wire.OffsetFetchResponse(groups=groups)

    def commit(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("commit", broker, version)
        code = self.code(broker, request.group_id) or self.commit_code
        return wire.OffsetCommitResponse(
            topics=[
                wire.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        wire.OffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=code if topic.name == "t" else 3,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def leave(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note("leave", broker, version)
        return wire.LeaveGroupResponse(
            members=[
                wire.MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id)
                for m in request.members
            ]
        )

    def heartbeat(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self._note(f"heartbeat {request.member_id} {request.member_epoch}", broker, version)
        return wire.ConsumerGroupHeartbeatResponse(member_epoch=-1)


def with_groups(main: Main, **limits: int) -> None:
    async def run(cluster: ScriptedCluster) -> None:
        for name, newest in limits.items():
            cluster.limits[getattr(wire, name)] = newest
        groups = Groups(cluster)
        admin = Admin(cluster.bootstrap_servers, _environment=cluster.environment)
        async with admin:
            await main(groups, admin)

    simulate(run)


def test_a_hundred_groups_need_one_lookup_and_one_request_per_coordinator() -> None:
    """`aiokq groups describe` of all groups must not need hundreds of round trips."""

    async def main(groups: Groups, admin: Admin) -> None:
        for n in range(100):
            groups.add(f"g{n}", n % 3 + 1, "consumer" if n % 2 else "classic")
        described = await admin.describe_groups(groups.coordinators, raise_errors=True)
        assert len(described) == 100
        assert described["g0"].type is GroupType.CLASSIC
        assert described["g1"].type is GroupType.CONSUMER
        assert described["g1"].state is GroupState.RECONCILING
        assert groups.count("find") == 1
        assert groups.count("describe modern") == 3
        assert groups.count("describe") == 3

    with_groups(main)


def test_after_a_coordinator_moved_only_its_group_is_requested_again() -> None:
    """NOT_COORDINATOR invalidates the cached coordinator of this group only."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("stays", 1, t=1)
        groups.add("moves", 1, t=2)
        await admin.list_group_offsets(["stays", "moves"], raise_errors=True)
        groups.coordinators["moves"] = 2
        listed = await admin.list_group_offsets(["stays", "moves"], raise_errors=True)
        assert listed["moves"].offsets == {T0: OffsetAndMetadata(2)}
        assert [node for name, node, _ in groups.calls if name == "fetch"] == [1, 1, 2]

    with_groups(main)


def test_a_request_to_a_loading_coordinator_is_retried() -> None:
    """After a restart a coordinator first loads its groups, which may take seconds."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 2)
        groups.loading["g"] = 3
        assert (await admin.describe_groups("g", raise_errors=True))["g"].members
        groups.loading["g"] = 10**6
        described = await admin.describe_groups("g", timeout=3)
        assert isinstance(described["g"].error, CoordinatorLoadInProgress)

    with_groups(main)


def test_a_listing_names_the_brokers_that_are_down() -> None:
    """The groups of the other brokers are returned."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("a", 1)
        groups.add("b", 2)
        groups.cluster.brokers[2].die()
        started = asyncio.get_running_loop().time()
        listed = await admin.list_groups()
        assert asyncio.get_running_loop().time() - started < 10
        assert list(listed) == ["a"]
        assert list(listed.errors) == [2]
        assert isinstance(listed.errors[2], ConnectionLost)
        with pytest.raises(ConnectionLost):
            await admin.list_groups(raise_errors=True)
        groups.cluster.brokers[2].revive()

    with_groups(main)


def test_a_listing_without_any_broker_times_out_with_its_cause() -> None:
    """An empty listing would mean that no groups exist."""

    async def main(groups: Groups, admin: Admin) -> None:
        for broker in groups.cluster.brokers.values():
            broker.die()
        with pytest.raises(RequestTimeout):
            await admin.list_groups(timeout=5)

    with_groups(main)


def test_a_deletion_whose_response_was_lost_succeeded() -> None:
    """The retry finds no group, which is the wanted state."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 2)
        groups.silent = 1
        deleted = await admin.delete_groups(["g", "never"])
        assert deleted["g"].error is None
        assert isinstance(deleted["never"].error, GroupIdNotFound)

    with_groups(main)


def test_offsets_of_several_groups_are_fetched_one_by_one_from_old_brokers() -> None:
    """Before version 8 a request has one group."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("a", 1, t=1)
        groups.add("b", 1, t=2)
        listed = await admin.list_group_offsets(["a", "b"], raise_errors=True)
        assert [listed[g].offsets[T0] for g in "ab"] == [OffsetAndMetadata(1), OffsetAndMetadata(2)]
        assert [version for name, _, version in groups.calls if name == "fetch"] == [7, 7]

    with_groups(main, OffsetFetchRequest=7)


def test_offsets_are_fetched_by_topic_name_although_newer_versions_use_ids() -> None:
    """With ids, the offsets of topics that are not in the metadata would have no name."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1, t=1, gone=2)
        listed = await admin.list_group_offsets("g", raise_errors=True)
        assert [tp.topic for tp in listed["g"].offsets] == ["gone", "t"]
        altered = await admin.alter_group_offsets("g", {T0: 1, ("gone", 0): 2})
        assert altered[T0].error is None
        assert isinstance(altered["gone", 0].error, UnknownTopicOrPartition)
        assert {version for name, _, version in groups.calls if name in ("fetch", "commit")} == {9}

    with_groups(main)


@pytest.mark.parametrize("code", [22, 25, 27, 110, 113])
def test_a_commit_into_a_group_with_members_says_what_to_do(code: int) -> None:
    """UNKNOWN_MEMBER_ID alone does not say that the group's members must be stopped first."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1)
        groups.commit_code = code
        with pytest.raises(GroupNotEmpty, match="rewind_group") as caught:
            await admin.alter_group_offsets("g", {T0: 1}, raise_errors=True)
        assert getattr(caught.value.__cause__, "code", None) == code

    with_groups(main)


def test_a_member_with_an_undecodable_subscription_is_described() -> None:
    """Any program may join with any bytes; Java shows such members without topics."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1)
        (member,) = (await admin.describe_groups("g", raise_errors=True))["g"].members
        assert (member.subscription, member.assignment) == ((), ())
        assert member.metadata == b"\0\1garbage"
        assert member.host == "10.0.0.1"

    with_groups(main)


def test_a_missing_group_is_not_found_on_brokers_of_any_version() -> None:
    """Before version 6 the response has a group in the state Dead."""

    async def main(groups: Groups, admin: Admin) -> None:
        described = await admin.describe_groups("nothing")
        assert isinstance(described["nothing"].error, GroupIdNotFound)
        groups.add("g", 1)
        assert (await admin.describe_groups("g", raise_errors=True))["g"].members

    with_groups(main, DescribeGroupsRequest=5)


def test_members_leave_by_the_protocol_they_speak() -> None:
    """LeaveGroup for classic members, a last heartbeat for the others."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("old", 1)
        groups.add("new", 2, "consumer")
        removed = await admin.remove_members("old", "old-m", reason="gone")
        assert removed["old-m"].error is None
        removed = await admin.remove_members("new", None)
        assert removed["new-m"].error is None
        assert groups.count("leave") == 1
        assert groups.count("heartbeat new-m -1") == 1
        removed = await admin.remove_members("new", ["x"], group_instance_ids="y")
        assert [type(each.error) for each in removed.values()] == [UnknownMemberId] * 2
        with pytest.raises(ConfigError, match="no members"):
            await admin.remove_members("new")

    with_groups(main)


def test_filters_that_a_broker_lacks_are_refused() -> None:
    """Without the filter all groups would be listed, and a script might delete them."""

    async def main(groups: Groups, admin: Admin) -> None:
        groups.add("g", 1)
        with pytest.raises(UnsupportedVersion, match=r"2\.6"):
            await admin.list_groups(states="Empty")
        with pytest.raises(UnsupportedVersion, match=r"3\.8"):
            await admin.list_groups(types="Consumer")
        assert list(await admin.list_groups(types="classic")) == ["g"]
        with pytest.raises(ConfigError, match="Stable"):
            await admin.list_groups(states="stabel")

    with_groups(main, ListGroupsRequest=3)
