"""Rewinding a group while its members are at work (docs/adr/0007-rewind.md).

Its members are taken out of the group, the new offsets are committed while it is empty, and the
members, who learn of it with their next heartbeat, join again and go on from there. A coordinator
takes no commit of a member that is out, so no late one can move an offset past records that are to
be read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from aiokq.admin.deadline import Deadline
from aiokq.admin.group_members import take_out
from aiokq.admin.group_offsets import alter_group_offsets
from aiokq.admin.group_reset import ResetToLike, offsets_of, planned_resets, reset_targets
from aiokq.admin.group_types import GroupDescription, GroupOffsetReset, GroupType
from aiokq.admin.groups import describe_groups
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import (
    FencedInstanceId,
    ForeignMembers,
    GroupIdNotFound,
    GroupNotEmpty,
    RequestTimeout,
    UnknownMemberId,
)
from aiokq.core.types import OWN_MEMBER_PREFIX, TopicPartition

__all__ = ["rewind_group"]

logger = logging.getLogger("aiokq.admin")

REASON: Final = "the group is rewound"
GONE: Final = (UnknownMemberId, FencedInstanceId, GroupIdNotFound)
"""Since it was described the member went, or came back as another; the commit will tell."""


async def rewind_group(
    engine: ClusterEngine,
    group_id: str,
    to: ResetToLike | Mapping[TopicPartition, ResetToLike],
    partitions: Iterable[str | TopicPartition] | None,
    *,
    timeout: float | None,
) -> Results[TopicPartition, GroupOffsetReset]:
    """See `Admin.rewind_group`."""
    engine.bind()
    deadline = Deadline(engine, timeout)
    wanted = await reset_targets(engine, group_id, to, partitions, deadline)
    resets = await planned_resets(engine, group_id, wanted, deadline)
    commits = offsets_of(resets)
    backoff = engine.new_backoff()
    while commits:
        await _empty(engine, group_id, deadline)
        altered = await alter_group_offsets(engine, group_id, commits, timeout=deadline.left())
        back = [tp for tp, error in altered.errors.items() if isinstance(error, GroupNotEmpty)]
        for tp, error in altered.errors.items():
            if tp not in back:
                resets[tp] = GroupOffsetReset(tp, resets[tp].previous, error=error)
        commits = {tp: commits[tp] for tp in back}
        if commits:
            # A member was quicker: it goes on from the old offsets until it is out again.
            if deadline.left() <= 0:
                raise RequestTimeout(
                    f"group {group_id!r} was not empty at any time within "
                    f"{deadline.total:.3g} s: its members join again at once",
                    api="OffsetCommit",
                )
            await asyncio.sleep(min(backoff.next(), deadline.left()))
    logger.info("group rewound: group=%s partitions=%d", group_id, len(resets))
    return Results(resets)


async def _empty(engine: ClusterEngine, group_id: str, deadline: Deadline) -> None:
    """Take all members out.

    Raises:
        ForeignMembers: of the consumer protocol, some that are not aiokq's.
        BrokerError: one could not be taken out.
    """
    described = await describe_groups(
        engine, [group_id], include_authorized_operations=False, timeout=deadline.left()
    )
    group = described[group_id]
    if isinstance(group.error, GroupIdNotFound):
        return
    described.raise_for_errors()
    if not group.members:
        return
    _check_own(group)
    removed = await take_out(engine, group, reason=REASON, timeout=deadline.left())
    for error in removed.errors.values():
        if not isinstance(error, GONE):
            raise error


def _check_own(group: GroupDescription) -> None:
    """Members of the classic protocol join again whoever made them, as the protocol says."""
    if group.type is not GroupType.CONSUMER:
        return
    foreign = [
        member.member_id
        for member in group.members
        if member.speaks is not GroupType.CLASSIC
        and not member.member_id.startswith(OWN_MEMBER_PREFIX)
    ]
    if foreign:
        raise ForeignMembers(group.group_id, foreign)
