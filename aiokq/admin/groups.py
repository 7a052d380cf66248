"""Describing and deleting groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiokq.admin.coordinator_calls import may_have_been_done, per_group
from aiokq.admin.group_types import (
    GroupDeleted,
    GroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
)
from aiokq.admin.results import Results, results_of
from aiokq.assign.protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import (
    ConnectionLost,
    GroupIdNotFound,
    KafkaError,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
    error_for,
)
from aiokq.core.types import TopicPartition
from aiokq.wire.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
)
from aiokq.wire.delete_groups import DeleteGroupsRequest
from aiokq.wire.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)

__all__ = ["delete_groups", "describe_groups"]

OPERATIONS_SINCE: Final = 3
"""First DescribeGroups version with authorized operations."""

OPERATIONS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}
"""For each bit number, Kafka's name of the `AclOperation` (KIP-430)."""

NOT_ASKED: Final = -(2**31)


async def describe_groups(
    engine: ClusterEngine,
    groups: Iterable[str],
    *,
    include_authorized_operations: bool,
    timeout: float | None,
) -> Results[str, GroupDescription]:
    """Implement `Admin.describe_groups`."""
    with_operations = include_authorized_operations

    async def ask(
        node: int, asked: Mapping[str, bool], remaining: float
    ) -> dict[str, GroupDescription | KafkaError]:
        deadline = engine.now() + remaining
        found: dict[str, GroupDescription | KafkaError] = {}
        # The first request returns GROUP_ID_NOT_FOUND for a classic group, so the second request
        # asks for the groups that were not found. Java sends the two requests in the same order. A
        # group that is converted in between may be missed; this is rare.
        try:
            found = await _describe_modern(engine, node, asked, with_operations, remaining)
        except UnsupportedVersion:
            pass  # the broker is older than 3.8, or lacks versions 0 and 1 of this request
        left = [g for g in asked if isinstance(found.get(g, GroupIdNotFound()), GroupIdNotFound)]
        if left:
            classic = _describe_classic(engine, node, left, with_operations, deadline)
            found |= await classic
        return found

    outcomes = await per_group(
        engine, dict.fromkeys(groups, True), ask, api="DescribeGroups", timeout=timeout
    )
    return results_of(outcomes, lambda group_id, error: GroupDescription(group_id, error=error))


async def _describe_modern(
    engine: ClusterEngine,
    node: int,
    groups: Iterable[str],
    with_operations: bool,
    timeout: float,
) -> dict[str, GroupDescription | KafkaError]:
    response = await engine.request(
        ConsumerGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=with_operations
        ),
        node=node,
        timeout=timeout,
    )
    return {
        group.group_id: error_for(
            group.error_code, group.error_message, api="ConsumerGroupDescribe"
        )
        if group.error_code
        else _modern(engine, node, group)
        for group in response.groups
    }


def _modern(
    engine: ClusterEngine, node: int, group: ConsumerGroupDescribedGroup
) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        PROTOCOL_TYPE,
        GroupState.of(group.group_state),
        group.assignor_name,
        engine.metadata.brokers.get(node),
        _sorted(_modern_member(member) for member in group.members),
        group.group_epoch,
        group.assignment_epoch,
        _operations(group.authorized_operations),
    )


def _modern_member(member: ConsumerGroupDescribeMember) -> MemberDescription:
    types = {0: GroupType.CLASSIC, 1: GroupType.CONSUMER}
    return MemberDescription(
        member.member_id,
        member.client_id,
        _host(member.client_host),
        member.instance_id,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        member.rack_id,
        member.member_epoch,
        types.get(member.member_type),
    )


def _partitions(assignment: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


async def _describe_classic(
    engine: ClusterEngine,
    node: int,
    groups: list[str],
    with_operations: bool,
    deadline: float,
) -> dict[str, GroupDescription | KafkaError]:
    def make(version: int) -> DescribeGroupsRequest:
        if with_operations and version < OPERATIONS_SINCE:
            raise UnsupportedVersion(
                "the broker is older than 2.3: it does not return authorized operations",
                api="DescribeGroups",
            )
        return DescribeGroupsRequest(groups=groups, include_authorized_operations=with_operations)

    response = await engine.router.request(
        make, DescribeGroupsRequest, node, timeout=max(0.0, deadline - engine.now())
    )
    return {group.group_id: _classic(engine, node, group) for group in response.groups}


def _classic(
    engine: ClusterEngine, node: int, group: DescribedGroup
) -> GroupDescription | KafkaError:
    if group.error_code:
        return error_for(group.error_code, group.error_message, api="DescribeGroups")
    state = GroupState.of(group.group_state)
    if state is GroupState.DEAD:  # brokers before 4.0 describe a missing group as dead
        return GroupIdNotFound(f"group {group.group_id!r} not found", api="DescribeGroups")
    return GroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        group.protocol_type,
        state,
        group.protocol_data,
        engine.metadata.brokers.get(node),
        _sorted(_classic_member(member, group.protocol_type) for member in group.members),
        authorized_operations=_operations(group.authorized_operations),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    rack = None
    if protocol_type == PROTOCOL_TYPE:
        # Clients write these bytes for each other. Unreadable bytes are ignored, so that the group
        # is still described; Java's call fails. While a group rebalances, the coordinator returns
        # empty bytes.
        try:
            if metadata:
                subscription = decode_subscription(metadata)
                topics, rack = tuple(sorted(subscription.topics)), subscription.rack
            partitions = tuple(sorted(decode_assignment(assignment).partitions))
        except ProtocolError:
            pass
    return MemberDescription(
        member.member_id,
        member.client_id,
        _host(member.client_host),
        member.group_instance_id,
        partitions,
        subscription=topics,
        rack=rack,
        speaks=GroupType.CLASSIC,
        metadata=metadata,
        assignment_data=assignment,
    )


def _host(text: str) -> str:
    """Strip the slash of Java's `InetAddress` (`/10.0.0.1`)."""
    return text.removeprefix("/")


def _sorted(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def _operations(bits: int) -> frozenset[str] | None:
    if bits == NOT_ASKED:
        return None
    return frozenset(name for bit, name in OPERATIONS.items() if bits & (1 << bit))


async def delete_groups(
    engine: ClusterEngine, groups: Iterable[str], *, timeout: float | None
) -> Results[str, GroupDeleted]:
    """Implement `Admin.delete_groups`."""
    unanswered: set[str] = set()

    async def ask(
        node: int, asked: Mapping[str, bool], remaining: float
    ) -> dict[str, GroupDeleted | KafkaError]:
        try:
            response = await engine.request(
                DeleteGroupsRequest(groups_names=list(asked)), node=node, timeout=remaining
            )
        except (ConnectionLost, RequestTimeout) as error:
            if may_have_been_done(error):
                unanswered.update(asked)
            raise
        outcomes: dict[str, GroupDeleted | KafkaError] = {}
        for result in response.results:
            code = result.error_code
            # GROUP_ID_NOT_FOUND is a success if the response to an earlier attempt was lost.
            if not code or (code == GroupIdNotFound.code and result.group_id in unanswered):
                outcomes[result.group_id] = GroupDeleted(result.group_id)
            else:
                outcomes[result.group_id] = error_for(code, api="DeleteGroups")
        return outcomes

    outcomes = await per_group(
        engine, dict.fromkeys(groups, True), ask, api="DeleteGroups", timeout=timeout
    )
    return results_of(outcomes, GroupDeleted)
