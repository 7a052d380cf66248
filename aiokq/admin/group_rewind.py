"""Rewinding a group while its members consume (docs/adr/0007-rewind.md).

The members are removed and the new offsets are committed. The members notice their removal with
their next heartbeat, rejoin, and resume from the new offsets. The coordinator refuses commits of
removed members, so no late commit can move an offset past records that are to be read again. A
`PlaceholderMember` waits in a group of the classic protocol for a member to rejoin, because an
empty group would accept commits of clients that are not members.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from aiokq.admin.deadline import Deadline
from aiokq.admin.group_members import take_out
from aiokq.admin.group_offsets import (
    alter_group_offsets,
    group_not_empty,
    list_group_offsets,
)
from aiokq.admin.group_reset import ResetToLike, offsets_of, planned_resets, reset_targets
from aiokq.admin.group_types import GroupDescription, GroupOffsetReset, GroupState, GroupType
from aiokq.admin.groups import describe_groups
from aiokq.admin.placeholder_member import REASON, PlaceholderMember, PlaceholderRemoved
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import (
    CommitFailed,
    FencedInstanceId,
    ForeignMembers,
    GroupIdNotFound,
    GroupNotEmpty,
    KafkaError,
    RequestTimeout,
    UnknownMemberId,
)
from aiokq.core.types import OWN_MEMBER_PREFIX, OffsetAndMetadata, TopicPartition

__all__ = ["rewind_group"]

logger = logging.getLogger("aiokq.admin")

GONE: Final = (UnknownMemberId, FencedInstanceId, GroupIdNotFound)
"""Errors for members that left or rejoined after they were described.

These errors are ignored, because the following commit fails if members have rejoined.
"""

PATIENCE: Final = 30.0
"""Maximum time in seconds for which the placeholder waits in a group for a member to rejoin.

Members notice their removal with their next heartbeat. The time is ten default heartbeat intervals.
"""


async def rewind_group(
    engine: ClusterEngine,
    group_id: str,
    to: ResetToLike | Mapping[TopicPartition, ResetToLike],
    partitions: Iterable[str | TopicPartition] | None,
    *,
    timeout: float | None,
) -> Results[TopicPartition, GroupOffsetReset]:
    """Implement `Admin.rewind_group`."""
    engine.bind()
    deadline = Deadline(engine, timeout)
    wanted = await reset_targets(engine, group_id, to, partitions, deadline)
    resets = await planned_resets(engine, group_id, wanted, deadline)
    commits = offsets_of(resets)
    backoff = engine.new_backoff()
    while commits:
        failed = await _once(engine, group_id, commits, deadline)
        again = [tp for tp, error in failed.items() if isinstance(error, GroupNotEmpty)]
        for tp, error in failed.items():
            if tp not in again:
                resets[tp] = GroupOffsetReset(tp, resets[tp].previous, error=error)
        commits = {tp: commits[tp] for tp in again}
        if commits:
            # A member rejoined before the commit. It continues from the old offsets until the next
            # attempt removes it.
            if deadline.left() <= 0:
                raise RequestTimeout(
                    f"the members of group {group_id!r} could not be removed within "
                    f"{deadline.total:.3g} s",
                    api="OffsetCommit",
                ) from failed[again[0]]
            await asyncio.sleep(min(backoff.next(), deadline.left()))
    logger.info("group rewound: group=%s partitions=%d", group_id, len(resets))
    return Results(resets)


async def _once(
    engine: ClusterEngine,
    group_id: str,
    commits: Mapping[TopicPartition, OffsetAndMetadata],
    deadline: Deadline,
) -> Mapping[TopicPartition, KafkaError]:
    """Make one attempt; return errors by partition, `GroupNotEmpty` for partitions to be retried.

    Raises:
        ForeignMembers: a group of the consumer protocol has members that are not aiokq's, or that
            use the classic protocol.
        KafkaError: a member cannot be removed, or the placeholder cannot join a classic group.
    """
    described = await describe_groups(
        engine, [group_id], include_authorized_operations=False, timeout=deadline.left()
    )
    group = described[group_id]
    if not isinstance(group.error, GroupIdNotFound):
        described.raise_for_errors()
    if group.members and group.type is GroupType.CLASSIC:
        if group.state is not GroupState.STABLE:
            # Retry later: members that are removed while they join may keep their partitions.
            return dict.fromkeys(commits, group_not_empty(group_id))
        return await _held(engine, group, commits, deadline)
    if group.members:
        await _empty(engine, group, deadline)
    altered = await alter_group_offsets(engine, group_id, commits, timeout=deadline.left())
    return altered.errors


async def _held(
    engine: ClusterEngine,
    group: GroupDescription,
    commits: Mapping[TopicPartition, OffsetAndMetadata],
    deadline: Deadline,
) -> Mapping[TopicPartition, KafkaError]:
    """Commit the offsets as a `PlaceholderMember`, and wait for a member to rejoin the group.

    Returns:
        An error for each partition whose offset was not committed or may have been replaced.
    """
    group_id = group.group_id
    listed = await list_group_offsets(
        engine, group_id, require_stable=False, timeout=deadline.left()
    )
    offsets = listed.raise_for_errors()[group_id].offsets
    topics = {tp.topic for tp in (*offsets, *commits)}
    async with PlaceholderMember(engine, group, topics, deadline) as placeholder:
        try:
            await placeholder.take()
        except PlaceholderRemoved as error:
            again = group_not_empty(group_id)
            again.__cause__ = error
            return dict.fromkeys(commits, again)
        altered = await alter_group_offsets(
            engine, group_id, commits, member=placeholder.member, timeout=deadline.left()
        )
        done = [tp for tp, result in altered.items() if result.error is None]
        if not done:
            return altered.errors
        try:
            if not await placeholder.until_back(min(PATIENCE, deadline.left())):
                if deadline.left() <= 0:
                    return {**altered.errors, **_uncertain(done, deadline)}
                logger.warning(
                    "no member has rejoined since the group was rewound: group=%s members=%d",
                    group_id,
                    len(group.members),
                )
        except PlaceholderRemoved:
            overtaken = await _overtaken(
                engine, group_id, {tp: commits[tp] for tp in done}, deadline
            )
            return {**altered.errors, **overtaken}
    return altered.errors


def _uncertain(
    done: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, KafkaError]:
    """Return a RequestTimeout per partition, because a late commit may overwrite the offset."""
    return {
        tp: RequestTimeout(
            f"the offset is committed, but no member rejoined within {deadline.total:.3g} s: a "
            "late commit may have replaced the offset",
            topic_partition=tp,
            api="OffsetCommit",
        )
        for tp in done
    }


async def _overtaken(
    engine: ClusterEngine,
    group_id: str,
    commits: Mapping[TopicPartition, OffsetAndMetadata],
    deadline: Deadline,
) -> dict[TopicPartition, KafkaError]:
    """Return an error for each partition whose offset another rewind or client has changed."""
    listed = await list_group_offsets(
        engine, {group_id: list(commits)}, require_stable=False, timeout=deadline.left()
    )
    now = listed.raise_for_errors()[group_id].offsets
    errors: dict[TopicPartition, KafkaError] = {}
    for tp, wanted in commits.items():
        found = now.get(tp)
        if found is None or found.offset != wanted.offset:
            at = "none" if found is None else found.offset
            cause = UnknownMemberId(
                "the rewind was removed from the group before a member rejoined: the offset is "
                f"now {at}, not {wanted.offset}",
                topic_partition=tp,
            )
            errors[tp] = CommitFailed({tp: cause})
    return errors


async def _empty(engine: ClusterEngine, group: GroupDescription, deadline: Deadline) -> None:
    """Remove all members of a group of the consumer protocol."""
    _check_own(group)
    removed = await take_out(engine, group, reason=REASON, timeout=deadline.left())
    for error in removed.errors.values():
        if not isinstance(error, GONE):
            raise error


def _check_own(group: GroupDescription) -> None:
    """Raise ForeignMembers if a member is not aiokq's, or uses the classic protocol.

    A group of the consumer protocol may have members that use the classic protocol. If all members
    were removed, the group would be empty, and would accept the commits of these members.
    """
    foreign = [
        member.member_id
        for member in group.members
        if member.speaks is GroupType.CLASSIC or not member.member_id.startswith(OWN_MEMBER_PREFIX)
    ]
    if foreign:
        raise ForeignMembers(group.group_id, foreign)
