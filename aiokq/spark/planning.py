"""Distribution of offset ranges over tasks.

The result depends only on the ranges and the options. Small ranges share a task, because each task
of a Python source costs Spark about 27 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from aiokq import TopicPartition

__all__ = ["ROWS_PER_TASK", "OffsetRange", "pack", "plan", "split"]

ROWS_PER_TASK: Final = 200_000
"""Number of rows per task, unless `max_tasks` or an option requires another number of tasks."""


@dataclass(frozen=True)
class OffsetRange:
    """A range of offsets of a partition.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        start: first offset.
        stop: offset after the last offset.
        topic_id: id of the topic for which the range was planned, if the brokers have ids.
        leader: node id of the partition's leader when the range was planned; -1 if there was none.
    """

    topic: str
    partition: int
    start: int
    stop: int
    topic_id: UUID | None = None
    leader: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Number of offsets; the log may have fewer records."""
        return self.stop - self.start


def plan(
    ranges: Iterable[OffsetRange],
    *,
    max_tasks: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[list[OffsetRange]]:
    """Return the tasks, each a list of ranges in order; empty ranges are left out.

    Args:
        max_tasks: maximum number of tasks; exceeded only if the other two arguments require more.
        min_partitions: Spark's option; large ranges are split to get about this many tasks.
        max_records_per_partition: maximum number of offsets in a task.
    """
    parts = split(
        ranges,
        min_partitions=min_partitions,
        max_records_per_partition=max_records_per_partition,
    )
    rows = sum(part.size for part in parts)
    tasks = max(min_partitions or 1, min(max_tasks, math.ceil(rows / ROWS_PER_TASK)), 1)
    return pack(parts, tasks, max_records=max_records_per_partition)


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Split large ranges in the same way as the JVM connector, and leave out empty ranges.

    Source: Spark `KafkaOffsetRangeCalculator`.
    """
    parts = sorted(
        (part for part in ranges if part.size > 0),
        key=lambda part: (part.topic, part.partition, part.start),
    )
    if max_records_per_partition is not None:
        parts = [
            piece
            for part in parts
            for piece in _divided(part, math.ceil(part.size / max_records_per_partition))
        ]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(part.size for part in parts)
    small = [part for part in parts if _share(part.size, total, min_partitions) == 1]
    # Small ranges stay whole. Before the large ranges are split, the sizes of the small ranges are
    # subtracted from the total size, and their number from min_partitions.
    large_total = total - sum(part.size for part in small)
    wanted = max(min_partitions - len(small), 1)
    whole = {(part.topic, part.partition, part.start) for part in small}
    return [
        piece
        for part in parts
        for piece in _divided(
            part,
            1
            if (part.topic, part.partition, part.start) in whole
            else _share(part.size, large_total, wanted),
        )
    ]


def _share(size: int, total: int, tasks: int) -> int:
    # Rounds half up, as Java does.
    return max(math.floor(size / total * tasks + 0.5), 1)


def _divided(part: OffsetRange, count: int) -> list[OffsetRange]:
    pieces: list[OffsetRange] = []
    start, left = part.start, part.size
    for number in range(count):
        size = left // (count - number)
        left -= size
        if size:
            pieces.append(replace(part, start=start, stop=start + size))
        start += size
    return pieces


def pack(
    ranges: Sequence[OffsetRange], tasks: int, *, max_records: int | None = None
) -> list[list[OffsetRange]]:
    """Assign each range, largest first, to the task with the fewest offsets.

    Among tasks with equally many offsets, a task that already reads from the range's leader is
    preferred.

    Args:
        tasks: number of tasks; exceeded only to keep ``max_records``.
        max_records: maximum number of offsets in a task.
    """
    loads: list[int] = [0] * min(tasks, len(ranges))
    leaders: list[set[int]] = [set() for _ in loads]
    packed: list[list[OffsetRange]] = [[] for _ in loads]
    largest_first = sorted(
        ranges, key=lambda part: (-part.size, part.topic, part.partition, part.start)
    )
    for part in largest_first:
        number = min(
            range(len(loads)),
            key=lambda at: (loads[at], part.leader not in leaders[at], at),
        )
        if max_records is not None and packed[number] and loads[number] + part.size > max_records:
            number = len(loads)
            loads.append(0)
            leaders.append(set())
            packed.append([])
        loads[number] += part.size
        leaders[number].add(part.leader)
        packed[number].append(part)
    for task in packed:
        task.sort(key=lambda part: (part.topic, part.partition, part.start))
    return [task for task in packed if task]
