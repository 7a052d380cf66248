"""`check` takes time that is linear in the history, whatever the history has many of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeAlias

import pytest

from aiokq.testing import (
    Assign,
    Copy,
    EndTransaction,
    Final,
    Isolation,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Seek,
    Send,
    check,
)

Shape: TypeAlias = "Callable[[int], list[Operation]]"
SMALL, TIMES = 4_000, 8
MOST = 3.0
"""How many times as long an operation may take in a history that is 8 times as long."""
LEVEL = Isolation.READ_COMMITTED
MINUTE = 60.0


def transactions(size: int) -> list[Operation]:
    """Transactions of four records in four partitions, a quarter of them aborted."""
    chance, history = random.Random(1), list[Operation]()
    offsets, now, number = [0] * 4, 0, 0
    while len(history) < size:
        number += 1
        process, txn, records = f"p{number % 8}", f"p{number % 8}/{number}", list[Polled]()
        for each in range(4):
            partition, value = chance.randrange(4), f"{number}.{each}"
            offset = offsets[partition]
            offsets[partition] += 1
            now += 1
            history.append(
                Send(process, "t", value, Outcome.OK, partition, offset, txn, now, now + 1)
            )
            records.append(Polled("t", partition, offset, value))
        commit = number % 4 != 0
        history.append(EndTransaction(process, txn, commit, Outcome.OK, now + 1, now + 2))
        offsets = [offset + 1 for offset in offsets]
        now += 3
        if commit:
            source = f"c/{number}" if number % 2 else None
            polled = tuple(sorted(records, key=lambda r: (r.partition, r.offset)))
            history.append(Poll("c", polled, LEVEL, None, source, now, now + 1))
    for partition, end in enumerate(offsets):
        history.append(Final("t", partition, 0, end, end, now, now + 1))
    return history


def equal_values_that_were_read(size: int) -> list[Operation]:
    """Null values, for example."""
    sends = [Send("p", "t", f"{n}", Outcome.OK, 0, n) for n in range(size)]
    return [*sends, Poll("c", tuple(Polled("t", 0, n, "") for n in range(size)))]


def equal_values_of_a_copier(size: int) -> list[Operation]:
    """Repeated in transactions of which none is known to be committed."""
    copies = [Send("p", "out", "v", Outcome.OK, 0, n, f"x{n}") for n in range(size)]
    read = Poll("c", tuple(Polled("out", 0, n, "v") for n in range(size)))
    return [Copy("in", "out"), *copies, read]


def equal_values_of_unknown_place(size: int) -> list[Operation]:
    """Sends that timed out, and were repeated."""
    sends = [Send("p", "t", "v", Outcome.UNKNOWN) for _ in range(size)]
    return [*sends, Poll("c", tuple(Polled("t", 0, n, "v") for n in range(size)))]


def conflicting_isolation_levels(size: int) -> list[Operation]:
    """Every offset has another value at the other level."""
    return [
        Poll("c", (Polled("t", 0, n // 2, f"{n % 2}"),), list(Isolation)[n % 2])
        for n in range(size)
    ]


def rebalances_and_seeks(size: int) -> list[Operation]:
    """Two consumers that take turns in a partition, with a seek after each turn."""
    history: list[Operation] = []
    for n in range(size // 3):
        process = f"c{n % 2}"
        history += [
            Assign(process, (("t", 0),)),
            Poll(process, (Polled("t", 0, n, f"{n}"),), LEVEL, "g"),
            Seek(process, "t", 0, n + 1),
        ]
    return history


def offsets_of_a_group(size: int) -> list[Operation]:
    """Each committed, and observed."""
    history: list[Operation] = []
    for n in range(size // 2):
        offsets = (Offset("t", 0, n // 100),)
        history += [
            Offsets("c", "g", offsets, Outcome.OK, None, 2 * n, 2 * n + 0.5),
            ObservedOffsets("g", offsets, 2 * n + 1, 2 * n + 1.5),
        ]
    return history


SHAPES: list[Shape] = [
    transactions,
    equal_values_that_were_read,
    equal_values_of_a_copier,
    equal_values_of_unknown_place,
    conflicting_isolation_levels,
    rebalances_and_seeks,
    offsets_of_a_group,
]


def seconds(history: list[Operation]) -> float:
    """Return the CPU time of a check, the best of three."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        check(history)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.torture
@pytest.mark.parametrize("shape", SHAPES)
def test_an_operation_takes_as_long_in_a_long_history_as_in_a_short_one(shape: Shape) -> None:
    """Quadratic in anything, the time of an operation would grow as the history does."""
    short, long = seconds(shape(SMALL)), seconds(shape(SMALL * TIMES))
    assert long < MOST * TIMES * short, f"{long / short:.1f} times as long, {TIMES} times as many"


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_a_million_operations_take_less_than_a_minute() -> None:
    """CPU time, so that what else runs on the machine does not count."""
    history = transactions(1_000_000)
    began = time.process_time()
    report = check(history)
    took = time.process_time() - began
    assert report.ok, report
    assert took < MINUTE, f"{took:.1f} s"
