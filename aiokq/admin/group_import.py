"""Importing committed offsets from another system. `zookeeper.py` reads offsets of ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aiokq.admin.deadline import Deadline
from aiokq.admin.group_offsets import alter_group_offsets, check_offset, list_group_offsets
from aiokq.admin.log_offsets import log_offsets
from aiokq.admin.results import Results
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.arguments import mapping_argument, str_argument
from aiokq.core.errors import KafkaError, OffsetOutOfRange
from aiokq.core.frozen import frozen
from aiokq.core.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = ["GroupOffsetImported", "import_group_offsets"]

GroupPartition = tuple[str, TopicPartition]


@frozen
class GroupOffsetImported:
    """The result for one partition of one group.

    Attributes:
        given: the offset to import.
        previous: the offset committed before; None if there was none.
        offset: the committed offset after the call; with dry_run, the offset that would be
            committed.
        kept: whether the previous offset was kept.
        clipped: whether the given offset was outside the log and was moved to the log's start or
            end.
    """

    group_id: str
    topic_partition: TopicPartition
    given: int
    previous: int | None = None
    offset: int | None = None
    kept: bool = False
    clipped: bool = False
    error: KafkaError | None = None


async def import_group_offsets(
    engine: ClusterEngine,
    groups: Mapping[str, Mapping[TopicPartition, int]],
    *,
    overwrite: bool,
    clip: bool,
    dry_run: bool,
    timeout: float | None,
) -> Results[GroupPartition, GroupOffsetImported]:
    """Implement `Admin.import_group_offsets`."""
    engine.bind()
    wanted: dict[GroupPartition, int] = {}
    mapping_argument(groups, "groups", "{'billing': {('orders', 0): 1000}}")
    for group_id, offsets in groups.items():
        str_argument(group_id, "groups")
        mapping_argument(offsets, f"groups: offsets of {group_id!r}", "{('orders', 0): 1000}")
        for tp, offset in offsets.items():
            check_offset(offset, f"{group_id}: {tp}")
            wanted[group_id, TopicPartition.of(tp)] = offset
    deadline = Deadline(engine, timeout)
    partitions = dict.fromkeys(tp for _, tp in wanted)
    first, end = await log_offsets(
        engine,
        dict.fromkeys(partitions, "earliest"),
        dict.fromkeys(partitions, "latest"),
        timeout=deadline.part(),
    )
    committed = await list_group_offsets(
        engine,
        {g: list(offsets) for g, offsets in groups.items()},
        require_stable=True,
        timeout=deadline.part(),
    )
    results: dict[GroupPartition, GroupOffsetImported] = {}
    for (group_id, tp), given in wanted.items():
        listing = committed[group_id]
        held = listing.offsets.get(tp)
        result = GroupOffsetImported(group_id, tp, given, None if held is None else held.offset)
        refused = listing.error or listing.errors.get(tp)
        if refused is not None:
            result = replace(result, error=refused)
        elif held is not None and not overwrite:
            result = replace(result, offset=held.offset, kept=True)
        else:
            result = _placed(result, first[tp], end[tp], clip=clip)
        results[group_id, tp] = result
    if not dry_run:
        await _commit(engine, results, deadline)
    return Results(results)


def _placed(
    result: GroupOffsetImported,
    first: OffsetAndTimestamp | KafkaError | None,
    end: OffsetAndTimestamp | KafkaError | None,
    *,
    clip: bool,
) -> GroupOffsetImported:
    """Return the result with the offset to commit, or with the error that prevents the import."""
    if isinstance(first, KafkaError):
        return replace(result, error=first)
    if isinstance(end, KafkaError):
        return replace(result, error=end)
    lowest = 0 if first is None else first.offset
    highest = lowest if end is None else end.offset
    offset = min(max(result.given, lowest), highest)
    if offset == result.given:
        return replace(result, offset=offset)
    if clip:
        return replace(result, offset=offset, clipped=True)
    # If a committed offset is outside the log, a consumer applies auto.offset.reset silently.
    return replace(
        result,
        error=OffsetOutOfRange(
            f"offset {result.given} is outside the log, which has {lowest} to {highest}",
            topic_partition=result.topic_partition,
        ),
    )


async def _commit(
    engine: ClusterEngine,
    results: dict[GroupPartition, GroupOffsetImported],
    deadline: Deadline,
) -> None:
    commits: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for (group_id, tp), result in results.items():
        if result.offset is not None and not result.kept:
            commits.setdefault(group_id, {})[tp] = OffsetAndMetadata(result.offset)
    answers = await concurrently(
        engine.supervisor,
        (
            alter_group_offsets(engine, group_id, offsets, timeout=deadline.left())
            for group_id, offsets in commits.items()
        ),
        name="import offsets",
    )
    for (group_id, offsets), answer in zip(commits.items(), answers, strict=True):
        for tp in offsets:
            error = answer if isinstance(answer, KafkaError) else answer[tp].error
            if error is not None:
                item = (group_id, tp)
                results[item] = replace(results[item], offset=None, clipped=False, error=error)
