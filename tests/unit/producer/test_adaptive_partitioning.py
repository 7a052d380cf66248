"""The choice of the partition for records without a key."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from aiokq.producer.adaptive_partitioning import UNIFORM, AdaptivePartitioning


class Queue:
    def __init__(self, leader: int, waiting: int) -> None:
        self.leader = leader
        self.waiting = waiting


class Owner:
    def __init__(self, *queues: Queue) -> None:
        self.queues = dict(enumerate(queues))
        self.stalls: dict[int, float] = {}

    def queues_of(self, topic: str) -> Any:
        return self.queues

    def stalled(self, node_id: int) -> float:
        return self.stalls.get(node_id, 0.0)


def drawn(owner: Owner, timeout: float = 0.0) -> Counter[int]:
    spread = AdaptivePartitioning(owner.queues_of, owner.stalled, random.Random(1), timeout)
    return Counter(spread.choose("orders") for _ in range(4_000))


def test_equal_queues_leave_the_choice_to_the_core() -> None:
    """The usual case: nothing waits anywhere."""
    assert drawn(Owner(Queue(1, 0), Queue(2, 0))) == {UNIFORM: 4_000}


def test_the_longer_a_queue_the_less_it_is_given() -> None:
    """KIP-794's example: queues of 0, 3 and 1 get 4, 1 and 3 parts of eight."""
    found = drawn(Owner(Queue(1, 0), Queue(2, 3), Queue(3, 1)))
    assert 1_850 < found[0] < 2_150
    assert 400 < found[1] < 600
    assert 1_350 < found[2] < 1_650


def test_partitions_without_a_leader_get_nothing() -> None:
    """Their records would wait for an election, while other partitions accept records."""
    found = drawn(Owner(Queue(-1, 0), Queue(1, 2), Queue(1, 1)))
    assert set(found) == {1, 2}
    assert drawn(Owner(Queue(-1, 0), Queue(-1, 2))) == {UNIFORM: 4_000}


def test_a_broker_that_takes_nothing_is_left_out_after_the_timeout() -> None:
    """Only if partitioner_availability_timeout_ms is set."""
    owner = Owner(Queue(1, 1), Queue(2, 1), Queue(3, 1))
    owner.stalls[2] = 0.5
    assert drawn(owner) == {UNIFORM: 4_000}
    assert drawn(owner, timeout=0.6) == {UNIFORM: 4_000}
    assert set(drawn(owner, timeout=0.4)) == {0, 2}
    owner.stalls.update({1: 0.5, 3: 0.5})
    assert drawn(owner, timeout=0.4) == {UNIFORM: 4_000}
