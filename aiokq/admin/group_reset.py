"""Resetting a group's offsets: computing the target of each partition, and committing it.

Source: Kafka's `OffsetsUtils.java`, the rules of `kafka-consumer-groups.sh --reset-offsets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

from aiokq.admin.deadline import Deadline
from aiokq.admin.group_offsets import (
    alter_group_offsets,
    group_not_empty,
    list_group_offsets,
)
from aiokq.admin.group_types import GroupOffsetReset, GroupState
from aiokq.admin.groups import describe_groups
from aiokq.admin.log_offsets import log_offsets, partitions_of
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.core import limits
from aiokq.core.arguments import list_argument
from aiokq.core.errors import ConfigError, GroupIdNotFound, KafkaError, NoOffsetForPartition
from aiokq.core.frozen import frozen
from aiokq.core.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "ResetTo",
    "ResetToLike",
    "offsets_of",
    "planned_resets",
    "reset_group_offsets",
    "reset_targets",
]

How = Literal["earliest", "latest", "current", "offset", "timestamp", "duration", "shift"]

MAX_TIME: Final = limits.INT64_MAX
"""Largest timestamp that a request can hold, in ms."""


@frozen
class ResetTo:
    """A target of an offset reset; created by the class methods.

    An offset outside the log is moved to the log's start or end.

    Raises:
        ConfigError: `how` is not a target, or `value` is out of range.
        TypeError: `value` is not an int.
    """

    how: How
    value: int = 0

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise ConfigError(f"{self.how!r} is not one of {', '.join(get_args(How))}")
        low = 0
        if self.how == "shift":
            low = -limits.INT64_MAX
        limits.whole(self.value, f"the {self.how} to reset to", low, MAX_TIME, error=ConfigError)

    @classmethod
    def earliest(cls) -> ResetTo:
        """Reset to the start of the log."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> ResetTo:
        """Reset to the end of the log."""
        return cls("latest")

    @classmethod
    def current(cls) -> ResetTo:
        """Keep the committed offset; if there is none, reset to the end of the log."""
        return cls("current")

    @classmethod
    def offset(cls, offset: int) -> ResetTo:
        """Reset to this offset."""
        return cls("offset", offset)

    @classmethod
    def timestamp(cls, timestamp_ms: int) -> ResetTo:
        """Reset to the first record at or after a time; to the end of the log if there is none."""
        return cls("timestamp", timestamp_ms)

    @classmethod
    def duration(cls, duration_ms: int) -> ResetTo:
        """Reset to the first record at or after the time `duration_ms` ago; see `timestamp`."""
        return cls("duration", duration_ms)

    @classmethod
    def shift(cls, by: int) -> ResetTo:
        """Move the committed offset by `by`; backward if `by` is negative."""
        return cls("shift", by)

    @classmethod
    def of(cls, value: ResetToLike) -> ResetTo:
        """Convert an offset, datetime or name to a target.

        Raises:
            ConfigError: the value cannot be converted.
        """
        if isinstance(value, ResetTo):
            return value
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ConfigError(
                    f"{value} has no time zone: use an aware datetime, such as datetime.now(UTC)"
                )
            return cls.timestamp(round(value.timestamp() * 1000))
        if isinstance(value, int) and not isinstance(value, bool):
            return cls.offset(value)
        if value in ("earliest", "latest", "current"):
            return cls(value)
        raise ConfigError(
            f"{value!r} is not a position to reset to: use an offset, a datetime, 'earliest', "
            "'latest', 'current', or one of ResetTo.timestamp(ms), .duration(ms), .shift(n)"
        )


ResetToLike: TypeAlias = ResetTo | int | datetime | Literal["earliest", "latest", "current"]
"""A target: a ResetTo, an offset, a name, or a timezone-aware datetime.

A datetime selects the first record at or after this time.
"""


async def reset_group_offsets(
    engine: ClusterEngine,
    group_id: str,
    to: ResetToLike | Mapping[TopicPartition, ResetToLike],
    partitions: Iterable[str | TopicPartition] | None,
    *,
    dry_run: bool,
    live: bool,
    timeout: float | None,
) -> Results[TopicPartition, GroupOffsetReset]:
    """Implement `Admin.reset_group_offsets`."""
    engine.bind()
    partitions = _checked(to, partitions)
    deadline = Deadline(engine, timeout)
    if not (live and dry_run):
        await _check_empty(engine, group_id, deadline.left())
    wanted = await reset_targets(engine, group_id, to, partitions, deadline)
    resets = await planned_resets(engine, group_id, wanted, deadline)
    if dry_run:
        return Results(resets)
    if commits := offsets_of(resets):
        altered = await alter_group_offsets(engine, group_id, commits, timeout=deadline.left())
        for tp, error in altered.errors.items():
            resets[tp] = GroupOffsetReset(tp, resets[tp].previous, error=error)
    return Results(resets)


async def reset_targets(
    engine: ClusterEngine,
    group_id: str,
    to: ResetToLike | Mapping[TopicPartition, ResetToLike],
    partitions: Iterable[str | TopicPartition] | None,
    deadline: Deadline,
) -> dict[TopicPartition, ResetTo]:
    """Return the target of each partition that is to be reset.

    Raises:
        ConfigError: `partitions` is given although `to` is a mapping, or a value is not a target.
        UnknownTopicOrPartition: a topic given by name does not exist.
    """
    named = _checked(to, partitions)
    if isinstance(to, Mapping):
        return {TopicPartition.of(tp): ResetTo.of(where) for tp, where in to.items()}
    where = ResetTo.of(to)
    return dict.fromkeys(await _partitions(engine, group_id, named, deadline), where)


def _checked(
    to: ResetToLike | Mapping[TopicPartition, ResetToLike],
    partitions: Iterable[str | TopicPartition] | None,
) -> list[str | TopicPartition] | None:
    """Validate targets and partitions; return the partitions, if given."""
    if not isinstance(to, Mapping):
        ResetTo.of(to)
    elif partitions is not None:
        raise ConfigError("the mapping already names the partitions: omit the argument partitions")
    else:
        for tp, where in to.items():
            TopicPartition.of(tp)
            ResetTo.of(where)
    if partitions is None:
        return None
    given = list_argument(partitions, "partitions", "['orders', ('clicks', 0)]")
    return [each if isinstance(each, str) else TopicPartition.of(each) for each in given]


async def planned_resets(
    engine: ClusterEngine,
    group_id: str,
    wanted: Mapping[TopicPartition, ResetTo],
    deadline: Deadline,
) -> dict[TopicPartition, GroupOffsetReset]:
    """Compute the target offset of each partition from the committed offsets and the logs."""
    if not wanted:
        return {}
    listing = (
        await list_group_offsets(
            engine, {group_id: list(wanted)}, require_stable=True, timeout=deadline.part()
        )
    ).raise_for_errors()[group_id]
    committed = {tp: None if o is None else o.offset for tp, o in listing.offsets.items()}
    plan = _Plan(committed, engine.environment.clock.timestamp_ms())
    earliest, latest, by_time = await log_offsets(
        engine,
        dict.fromkeys(wanted, "earliest"),
        dict.fromkeys(wanted, "latest"),
        {tp: at for tp, to_ in wanted.items() if (at := plan.time(to_)) is not None},
        timeout=deadline.part(),
    )
    return {
        # If the committed offset of a partition could not be read, the partition has an error, even
        # if its target does not depend on the committed offset.
        tp: GroupOffsetReset(tp, error=listing.errors[tp])
        if tp in listing.errors
        else plan.reset(tp, to_, earliest[tp], latest[tp], by_time.get(tp))
        for tp, to_ in wanted.items()
    }


def offsets_of(
    resets: Mapping[TopicPartition, GroupOffsetReset],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset to commit for each partition that did not fail."""
    return {
        tp: OffsetAndMetadata(reset.offset)
        for tp, reset in resets.items()
        if reset.offset is not None
    }


async def _check_empty(engine: ClusterEngine, group_id: str, timeout: float) -> None:
    """Check that the group has no members; a group that does not exist passes.

    Raises:
        GroupNotEmpty: the group has members.
    """
    described = await describe_groups(
        engine, [group_id], include_authorized_operations=False, timeout=timeout
    )
    group = described[group_id]
    if isinstance(group.error, GroupIdNotFound):
        return
    described.raise_for_errors()
    if group.members or group.state not in (GroupState.EMPTY, GroupState.DEAD):
        raise group_not_empty(group_id)


async def _partitions(
    engine: ClusterEngine,
    group_id: str,
    named: list[str | TopicPartition] | None,
    deadline: Deadline,
) -> list[TopicPartition]:
    """Return the partitions in `named`; if it is None, all partitions with a committed offset."""
    if named is None:
        listed = await list_group_offsets(
            engine, group_id, require_stable=False, timeout=deadline.left()
        )
        return list(listed.raise_for_errors()[group_id].offsets)
    topics = [each for each in named if isinstance(each, str)]
    counts = await partitions_of(engine, topics, timeout=deadline.left())
    found: dict[TopicPartition, None] = {}
    for each in named:
        if isinstance(each, str):
            count = counts[each]
            if isinstance(count, KafkaError):
                raise count
            found |= dict.fromkeys(TopicPartition(each, number) for number in range(count))
        else:
            found[TopicPartition.of(each)] = None
    return list(found)


class _Plan:
    """Computes the new offset of each partition from its target, committed offset and log."""

    def __init__(self, committed: Mapping[TopicPartition, int | None], now_ms: int) -> None:
        self._committed = committed
        self._now_ms = now_ms

    def time(self, to: ResetTo) -> int | None:
        """Return the time to look up, in ms since 1970; None if the target is not a time."""
        if to.how == "timestamp":
            return to.value
        return max(0, self._now_ms - to.value) if to.how == "duration" else None

    def reset(
        self,
        tp: TopicPartition,
        to: ResetTo,
        earliest: OffsetAndTimestamp | KafkaError | None,
        latest: OffsetAndTimestamp | KafkaError | None,
        by_time: OffsetAndTimestamp | KafkaError | None,
    ) -> GroupOffsetReset:
        """Return the result with the offset to commit, or with an error."""
        previous = self._committed.get(tp)
        if isinstance(earliest, KafkaError):
            return GroupOffsetReset(tp, previous, error=earliest)
        if isinstance(latest, KafkaError):
            return GroupOffsetReset(tp, previous, error=latest)
        if isinstance(by_time, KafkaError):
            return GroupOffsetReset(tp, previous, error=by_time)
        # Both ends of a log always have an offset; None does not occur.
        first = 0 if earliest is None else earliest.offset
        end = first if latest is None else latest.offset
        match to.how:
            case "earliest":
                wanted = first
            case "latest":
                wanted = end
            case "current":
                wanted = end if previous is None else previous
            case "offset":
                wanted = to.value
            case "shift":
                if previous is None:
                    error = NoOffsetForPartition(
                        "the group has no committed offset to shift", topic_partition=tp
                    )
                    return GroupOffsetReset(tp, error=error)
                wanted = previous + to.value
            case "timestamp" | "duration":
                wanted = end if by_time is None else by_time.offset
        offset = min(max(wanted, first), end)
        return GroupOffsetReset(tp, previous, offset, clipped=offset != wanted)
