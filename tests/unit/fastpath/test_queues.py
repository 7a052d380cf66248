"""SendWindow, SendQueue and QueuedBatch: the compiled and the pure queue decide the same.

What a queue does is tested by tests/unit/producer/test_partition_queue.py.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from aiokq.producer.queue_owner import QueueLimits
from tests import cores
from tests.unit.fastpath.conftest import Bench, FixedClock


class Parts:
    """Owner, senders, outcomes, backoff and gate of a queue; notes their calls."""

    def __init__(self, core: SimpleNamespace, *, linger: float) -> None:
        self.notes: list[str] = []
        self.hurried = False
        self.admitted = True
        self.seals = True
        self.made = Bench(core, 1, clock=FixedClock(10_000))
        self.queue = core.SendQueue(
            "t", 0, self, self, self, QueueLimits(linger=linger), self, None, self
        )
        self.queue.leader = 1
        self.queue.slot = self.made.route.slots[0]

    def opened(self, queue: Any, batch: Any) -> None:
        self.notes.append(f"opened {batch.count}")

    def ready(self, queue: Any) -> None:
        self.notes.append("ready")

    def schedule(self, queue: Any, when: float) -> None:
        self.notes.append(f"schedule {when:g}")
        queue.scheduled_at = when

    def seal(self, queued: Any) -> bool:
        self.notes.append("seal")
        queued.sealed = self.seals
        return self.seals

    def admits(self, queue: Any) -> bool:
        return self.admitted

    def reset(self) -> None:
        self.notes.append("reset")

    def delivered(self, queued: Any, base_offset: int, log_append_time_ms: int) -> None:
        self.notes.append(f"delivered {base_offset}")

    def append(self) -> Any:
        """Append a record, which opens a batch, and tell the queue."""
        self.made.append("t", b"v")
        self.queue.batch_opened(self.made.opened[-1])


def test_a_batch_from_its_first_record_to_its_acknowledgement(core: SimpleNamespace) -> None:
    """Without lingering; the timer is set only for an earlier time than before."""
    parts = Parts(core, linger=0.0)
    queue = parts.queue
    queue.retry_at, queue.blocked_by = 9.0, ValueError("earlier")
    parts.append()
    queued = queue.peek(10.0)
    assert queued.batch is parts.made.opened[0]
    assert queued.deadline == 130.0
    assert not queue.all_sent
    assert queue.launch(queued, 1) == 1
    assert queue.all_sent
    assert queued.in_flight
    assert queued.node_id == 1
    assert queue._window.in_flight == 1
    queue.answered(queued, 1, 7, -1)
    queue.answered(queued, 1, 7, -1)  # a late answer to an earlier attempt
    assert queued.done
    assert not queued.in_flight
    assert (queue.retry_at, queue.blocked_by, queue._window.in_flight) == (0.0, None, 0)
    parts.append()
    expected = ["opened 1", "ready", "schedule 130", "seal", "reset", "delivered 7"]
    assert parts.notes == [*expected, "opened 1", "ready"]


def test_a_batch_waits(core: SimpleNamespace) -> None:
    """For its linger, its leader, the end of a pause, its compression and the transaction."""
    parts = Parts(core, linger=5.0)
    queue = parts.queue
    parts.append()
    queue.offer_if_ripe(14.0)
    assert parts.notes == ["opened 1", "schedule 15"]
    assert queue.peek(14.9) is None
    queue.offer_if_ripe(15.0)
    assert parts.notes[2:] == ["ready"]
    queue.leader = -1
    assert queue.peek(15.0) is None
    queue.leader, queue.retry_at = 1, 16.0
    queue.offer_if_ripe(15.0)
    assert queue.peek(15.0) is None
    assert parts.notes[3:] == ["schedule 16"]
    parts.seals = False
    assert queue.peek(16.0) is None
    parts.seals, parts.admitted = True, False
    assert queue.peek(16.0) is None
    parts.admitted = True
    assert queue.peek(16.0) is queue._window.batches[0]


def test_both_windows_hold_the_same() -> None:
    """Random calls, in the order in which a queue makes them."""
    rng = random.Random(5)
    for _ in range(300):
        windows = [(core, core.SendWindow()) for core in cores.cores()]
        made: list[tuple[Any, ...]] = []
        seen: list[list[object]] = [[] for _ in windows]
        for _ in range(rng.randrange(30)):
            step, at = rng.randrange(7), rng.randrange(1 + len(made))
            if step < 2 or at == len(made):
                made.append(tuple(_queued(core) for core, _ in windows))
            for side, (_, window) in enumerate(windows):
                if step < 2 or at == len(made):
                    window.batches.append(made[-1][side])
                    continue
                queued = made[at][side]
                if step == 2 and window.next is not None:
                    window.launched(window.next)
                elif step == 3 and queued.in_flight:
                    window.answered(queued)
                    window.drain()
                elif step == 4 and queued in window.batches and not queued.in_flight:
                    window.remove(queued)
                elif step == 5:
                    window.restart_if_drained()
                elif step == 6 and queued in window.batches and not queued.in_flight:
                    window.replace(queued, [])
                order = [pair[side] for pair in made]
                seen[side].append(
                    (
                        window.in_flight,
                        window.draining,
                        None if window.next is None else order.index(window.next),
                        [order.index(each) for each in window.batches],
                        [each.done for each in order],
                    )
                )
        assert all(each == seen[0] for each in seen)


def _queued(core: SimpleNamespace) -> Any:
    made = Bench(core, 1)
    made.append("t", b"v")
    return core.QueuedBatch(None, made.opened[0], 1.0)
