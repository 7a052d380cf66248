"""Planning: a pure function from ranges to tasks."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from aiokq.spark.planning import OffsetRange, pack, plan, split


def part(partition: int, start: int, stop: int, leader: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, start, stop, None, leader)


def spans(tasks: list[list[OffsetRange]]) -> list[list[tuple[int, int, int]]]:
    return [[(r.partition, r.start, r.stop) for r in task] for task in tasks]


def test_a_small_batch_is_one_task_however_many_partitions() -> None:
    """A task costs 27 ms: 64 tasks for 300 rows would cost 1.7 s."""
    tasks = plan([part(n, 0, 5) for n in range(64)], max_tasks=8)

    assert len(tasks) == 1
    assert len(tasks[0]) == 64


def test_a_large_batch_has_as_many_tasks_as_there_are_slots() -> None:
    """The contents of 64 partitions are distributed evenly, and not over more tasks than slots."""
    tasks = plan([part(n, 0, 100_000) for n in range(64)], max_tasks=2)

    assert [sum(r.size for r in task) for task in tasks] == [3_200_000, 3_200_000]


def test_ranges_without_offsets_are_left_out() -> None:
    """An empty topic needs no task."""
    assert plan([part(0, 5, 5), part(1, 7, 3)], max_tasks=4) == []


def test_min_partitions_divides_the_large_ranges_as_the_jvm_connector_does() -> None:
    """The example of the connector's own test: small ranges stay whole, and do not count."""
    parts = split([part(0, 0, 5), part(1, 0, 5), part(2, 0, 90)], min_partitions=6)

    assert spans([parts]) == [
        [(0, 0, 5), (1, 0, 5), (2, 0, 22), (2, 22, 44), (2, 44, 67), (2, 67, 90)]
    ]


def test_min_partitions_gives_that_many_tasks() -> None:
    """The user asked for parallelism, which packing must not reduce."""
    tasks = plan([part(0, 0, 1000)], max_tasks=2, min_partitions=5)

    assert spans(tasks) == [[(0, n * 200, n * 200 + 200)] for n in range(5)]


def test_fewer_min_partitions_than_ranges_divide_nothing() -> None:
    """The ranges are packed as usual."""
    parts = split([part(n, 0, 100) for n in range(4)], min_partitions=2)

    assert len(parts) == 4


def test_max_records_per_partition_holds_for_tasks() -> None:
    """It bounds the memory of a task, so packing must not exceed it."""
    tasks = plan(
        [part(0, 0, 250), part(1, 0, 40), part(2, 0, 40)],
        max_tasks=1,
        max_records_per_partition=100,
    )

    assert max(sum(r.size for r in task) for task in tasks) <= 100
    assert sum(r.size for task in tasks for r in task) == 330


def test_equally_full_tasks_take_ranges_of_a_leader_they_know() -> None:
    """Each leader is then read by fewer workers."""
    ranges = [part(n, 0, 10, leader=n % 2) for n in range(4)]

    tasks = pack(ranges, 2)

    assert [{r.leader for r in task} for task in tasks] == [{0}, {1}]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500_000)), max_size=30),
    st.integers(1, 9),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1000, 400_000)),
    st.randoms(use_true_random=False),
)
def test_each_offset_is_in_one_task_and_the_plan_repeats(
    sizes: list[tuple[int, int]],
    max_tasks: int,
    min_partitions: int | None,
    max_records: int | None,
    order: random.Random,
) -> None:
    """A batch that is run again after a crash must be split in the same way."""
    ranges = [part(n, start, start + size) for n, (start, size) in enumerate(sizes)]

    def planned() -> list[list[OffsetRange]]:
        order.shuffle(ranges)
        return plan(
            ranges,
            max_tasks=max_tasks,
            min_partitions=min_partitions,
            max_records_per_partition=max_records,
        )

    tasks = planned()

    assert tasks == planned()
    assert all(tasks)
    pieces = sorted((r.partition, r.start, r.stop) for task in tasks for r in task)
    joined: dict[int, tuple[int, int]] = {}
    for partition, start, stop in pieces:
        before = joined.get(partition)
        assert before is None or before[1] == start
        joined[partition] = (before[0] if before else start, stop)
    assert joined == {n: (s, s + size) for n, (s, size) in enumerate(sizes) if size}
