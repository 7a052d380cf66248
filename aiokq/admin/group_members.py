"""Removes members from groups of the classic and of the consumer protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiokq.admin.coordinator_calls import may_have_been_done, per_item_of
from aiokq.admin.deadline import Deadline
from aiokq.admin.group_types import GroupDescription, GroupType, MemberRemoved
from aiokq.admin.groups import describe_groups
from aiokq.admin.results import Results
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.arguments import str_argument
from aiokq.core.errors import (
    ConfigError,
    ConnectionLost,
    KafkaError,
    RequestTimeout,
    UnknownMemberId,
    UnsupportedVersion,
    error_for,
)
from aiokq.core.frozen import frozen
from aiokq.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokq.wire.leave_group import LeaveGroupRequest, MemberIdentity

__all__ = ["remove_members", "take_out"]

SEVERAL_SINCE: Final = 3
"""First LeaveGroup version with several members and instance ids (KIP-345)."""

LEAVING: Final = -1
"""Member epoch of a leaving member (KIP-848)."""


@frozen
class _Member:
    member_id: str
    group_instance_id: str | None
    speaks: GroupType
    """The protocol that the member uses.

    A group of the consumer protocol may have members that use the classic protocol. These members
    leave by LeaveGroup.
    """


async def remove_members(
    engine: ClusterEngine,
    group_id: str,
    member_ids: Iterable[str] | None,
    *,
    group_instance_ids: Iterable[str],
    reason: str | None,
    timeout: float | None,
) -> Results[str, MemberRemoved]:
    """Implement `Admin.remove_members`."""
    given_ids = None if member_ids is None else list(member_ids)
    given_instances = list(group_instance_ids)
    if given_ids is not None and not given_ids and not given_instances:
        raise ConfigError(
            "no members are named: pass member_ids or group_instance_ids, or None for all members"
        )
    if reason is not None:
        str_argument(reason, "reason")
    deadline = Deadline(engine, timeout)
    described = await describe_groups(
        engine, [group_id], include_authorized_operations=False, timeout=deadline.total
    )
    group = described.raise_for_errors()[group_id]
    wanted, results = _resolve(group, given_ids, given_instances)
    removed = await _remove(engine, group_id, wanted, reason=reason, timeout=deadline.left())
    return Results(results | removed)


async def take_out(
    engine: ClusterEngine, group: GroupDescription, *, reason: str | None, timeout: float
) -> Results[str, MemberRemoved]:
    """Remove the members that `group` lists; members that joined later remain."""
    wanted, _ = _resolve(group, None, [])
    return Results(await _remove(engine, group.group_id, wanted, reason=reason, timeout=timeout))


async def _remove(
    engine: ClusterEngine,
    group_id: str,
    wanted: Mapping[str, _Member],
    *,
    reason: str | None,
    timeout: float,
) -> dict[str, MemberRemoved]:
    unanswered: set[str] = set()

    async def ask(
        node: int, asked: Mapping[str, _Member], remaining: float
    ) -> dict[str, MemberRemoved | KafkaError]:
        try:
            answers = await _leave(engine, node, group_id, asked, reason, remaining)
        except (ConnectionLost, RequestTimeout) as error:
            if may_have_been_done(error):
                unanswered.update(asked)
            raise
        outcomes: dict[str, MemberRemoved | KafkaError] = {}
        for key, error_or_none in answers.items():
            member = asked[key]
            # An earlier attempt whose response was lost may have removed the member.
            gone = isinstance(error_or_none, UnknownMemberId) and key in unanswered
            if error_or_none is None or gone:
                outcomes[key] = MemberRemoved(member.member_id, member.group_instance_id)
            else:
                outcomes[key] = error_or_none
        return outcomes

    outcomes = await per_item_of(
        engine,
        group_id,
        wanted,
        ask,
        api="LeaveGroup",
        timeout=timeout,
    )
    removed: dict[str, MemberRemoved] = {}
    for key, outcome in outcomes.items():
        member = wanted[key]
        if isinstance(outcome, KafkaError):
            outcome = MemberRemoved(member.member_id, member.group_instance_id, outcome)
        removed[key] = outcome
    return removed


def _resolve(
    group: GroupDescription, member_ids: list[str] | None, instance_ids: list[str]
) -> tuple[dict[str, _Member], dict[str, MemberRemoved]]:
    """Return the members to remove, and results for unknown ids.

    Args:
        member_ids: None for all members.
    """
    if member_ids is None:
        member_ids = [member.member_id for member in group.members]
    by_id = {member.member_id: member for member in group.members}
    by_instance = {m.group_instance_id: m for m in group.members if m.group_instance_id}
    wanted: dict[str, _Member] = {}
    unknown: dict[str, MemberRemoved] = {}
    for key, found, absent in (
        *((i, by_id.get(i), MemberRemoved(i)) for i in member_ids),
        *((i, by_instance.get(i), MemberRemoved("", i)) for i in instance_ids),
    ):
        if found is None:
            error = UnknownMemberId(f"group {group.group_id!r} has no member {key!r}")
            unknown[key] = MemberRemoved(absent.member_id, absent.group_instance_id, error)
        else:
            speaks = group.type if found.speaks is None else found.speaks
            wanted[key] = _Member(found.member_id, found.group_instance_id, speaks)
    return wanted, unknown


async def _leave(
    engine: ClusterEngine,
    node: int,
    group_id: str,
    members: Mapping[str, _Member],
    reason: str | None,
    timeout: float,
) -> dict[str, KafkaError | None]:
    modern = {key: m for key, m in members.items() if m.speaks is GroupType.CONSUMER}
    classic = {key: m for key, m in members.items() if key not in modern}
    answers: dict[str, KafkaError | None] = {}
    if classic:
        answers |= await _leave_classic(engine, node, group_id, classic, reason, timeout)
    if modern:
        answers |= await _leave_modern(engine, node, group_id, modern, timeout)
    return answers


async def _leave_classic(
    engine: ClusterEngine,
    node: int,
    group_id: str,
    members: Mapping[str, _Member],
    reason: str | None,
    timeout: float,
) -> dict[str, KafkaError | None]:
    def make(version: int) -> LeaveGroupRequest:
        if version < SEVERAL_SINCE:
            raise UnsupportedVersion(
                "the broker is older than 2.4: it cannot remove members on request",
                api="LeaveGroup",
            )
        return LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    reason=reason,
                )
                for member in members.values()
            ],
        )

    response = await engine.router.request(make, LeaveGroupRequest, node, timeout=timeout)
    if response.error_code:
        return {key: error_for(response.error_code, api="LeaveGroup") for key in members}
    codes = {answer.member_id: answer.error_code for answer in response.members}
    errors: dict[str, KafkaError | None] = {}
    for key, member in members.items():
        code = codes.get(member.member_id, UnknownMemberId.code)
        errors[key] = error_for(code, api="LeaveGroup") if code else None
    return errors


async def _leave_modern(
    engine: ClusterEngine,
    node: int,
    group_id: str,
    members: Mapping[str, _Member],
    timeout: float,
) -> dict[str, KafkaError | None]:
    """Send leave heartbeats of the consumer protocol; a heartbeat has no field for a reason."""

    async def leave(member: _Member) -> KafkaError | None:
        response = await engine.request(
            ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member.member_id,
                member_epoch=LEAVING,
                instance_id=member.group_instance_id,
            ),
            node=node,
            timeout=timeout,
        )
        if response.error_code:
            return error_for(
                response.error_code, response.error_message, api="ConsumerGroupHeartbeat"
            )
        return None

    answers = await concurrently(
        engine.supervisor, (leave(member) for member in members.values()), name="remove members"
    )
    return dict(zip(members, answers, strict=True))
