"""One timer for all queues of a producer."""

from __future__ import annotations

from typing import Any

from aiokq.producer.queue_owner import NEVER
from aiokq.producer.queue_timers import QueueTimers


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def timestamp_ms(self) -> int:
        return int(self.now * 1000)


class Queue:
    """A PartitionQueue, as the timers see it."""

    def __init__(self) -> None:
        self.scheduled_at = NEVER
        self.called: list[float] = []

    def on_time(self, now: float) -> None:
        self.called.append(now)


def broke(queue: object, where: str, error: Exception) -> None:
    """Record a queue that raised."""
    raise error


def test_queues_are_called_when_they_are_due_and_once() -> None:
    """An earlier time replaces a later one."""
    clock = Clock()
    timers = QueueTimers(clock, broke)
    early, late = Queue(), Queue()
    schedule: Any = timers.schedule
    schedule(late, 5.0)
    schedule(early, 3.0)
    schedule(early, 1.0)
    schedule(early, 4.0)
    timers._call_due(2.0)
    assert (early.called, late.called) == ([2.0], [])
    timers._call_due(10.0)
    assert (early.called, late.called) == ([2.0], [10.0])


def test_a_queue_that_raises_keeps_none_from_its_turn() -> None:
    """Regression: the exception ended the task of all timers, and with it the producer."""
    clock = Clock()
    told: list[tuple[object, str, str]] = []
    timers = QueueTimers(clock, lambda queue, where, error: told.append((queue, where, str(error))))

    class Broken(Queue):
        def on_time(self, now: float) -> None:
            raise ZeroDivisionError("a bug")

    broken, sound = Broken(), Queue()
    schedule: Any = timers.schedule
    schedule(broken, 1.0)
    schedule(sound, 1.0)
    timers._call_due(2.0)
    assert told == [(broken, "on_time", "a bug")]
    assert sound.called == [2.0]


def test_replaced_entries_do_not_pile_up() -> None:
    """Regression: with responses slower than linger_ms each batch left an entry for two minutes."""
    timers = QueueTimers(Clock(), broke)
    queues = [Queue() for _ in range(10)]
    schedule: Any = timers.schedule
    for turn in range(1, 10_000):
        now = turn / 1000
        for queue in queues:
            schedule(queue, now + 120)
            schedule(queue, now)
        timers._call_due(now)
    assert len(timers._heap) < 200
    assert all(len(queue.called) == 9_999 for queue in queues)
