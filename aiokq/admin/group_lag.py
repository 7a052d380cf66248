"""Lag of groups, computed from their members, committed offsets and the ends of logs."""

from __future__ import annotations

from collections.abc import Iterable

from aiokq.admin.deadline import Deadline
from aiokq.admin.group_offsets import list_group_offsets
from aiokq.admin.group_types import (
    GroupDescription,
    GroupLag,
    GroupOffsets,
    PartitionLag,
)
from aiokq.admin.groups import describe_groups
from aiokq.admin.log_offsets import log_offsets
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata import frozen_map
from aiokq.cluster.offsets import IsolationLevel, isolation_level_code
from aiokq.core.errors import GroupIdNotFound, KafkaError
from aiokq.core.types import OffsetAndTimestamp, TopicPartition

__all__ = ["group_lag"]


async def group_lag(
    engine: ClusterEngine,
    groups: Iterable[str],
    *,
    isolation_level: IsolationLevel,
    timeout: float | None,
) -> Results[str, GroupLag]:
    """Implement `Admin.group_lag`."""
    engine.bind()
    isolation_level_code(isolation_level)  # raises for an invalid value before any request
    deadline = Deadline(engine, timeout)
    described = await describe_groups(
        engine, groups, include_authorized_operations=False, timeout=deadline.part()
    )
    there = [group_id for group_id, group in described.items() if group.error is None]
    committed = await list_group_offsets(
        engine, there, require_stable=False, timeout=deadline.part()
    )
    wanted = {
        tp: None
        for group_id in there
        for tp in (*committed[group_id].offsets, *described[group_id].owners)
    }
    (ends,) = await log_offsets(
        engine,
        dict.fromkeys(wanted, "latest"),
        isolation_level=isolation_level,
        timeout=deadline.left(),
    )
    return Results(
        {
            group_id: GroupLag(group_id, group, error=group.error)
            if group_id not in committed
            else _lag(group, committed[group_id], ends)
            for group_id, group in described.items()
        }
    )


def _lag(
    group: GroupDescription,
    committed: GroupOffsets,
    ends: dict[TopicPartition, OffsetAndTimestamp | KafkaError | None],
) -> GroupLag:
    if committed.error is not None and not isinstance(committed.error, GroupIdNotFound):
        return GroupLag(group.group_id, group, error=committed.error)
    owners = group.owners
    partitions = {}
    for tp in sorted({*committed.offsets, *owners}):
        offset, end = committed.offsets.get(tp), ends[tp]
        error = committed.errors.get(tp) or (end if isinstance(end, KafkaError) else None)
        log_end = end.offset if isinstance(end, OffsetAndTimestamp) else None
        lag = None if offset is None or log_end is None else log_end - offset.offset
        partitions[tp] = PartitionLag(tp, offset, log_end, lag, owners.get(tp), error)
    return GroupLag(group.group_id, group, frozen_map(partitions))
