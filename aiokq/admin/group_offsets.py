"""Listing, altering and deleting committed offsets; `group_reset.py` computes new offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from aiokq.admin.coordinator_calls import per_group, per_item_of
from aiokq.admin.group_types import GroupOffsetAltered, GroupOffsetDeleted, GroupOffsets
from aiokq.admin.results import Results, results_of
from aiokq.cluster.denials import name_denial
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.group_offsets import (
    NEWEST_WITH_NAMES,
    SEVERAL_GROUPS_SINCE,
    FetchedOffsets,
    commit_errors,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from aiokq.cluster.metadata import frozen_map
from aiokq.core import limits
from aiokq.core.arguments import list_argument, str_argument, str_list_argument
from aiokq.core.errors import (
    ConfigError,
    FencedMemberEpoch,
    GroupNotEmpty,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
    error_for,
)
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.wire.offset_commit import OffsetCommitRequest
from aiokq.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokq.wire.offset_fetch import OffsetFetchRequest

__all__ = [
    "GroupsLike",
    "alter_group_offsets",
    "check_offset",
    "delete_group_offsets",
    "group_not_empty",
    "list_group_offsets",
]

GroupsLike = (
    str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | Iterable[tuple[str, int]] | None]
)
"""A group id, several group ids, or a mapping of each group id to its partitions.

None in the mapping stands for all partitions of the group.
"""

HAS_MEMBERS: Final = (
    UnknownMemberId,
    IllegalGeneration,
    FencedMemberEpoch,
    StaleMemberEpoch,
    RebalanceInProgress,
)
"""Errors with which a coordinator refuses the commit of a non-member if the group has members."""


def group_not_empty(group_id: str) -> GroupNotEmpty:
    """Return the error of an operation that needs a group without members."""
    return GroupNotEmpty(
        f"group {group_id!r} has members, which would continue from their own positions: stop the "
        "members first, or use rewind_group (`aiokq groups rewind`)"
    )


async def list_group_offsets(
    engine: ClusterEngine, groups: GroupsLike, *, require_stable: bool, timeout: float | None
) -> Results[str, GroupOffsets]:
    """Implement `Admin.list_group_offsets`."""
    wanted = _wanted(groups)
    found: dict[str, FetchedOffsets] = defaultdict(FetchedOffsets)

    async def ask(
        node: int, asked: Mapping[str, list[TopicPartition] | None], remaining: float
    ) -> dict[str, FetchedOffsets | KafkaError]:
        deadline = engine.now() + remaining
        left = dict(asked)
        outcomes: dict[str, FetchedOffsets | KafkaError] = {}
        while left:
            portion = left

            def request(
                version: int, left: dict[str, list[TopicPartition] | None] = left
            ) -> OffsetFetchRequest:
                nonlocal portion
                if version < SEVERAL_GROUPS_SINCE:
                    portion = dict([*left.items()][:1])
                return fetch_request(version, portion, require_stable=require_stable)

            response = await engine.router.request(
                request,
                OffsetFetchRequest,
                node,
                timeout=max(0.0, deadline - engine.now()),
                newest=NEWEST_WITH_NAMES,
            )
            answers = fetched_offsets(response, portion)
            found.update(answers)
            for answer in answers.values():
                for error in answer.errors.values():
                    name_denial(engine, error)
            outcomes |= {group_id: _settled(answer) for group_id, answer in answers.items()}
            left = {g: tps for g, tps in left.items() if g not in portion}
        return outcomes

    outcomes = await per_group(engine, wanted, ask, api="OffsetFetch", timeout=timeout)
    results = {}
    for group_id, outcome in outcomes.items():
        answer = found[group_id]
        error = outcome if isinstance(outcome, KafkaError) and not answer.errors else answer.error
        results[group_id] = GroupOffsets(
            group_id,
            frozen_map(sorted(answer.offsets.items())),
            frozen_map(sorted(answer.errors.items())),
            error,
        )
    return Results(results)


def _wanted(groups: GroupsLike) -> dict[str, list[TopicPartition] | None]:
    if isinstance(groups, str):
        return {groups: None}
    if isinstance(groups, Mapping):
        return {
            str_argument(group_id, "group_ids"): None
            if tps is None
            else [
                TopicPartition.of(tp)
                for tp in list_argument(
                    tps, f"group_ids: partitions of {group_id!r}", "[('orders', 0)]"
                )
            ]
            for group_id, tps in groups.items()
        }
    return dict.fromkeys(str_list_argument(groups, "group_ids", "['billing', 'audit']"))


def _settled(answer: FetchedOffsets) -> FetchedOffsets | KafkaError:
    """Return the error of the group, else a retriable error of a partition, else the offsets."""
    if answer.error is not None:
        return answer.error
    # A partition with a pending transactional offset is retried; the error of a deleted topic,
    # although retriable, is final.
    passing = (
        error
        for error in answer.errors.values()
        if error.retriable and not isinstance(error, UnknownTopicOrPartition)
    )
    return next(passing, answer)


def check_offset(offset: int, what: str) -> None:
    """Check that `offset` is a possible offset.

    Raises:
        ConfigError: `offset` is negative or too large.
    """
    limits.offset(offset, f"{what}: offset", error=ConfigError)


async def alter_group_offsets(
    engine: ClusterEngine,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    member: GroupMetadata | None = None,
    timeout: float | None,
) -> Results[TopicPartition, GroupOffsetAltered]:
    """Implement `Admin.alter_group_offsets`.

    Args:
        member: the member to commit as; None commits without a member id, which only a group
            without members accepts.
    """
    for tp, offset in offsets.items():
        if not isinstance(offset, OffsetAndMetadata):
            raise ConfigError(f"{tp}: {offset!r} is neither an offset nor an OffsetAndMetadata")
        check_offset(offset.offset, str(tp))
        if offset.leader_epoch is not None:
            limits.count(offset.leader_epoch, f"{tp}: leader_epoch", -1, error=ConfigError)

    async def ask(
        node: int, asked: Mapping[TopicPartition, OffsetAndMetadata], remaining: float
    ) -> dict[TopicPartition, GroupOffsetAltered | KafkaError]:
        response = await engine.router.request(
            lambda version: commit_request(group_id, asked, member=member),
            OffsetCommitRequest,
            node,
            timeout=remaining,
            newest=NEWEST_WITH_NAMES,
        )
        outcomes: dict[TopicPartition, GroupOffsetAltered | KafkaError] = {}
        for tp, error in commit_errors(response, asked).items():
            if isinstance(error, HAS_MEMBERS):
                refused = group_not_empty(group_id)
                refused.add_context(topic_partition=tp, api="OffsetCommit")
                refused.__cause__ = error
                outcomes[tp] = refused
            else:
                outcomes[tp] = error or GroupOffsetAltered(tp)
        return outcomes

    outcomes = await per_item_of(
        engine, group_id, offsets, ask, api="OffsetCommit", timeout=timeout
    )
    return results_of(outcomes, GroupOffsetAltered)


async def delete_group_offsets(
    engine: ClusterEngine,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout: float | None,
) -> Results[TopicPartition, GroupOffsetDeleted]:
    """Implement `Admin.delete_group_offsets`."""

    async def ask(
        node: int, asked: Mapping[TopicPartition, bool], remaining: float
    ) -> dict[TopicPartition, GroupOffsetDeleted | KafkaError]:
        topics: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
        for topic, number in asked:
            topics[topic].append(OffsetDeleteRequestPartition(partition_index=number))
        response = await engine.request(
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(name=name, partitions=numbers)
                    for name, numbers in topics.items()
                ],
            ),
            node=node,
            timeout=remaining,
        )
        if response.error_code:
            return {tp: _delete_error(response.error_code, tp) for tp in asked}
        outcomes: dict[TopicPartition, GroupOffsetDeleted | KafkaError] = {}
        for answered in response.topics:
            for partition in answered.partitions:
                tp = TopicPartition(answered.name, partition.partition_index)
                outcomes[tp] = (
                    _delete_error(partition.error_code, tp)
                    if partition.error_code
                    else GroupOffsetDeleted(tp)
                )
        return outcomes

    wanted = dict.fromkeys(partitions, True)
    outcomes = await per_item_of(engine, group_id, wanted, ask, api="OffsetDelete", timeout=timeout)
    return results_of(outcomes, GroupOffsetDeleted)


def _delete_error(code: int, tp: TopicPartition) -> KafkaError:
    return error_for(code, api="OffsetDelete", topic_partition=tp)
